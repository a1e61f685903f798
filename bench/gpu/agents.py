"""Agents on two engines: sessions of the trace lab's generator, each turn asked when the one before is answered."""

import json
import subprocess
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from parts import Engine

BLOCK_TOKENS = 512
#: A session is cut where it has grown to this, and as many of its last turns are played.
MOST_TOKENS = 80_000
TURNS = 10
#: Output that decoding would spend its time on, not the cache.
MOST_OUTPUT = 64


def sessions(agents: int, seed: int) -> list[list[dict[str, Any]]]:
    """For each agent its turns: a prompt, how many tokens are wanted, and the pause before it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "codex.jsonl"
        line = ["trace", "generate", "codex", f"--sessions={agents * 12}", f"--seed={seed}", "-o", str(path)]
        subprocess.run([sys.executable, "-m", "tidepool", *line], check=True, capture_output=True)
        requests = [json.loads(line) for line in path.read_text().splitlines()]
    by_session: dict[int, list[Any]] = {}
    for request in requests:
        if "blocks" in request:
            by_session.setdefault(request["session"], []).append(request)
    grown = [grows(turns) for turns in by_session.values()]
    long = [turns for turns in grown if len(turns) >= TURNS and turns[-1]["input_tokens"] >= MOST_TOKENS * 0.9]
    assert len(long) >= agents, f"only {len(long)} sessions grow to {MOST_TOKENS} tokens"
    return [[turn_of(turn) for turn in turns[-TURNS:]] for turns in long[:agents]]


def grows(turns: list[Any]) -> list[Any]:
    """The turns up to the first that is too long, or does not go on from the one before."""
    kept: list[Any] = []
    for turn in turns:
        if turn["input_tokens"] > MOST_TOKENS or (kept and turn["input_tokens"] < kept[-1]["input_tokens"]):
            break
        kept.append(turn)
    return kept


def turn_of(request: Any) -> dict[str, Any]:
    """The tokens of a block are drawn from its hash: what two prompts share in the trace they share here."""
    hashes = [int(request["blocks"][at : at + 16], 16) for at in range(0, len(request["blocks"]), 16)]
    left, prompt = request["input_tokens"], []
    for block in hashes:
        length = min(BLOCK_TOKENS, left)
        if length > 0:
            prompt.append([block, length])
        left -= length
    if left > 0:
        prompt.append([hashes[-1] ^ left, left])
    tokens = max(1, min(request["output_tokens"], MOST_OUTPUT))
    return {
        "prompt": prompt,
        "tokens": tokens,
        "length": request["input_tokens"],
        "pause": request.get("pause_ms", 0) / 1000,
    }


def run_agents(engines: list[Engine], work: list[list[dict[str, Any]]], pause_scale: float) -> dict[str, Any]:
    """Plays all sessions at once, requests to one engine after the other in turn."""
    done: list[dict[str, Any]] = []
    turns = count()
    failures: list[BaseException] = []

    def agent(number: int, session: list[dict[str, Any]]) -> None:
        try:
            for turn in session:
                time.sleep(turn["pause"] * pause_scale)
                at, asked_at = next(turns) % len(engines), time.perf_counter() - began
                name = f"{number}-{turn['length']}-{time.monotonic_ns()}"
                asked = engines[at].order("generate", name=name, prompt=turn["prompt"], tokens=turn["tokens"])
                answer = {key: value for key, value in asked.result(400).items() if key != "tokens"}
                done.append({"agent": number, "engine": at, "asked": asked_at, "length": turn["length"], **answer})
                print(f"{len(done)}: {done[-1]}", file=sys.stderr, flush=True)
        except BaseException as error:
            failures.append(error)

    began = time.perf_counter()
    threads = [threading.Thread(target=agent, args=numbered) for numbered in enumerate(work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if failures:
        raise failures[0]
    first = [request["first"] for request in done]
    return {
        "requests": len(done),
        "requests a second": len(done) / seconds,
        "first token, median": median(first),
        "first token, p90": quantiles(first, n=10)[-1],
        "end to end, median": median(request["all"] for request in done),
        "hit rate": sum(request["cached"] for request in done) / sum(request["length"] for request in done),
        "seconds": seconds,
        "all": done,
    }
