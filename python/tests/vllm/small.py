"""The vLLM that all proofs run: small, on the CPU, with numbers exact enough to compare."""

import json
import os
from typing import Any

from vllm import LLM


def start(model: str, connector: str) -> LLM:
    """With a connector given as JSON, or ``none``, and what else ``ENGINE_OPTIONS`` says."""
    return LLM(**options(model, connector))


def options(model: str, connector: str) -> dict[str, Any]:
    """An engine's options."""
    more = json.loads(os.environ.get("ENGINE_OPTIONS", "{}"))
    if connector != "none":
        more["kv_transfer_config"] = json.loads(connector)
    return {
        "model": model,
        "dtype": "float32",
        "seed": 0,
        "block_size": 128,
        "max_model_len": 8448,
        "max_num_batched_tokens": 8448,
        "skip_tokenizer_init": True,
        "enforce_eager": True,
        "enable_prefix_caching": True,
        "disable_log_stats": False,
        **more,
    }
