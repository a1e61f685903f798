"""The tables of bench/gpu: ``tables.py check | a | b | c | d-saturated | d-light``."""

import ctypes
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from agents import run_agents, sessions
from parts import LLAMA_8B, TOKEN_BYTES, Engine, Pool, end_all, write_model

LENGTHS = [int(length) for length in os.environ.get("LENGTHS", "8192 32768 81920").split()]
#: Tokens of a block. What vLLM does for each block, in Python, is what a long prefix waits for beside the bus: with
#: blocks of 16 for four times as many.
BLOCK = 64
REPEATS = int(os.environ.get("REPEATS", "3"))
GIB = 1 << 30
#: Graphs for short steps, as any server has them: without, the processor takes 20 ms to issue one.
GRAPHS: dict[str, Any] = {
    "enforce_eager": False,
    "compilation_config": {"mode": 0, "cudagraph_mode": "FULL", "cudagraph_capture_sizes": [1, 2, 4, 8, 16]},
}
#: Four engines of the shape fit on one GPU beside each other, each with a cache for one long prompt.
SMALL_CACHE: dict[str, Any] = {
    **GRAPHS,
    "block_size": BLOCK,
    "gpu_memory_utilization": 0.2,
    "kv_cache_memory_bytes": 12 * GIB,
    "max_model_len": 90_112,
}
#: Two of them, each with a cache for several long prompts.
LARGE_CACHE: dict[str, Any] = {
    **GRAPHS,
    "block_size": BLOCK,
    "kind": "lone",
    "gpu_memory_utilization": 0.4,
    "kv_cache_memory_bytes": 36 * GIB,
    "max_model_len": 100_000,
}
OFFLOADING = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"cpu_bytes_to_use": 24 * GIB},
}

Table = dict[str, Any]


def fresh() -> Callable[[int], list[list[int]]]:
    """Prompts that nobody has asked before."""
    state = {"seed": 1000}

    def prompt(length: int) -> list[list[int]]:
        state["seed"] += 1
        return [[state["seed"], length]]

    return prompt


def model(folder: str) -> Path:
    return write_model(Path(folder) / "llama-8b-shape", LLAMA_8B)


def wave(engines: list[Engine], prompt: Callable[[int], list[list[int]]]) -> Iterator[tuple[int, int]]:
    """Lengths and turns, once the engines are up; ends them afterwards."""
    try:
        for engine in engines:
            engine.ready().ask(prompt(2048))
        for length in LENGTHS:
            for turn in range(REPEATS + 1):
                yield length, turn
    finally:
        end_all(engines)


def table_b() -> Table:
    """Time to first token: computed, still on the GPU, and restored in three ways."""
    rows: dict[str, dict[int, list[float]]] = {}
    prompt = fresh()

    def note(row: str, length: int, turn: int, answer: Any, least: int = 0) -> None:
        print(
            f"{row}, {length} tokens: {answer['first']:.4f} s, {answer['cached']} cached", file=sys.stderr, flush=True
        )
        assert answer["cached"] >= least, (row, length, answer["cached"])
        if turn:  # the first is a warm-up
            rows.setdefault(row, {}).setdefault(length, []).append(answer["first"])

    def restored(name: str, engine: Engine, asked: list[list[int]], length: int, turn: int) -> None:
        """Computes, lets the engine forget, and asks again."""
        engine.ask(asked)
        # Stored in the background.
        time.sleep(1.2 + length / 40960)
        engine.forget()
        note(name, length, turn, engine.ask(asked), length - BLOCK)

    def without_pool(path: Path) -> None:
        plain, offload = Engine(path, None, **LARGE_CACHE), Engine(path, OFFLOADING, **LARGE_CACHE)
        for length, turn in wave([plain, offload], prompt):
            asked = prompt(length)
            note("computed", length, turn, plain.ask(asked))
            note("prefix on the GPU", length, turn, plain.ask(asked), length - BLOCK)
            restored("vLLM's CPU offload", offload, asked, length, turn)

    def with_pool(path: Path, pool: Pool) -> None:
        first, second = (Engine(path, pool.connector(), **LARGE_CACHE) for _ in range(2))
        pool.ready()
        for length, turn in wave([first, second], prompt):
            asked = prompt(length)
            restored("Tidepool, same process", first, asked, length, turn)
            note("Tidepool, second process", length, turn, second.ask(asked), length - BLOCK)

    with tempfile.TemporaryDirectory() as folder, Pool("72GiB") as pool:
        path = model(folder)
        without_pool(path)
        with_pool(path, pool)
    return {
        "unit": "seconds to the first token, median",
        "rows": {row: {str(length): median(times) for length, times in by.items()} for row, by in rows.items()},
        "all": rows,
    }


def table_c() -> Table:
    """Prefill with and without storing, one after the other."""
    prompt = fresh()
    times: dict[str, list[float]] = {"without": [], "storing": []}
    with tempfile.TemporaryDirectory() as folder, Pool("48GiB") as pool:
        path = model(folder)
        # Both shared: a lone one drops what the connector counted in steps that answer nobody.
        sides = {"without": Engine(path, None, **SMALL_CACHE), "storing": Engine(path, pool.connector(), **SMALL_CACHE)}
        try:
            pool.ready()
            for engine in sides.values():
                engine.ready().ask(prompt(2048))
            for turn in range(REPEATS + 3):
                for side, engine in sides.items():
                    answer = engine.ask(prompt(81920))
                    if turn:
                        times[side].append(answer["first"])
            time.sleep(2)  # until the last one is stored
            counted = sides["storing"].numbers()
            asked = (REPEATS + 3) * 81920 * TOKEN_BYTES
            saved = counted.get("bytes_saved", 0)
            # Storing that stores nothing costs nothing.
            assert saved > 0.9 * asked, f"{saved / 1e9} GB of {asked / 1e9} were stored; seconds: {times}"
        finally:
            end_all(list(sides.values()))
    ratio = median(times["storing"]) / median(times["without"])
    return {
        "unit": "seconds for 81,920 tokens, median",
        "rows": {side: median(all_of) for side, all_of in times.items()},
        "ratio": ratio,
        "checksums": checksums(counted),
        "all": times,
    }


