"""One real vLLM on the CPU: ``instance.py MODEL CONNECTOR LENGTH...``, the connector as JSON, or ``none``.

Prompts depend on their length only, so that two instances ask for the same prefixes. Prints one line of JSON for each:
what was generated, its log-probabilities, how many tokens came from a cache, and the time to the first token.
"""

import json
import random
import sys
import time
from typing import Any

from small import start
from vllm import SamplingParams
from waiting import eventually


def main(model: str, connector: str, *lengths: str) -> None:
    llm = start(model, connector)
    first = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, detokenize=False, logprobs=5)
    more = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, detokenize=False)

    def ask(tokens: list[int], how: SamplingParams) -> tuple[float, Any]:
        began = time.perf_counter()
        [answer] = llm.generate([{"prompt_token_ids": tokens}], how, use_tqdm=False)
        return time.perf_counter() - began, answer

    # The first request of an instance pays for start-up.
    ask([random.Random("warm-up").randrange(10, 1000) for _ in range(300)], first)
    for length in map(int, lengths):
        draw = random.Random(length)
        prompt = [draw.randrange(10, 1000) for _ in range(length)]
        seconds, answer = ask(prompt, first)
        report = {
            "length": length,
            "seconds": seconds,
            "cached": answer.num_cached_tokens,
            "logprobs": {token: found.logprob for token, found in answer.outputs[0].logprobs[0].items()},
            "tokens": list(ask(prompt, more)[1].outputs[0].token_ids),
        }
        print("RESULT", json.dumps(report), flush=True)
        # Blocks are stored in the background, and vLLM resets its cache when none is held for that.
        eventually("all blocks are stored", llm.reset_prefix_cache)


if __name__ == "__main__":
    main(*sys.argv[1:])
