"""One vLLM that does what it is told: ``engine.py KIND MODEL OPTIONS``, the options of the engine as JSON.

Reads one JSON object a line and answers each with a line ``ANSWER {...}`` that has its id. An engine that is ``shared``
answers requests at the same time, as a server does; one that is ``lone`` takes one after the other, and its times are
without a server's. A prompt is a list of [seed, length], so that tokens need not be sent.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy
from vllm import LLM, SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.reader import get_metrics_snapshot


def tokens_of(prompt: list[list[int]], vocabulary: int) -> list[int]:
    parts = [numpy.random.default_rng(seed).integers(10, vocabulary - 10, length) for seed, length in prompt]
    tokens: list[int] = numpy.concatenate(parts).tolist()
    return tokens


def counted() -> dict[str, float]:
    """What the connector has counted."""
    named = "vllm:tidepool_"
    found = (metric for metric in get_metrics_snapshot() if metric.name.startswith(named))
    return {metric.name.removeprefix(named): metric.value for metric in found if hasattr(metric, "value")}


class Lone:
    def __init__(self, model: str, options: dict[str, Any]) -> None:
        self._llm = LLM(model=model, skip_tokenizer_init=True, disable_log_stats=False, **options)
        self._vocabulary = self._llm.model_config.get_vocab_size()

    async def generate(self, name: str, prompt: list[list[int]], tokens: int) -> Any:
        """Seconds to the only token, tokens that came from a cache, and what was generated."""
        assert tokens == 1
        how = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False)
        asked: Any = {"prompt_token_ids": tokens_of(prompt, self._vocabulary)}
        began = time.perf_counter()
        [answer] = self._llm.generate([asked], how, use_tqdm=False)
        first = time.perf_counter() - began
        return {"first": first, "cached": answer.num_cached_tokens, "tokens": list(answer.outputs[0].token_ids)}

    async def numbers(self) -> dict[str, float]:
        return counted()

    async def forget(self) -> bool:
        return await forgotten(lambda: asyncio.sleep(0, self._llm.reset_prefix_cache()))

    def end(self) -> None:
        self._llm.llm_engine.engine_core.shutdown()


async def forgotten(reset: Callable[[], Awaitable[bool]]) -> bool:
    """Empties an engine's own prefix cache, once nothing holds its blocks any more."""
    until = time.monotonic() + 30
    while not await reset():
        assert time.monotonic() < until, "blocks are held for ever"
        await asyncio.sleep(0.02)
    return True


class Shared:
    def __init__(self, model: str, options: dict[str, Any]) -> None:
        self._llm = AsyncLLM.from_engine_args(AsyncEngineArgs(model=model, skip_tokenizer_init=True, **options))
        self._vocabulary = self._llm.model_config.get_vocab_size()

    async def generate(self, name: str, prompt: list[list[int]], tokens: int, logprobs: int | None = None) -> Any:
        """Seconds to the first token and to the last, tokens that came from a cache, and what was generated."""
        how = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False, logprobs=logprobs)
        asked: Any = {"prompt_token_ids": tokens_of(prompt, self._vocabulary)}
        first, last = None, None
        began = time.perf_counter()
        async for output in self._llm.generate(asked, how, name):
            first = first or time.perf_counter() - began
            last = output
        assert last is not None
        return {
            "first": first,
            "all": time.perf_counter() - began,
            "cached": last.num_cached_tokens,
            "tokens": list(last.outputs[0].token_ids),
        }

    async def numbers(self) -> dict[str, float]:
        return counted()

    async def forget(self) -> bool:
        return await forgotten(self._llm.reset_prefix_cache)

    async def nap(self) -> None:
        """Sleeps, which gives the GPU's memory back, and wakes up."""
        await self._llm.sleep(level=1)
        await self._llm.wake_up()

    def end(self) -> None:
        self._llm.shutdown()


async def serve(kind: str, model: str, options: str) -> None:
    kinds: dict[str, type[Lone] | type[Shared]] = {"lone": Lone, "shared": Shared}
    engine = kinds[kind](model, json.loads(options))
    print("ANSWER", json.dumps({"id": "ready", "answer": os.getpid()}), flush=True)
    lines: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, "")

    loop.run_in_executor(None, read)
    running: set[asyncio.Task[None]] = set()

    async def answer(order: dict[str, Any]) -> None:
        reply = {"id": order.pop("id")}
        try:
            reply["answer"] = await getattr(engine, order.pop("do"))(**order)
        except Exception as error:
            reply["error"] = repr(error)
        print("ANSWER", json.dumps(reply), flush=True)

    while line := await lines.get():
        task = asyncio.create_task(answer(json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)
    # Its core with it, and what that has of the GPU: the next engine needs the room.
    engine.end()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
    os._exit(0)
