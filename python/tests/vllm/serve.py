"""One real vLLM on the CPU that does what it is told: ``serve.py MODEL CONNECTOR``, the connector as JSON, or
``none``.

Reads one JSON object a line from standard input and answers each with a line ``ANSWER {...}`` that has its id: many
checks share one start.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from small import start
from vllm import SamplingParams
from waiting import eventually


class Served:
    def __init__(self, model: str, connector: str) -> None:
        self.llm = start(model, connector)

    def ask(self, prompts: list[list[Any]], tokens: int = 1, params: Any = None) -> list[dict[str, Any]]:
        """Generates for prompts, all at once: each a (seed, length), or tokens."""
        asked = [{"prompt_token_ids": prompt_of(*prompt) if len(prompt) == 2 else prompt} for prompt in prompts]
        extra = {"kv_transfer_params": params} if params else None
        how = SamplingParams(
            temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=5, extra_args=extra
        )
        began = time.perf_counter()
        answers = self.llm.generate(asked, how, use_tqdm=False)
        seconds = time.perf_counter() - began
        return [
            {
                "seconds": seconds,
                "cached": answer.num_cached_tokens,
                "tokens": list(answer.outputs[0].token_ids),
                "logprobs": {token: found.logprob for token, found in answer.outputs[0].logprobs[0].items()},
            }
            for answer in answers
        ]

    def forget(self) -> bool:
        """Empties the engine's own prefix cache."""
        return eventually("no block is held", self.llm.reset_prefix_cache)

    def prompt(self, seed: int, length: int) -> list[int]:
        return prompt_of(seed, length)

    def metrics(self) -> dict[str, float]:
        return {metric.name: metric.value for metric in self.llm.get_metrics() if hasattr(metric, "value")}

    def zero_loads(self, on: bool) -> None:
        """Whether everything that is loaded is zeroed, before the model sees it."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        get_kv_transfer_group()._worker.zeroes_loads = on

    def lose_next_load(self) -> None:
        """Empties the pool between the next answer that blocks are there and their load."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        side = get_kv_transfer_group()._worker
        begin = side.begin_loads

        def empty_and_begin(step: Any) -> None:
            if step.loads:
                side._pool.remove_all()
                side.begin_loads = begin
            begin(step)

        side.begin_loads = empty_and_begin

    def kill_during_load(self, pid: int, port: int) -> None:
        """Stops a node before the next load, which so gets no answer, and kills it when it has been asked."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        side = get_kv_transfer_group()._worker
        begin = side.begin_loads

        def stop_and_begin(step: Any) -> None:
            if step.loads:
                stop(pid)
                threading.Thread(target=kill_when_asked, args=(unread(port),)).start()
                side.begin_loads = begin
            begin(step)

        def kill_when_asked(before: int) -> None:
            try:
                eventually("the stopped node is asked for blocks", lambda: unread(port) > before)
            finally:
                os.kill(pid, signal.SIGKILL)

        side.begin_loads = stop_and_begin


def stop(pid: int) -> None:
    """Stops a process, which need not be a child; when this returns, all of its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    threads = Path(f"/proc/{pid}/task")

    def has_stopped() -> bool:
        return all(thread.read_text().rpartition(") ")[2][0] == "T" for thread in threads.glob("*/stat"))

    eventually("all threads have stopped", has_stopped)


def unread(port: int) -> int:
    """Bytes that were sent to a port of this host and wait to be read."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    queues = [queues for _, local, _, _, queues, *_ in sockets if int(local.partition(":")[2], 16) == port]
    return sum(int(sent_and_received.partition(":")[2], 16) for sent_and_received in queues)


def prompt_of(seed: int, length: int) -> list[int]:
    draw = random.Random(f"{seed}")
    return [draw.randrange(10, 1000) for _ in range(length)]


def watch_loads() -> None:
    """Lets :meth:`Served.zero_loads` get at what is loaded, in an engine that runs in this process."""
    from tidepool.vllm.worker import WorkerSide

    register, begin, take = WorkerSide.register, WorkerSide.begin_loads, WorkerSide.take_received
    caches: list[torch.Tensor] = []
    blocks: dict[str, list[int]] = {}

    def register_and_keep(self: Any, kv_caches: dict[str, torch.Tensor]) -> None:
        caches.extend(kv_caches.values())
        register(self, kv_caches)

    def begin_and_note(self: Any, step: Any) -> None:
        for load in step.loads:
            blocks[load.request] = [block for part in load.parts for block in part.block_ids()]
        begin(self, step)

    def take_and_zero(self: Any) -> set[str]:
        received: set[str] = take(self)
        for request in received if getattr(self, "zeroes_loads", False) else ():
            for cache in caches:
                cache[blocks[request]] = 0
        return received

    WorkerSide.register = register_and_keep
    WorkerSide.begin_loads = begin_and_note
    WorkerSide.take_received = take_and_zero


def main(model: str, connector: str) -> None:
    if "tidepool.vllm" in connector:
        watch_loads()
    served = Served(model, connector)
    print("ANSWER", json.dumps({"id": "ready", "answer": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        reply = {"id": order.pop("id")}
        reply["answer"] = getattr(served, order.pop("do"))(**order)
        print("ANSWER", json.dumps(reply), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
