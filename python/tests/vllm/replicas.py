"""Two data parallel ranks of one real vLLM on the CPU: ``replicas.py MODEL CONNECTOR LENGTH RANK...``.

The connector is given as JSON. Asks each of the ranks in turn for the same prompt, and prints a line ``RESULT {...}``
for each.
"""

import asyncio
import json
import os
import sys

from serve import prompt_of
from small import options
from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.v1.engine.async_llm import AsyncLLM
from waiting import eventually


async def main(model: str, connector: str, length: str, *ranks: str) -> None:
    both = {**options(model, connector), "data_parallel_size": 2, "data_parallel_backend": "mp"}
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**both))
    how = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True, detokenize=False, logprobs=5)
    prompt = {"prompt_token_ids": prompt_of(1, int(length))}
    loop = asyncio.get_running_loop()

    def is_stored() -> bool:
        """Blocks are stored in the background, and vLLM resets its cache when none is held for that."""
        return asyncio.run_coroutine_threadsafe(llm.reset_prefix_cache(), loop).result()

    for number, rank in enumerate(ranks):
        answers = llm.generate(prompt, how, f"request {number}", data_parallel_rank=int(rank))
        *_, answer = [answer async for answer in answers]
        [said] = answer.outputs
        report = {
            "rank": int(rank),
            "cached": answer.num_cached_tokens,
            "tokens": list(said.token_ids),
            "logprobs": {token: found.logprob for token, found in said.logprobs[0].items()},
        }
        print("RESULT", json.dumps(report), flush=True)
        await asyncio.to_thread(eventually, "all blocks are stored", is_stored)
    llm.shutdown()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
    os._exit(0)
