"""One vLLM that does what it is told: ``engine.py MODEL OPTIONS``, the options of the engine as JSON.

Reads one JSON object a line and answers each with a line ``ANSWER {...}`` that has its id; requests run at the same
time. A prompt is a list of [seed, length], so that tokens need not be sent.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

import numpy
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.metrics.reader import get_metrics_snapshot


def tokens_of(prompt: list[list[int]], vocabulary: int) -> list[int]:
    parts = [numpy.random.default_rng(seed).integers(10, vocabulary - 10, length) for seed, length in prompt]
    tokens: list[int] = numpy.concatenate(parts).tolist()
    return tokens


class Engine:
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
        """What the connector has counted."""
        named = "vllm:tidepool_"
        counted = (metric for metric in get_metrics_snapshot() if metric.name.startswith(named))
        return {metric.name.removeprefix(named): metric.value for metric in counted if hasattr(metric, "value")}

    async def forget(self) -> bool:
        """Empties the engine's own prefix cache, once nothing holds its blocks any more."""
        until = time.monotonic() + 30
        while not await self._llm.reset_prefix_cache():
            assert time.monotonic() < until, "blocks are held for ever"
            await asyncio.sleep(0.02)
        return True


async def serve(model: str, options: str) -> None:
    engine = Engine(model, json.loads(options))
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


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
    os._exit(0)