def checksums(counted: dict[str, float]) -> Table:
    """What they cost the threads that save, which nothing waits for."""
    saved, seconds = counted.get("bytes_saved", 0), counted.get("checksum_micros", 0) / 1e6
    return {
        "GB saved": saved / 1e9,
        "seconds in saves": counted.get("save_micros", 0) / 1e6,
        "seconds of checksums, two flights at a time": seconds,
        "checksums, GB/s": saved / 1e9 / seconds if seconds else None,
    }


def table_d(agents: int, pause_scale: float) -> Table:
    """Two engines, round-robin, agents that wait for their answers: without the pool and with it."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Pool(f"{agents * 10 + 2}GiB") as pool:
        path = model(folder)
        without = [Engine(path, None, **SMALL_CACHE) for _ in range(2)]
        pooled = [Engine(path, pool.connector(), **SMALL_CACHE) for _ in range(2)]
        prompt = fresh()
        work = sessions(agents, seed=1)
        arms = {}
        try:
            pool.ready()
            for engine in [*without, *pooled]:
                engine.ready().ask(prompt(2048), 8)
            for name, pair in {"without": without, "with the pool": pooled}.items():
                print(f"{time.monotonic() - began:.0f} s: {name}", file=sys.stderr, flush=True)
                # The other pair idles beside it, either way.
                arms[name] = run_agents(pair, work, pause_scale)
        finally:
            end_all([*without, *pooled])
    requests = {name: arm.pop("all") for name, arm in arms.items()}
    slow, fast = arms["without"], arms["with the pool"]
    return {
        "agents": agents,
        "pauses": f"as published, times {pause_scale}",
        "turns": sum(len(session) for session in work) / agents,
        "rows": arms,
        "first token, times lower": slow["first token, median"] / fast["first token, median"],
        "requests, times more": fast["requests a second"] / slow["requests a second"],
        "all": requests,
    }


def table_a() -> Table:
    import copies
    import restores

    table = copies.rates(REPEATS)
    whole = table["rows"]["one piece"]
    for row, rates in restores.rates(REPEATS).items():
        cells: dict[str, float] = {}
        for way, rate in rates.items():
            cells |= {f"{way} GB/s": rate / 1e9, f"{way} %": rate / 1e7 / whole[f"{way} GB/s"]}
        table["rows"][f"256 KiB, pool, {row}"] = cells
    return table


def check() -> Table:
    from correctness import prove

    return prove()


TABLES: dict[str, Callable[[], Table]] = {
    "check": check,
    "a": table_a,
    "b": table_b,
    "c": table_c,
    "d-saturated": lambda: table_d(7, 0.4),
    "d-light": lambda: table_d(4, 0.8),
}


def commit() -> str:
    try:
        line = ["git", "rev-parse", "--short", "HEAD"]
        return subprocess.run(line, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return "not known"


def gpu_name() -> str | None:
    """The first GPU, asked of its driver: torch takes seconds to import, and the engines do so anyway."""
    name = ctypes.create_string_buffer(256)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    failed = driver.cuInit(0) or driver.cuDeviceGetName(name, len(name), 0)
    return None if failed else name.value.decode()


def conditions() -> Table:
    return {
        "gpu": gpu_name(),
        "torch": version("torch"),
        "vllm": version("vllm"),
        "commit": os.environ.get("COMMIT") or commit(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "token bytes": TOKEN_BYTES,
        "block tokens": BLOCK,
        "repeats": REPEATS,
    }


def show(name: str, table: Table) -> None:
    print(f"table {name}: {table.get('unit', '')}")
    for row, values in table.get("rows", {}).items():
        cells = values.items() if isinstance(values, dict) else [("", values)]
        print(
            f"  {row:34}",
            "  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in cells),
        )
    for key, value in table.items():
        if key not in ("rows", "all", "unit"):
            print(f"  {key}: {value}")


def check_needs() -> None:
    for needed in ("torch", "vllm", "tidepool"):
        if importlib.util.find_spec(needed) is None:
            sys.exit(f"{sys.executable} has no {needed}: bench/gpu needs torch, vLLM and the wheel of `make wheel`")
    if gpu_name() is None:
        sys.exit("no NVIDIA GPU that its driver knows of: bench/gpu measures one")


def main(name: str) -> None:
    began = time.monotonic()
    table = TABLES[name]()
    table["seconds in all"] = round(time.monotonic() - began, 1)
    show(name, table)
    folder = Path(os.environ.get("OUT", "."))
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"bench-gpu-{name}.json"
    out.write_text(json.dumps({"table": name, **conditions(), **table}, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in TABLES:
        sys.exit(f"usage: run {' | '.join(TABLES)}")
    check_needs()
    main(sys.argv[1])
