"""Fingerprints: engines with equal fingerprints have interchangeable blocks.

Every key begins with a digest of all ingredients of KV bytes. Engines that differ in an ingredient never see each
other's blocks. So that this does not look like a cold cache, the first engine of a model's name leaves its ingredients
in the pool, and an engine that differs logs the differences.
"""

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm.v1.core import kv_cache_utils

from .. import Pool
from ..errors import TidepoolError
from .groups import Group
from .messages import RankLayout

_VERSION = "1"
logger = logging.getLogger("vllm.tidepool")  # under vLLM's own, so that its settings apply


@dataclass(frozen=True)
class Fingerprint:
    """The ingredients that make KV bytes interchangeable, by name, in words."""

    ingredients: dict[str, str]

    @property
    def namespace(self) -> str:
        """The prefix of these blocks' keys."""
        digest = hashlib.sha256(json.dumps(self.ingredients, sort_keys=True).encode()).hexdigest()
        return f"vllm/{digest[:32]}/"

    def apart(self) -> "Fingerprint":
        """The same fingerprint for blocks that no other engine has."""
        return Fingerprint({**self.ingredients, "since a reset": secrets.token_hex(16)})

    def differences(self, other: dict[str, str]) -> list[str]:
        """The differences of another engine, in words."""
        names = sorted({*self.ingredients, *other})
        return [
            f"{name}: here {self.ingredients.get(name)}, there {other.get(name)}"
            for name in names
            if self.ingredients.get(name) != other.get(name)
        ]


def chain_prefix(namespace: str, group: int, label: str) -> str:
    """The prefix of the keys of one group's blocks on one rank."""
    return f"{namespace}g{group}.{label}/"


def fingerprint(
    vllm_config: Any, groups: Sequence[Group], ranks: dict[int, RankLayout], weights: dict[str, str]
) -> Fingerprint:
    """The fingerprint of the blocks of an engine with these weights, by whose they are."""
    model, cache, parallel = vllm_config.model_config, vllm_config.cache_config, vllm_config.parallel_config
    layouts = sorted(
        {
            f"group {group.id} {rank.labels[group.id]}: {rank.layouts[group.id]}"
            for rank in ranks.values()
            for group in groups
        }
    )
    return Fingerprint(
        {
            "format": _VERSION,
            **weights,
            "model configuration": _digest(_plain(model.hf_config.to_dict())),
            "rotary factors": _rotary_factors(model),
            "dtype": str(model.dtype),
            "quantization": f"{model.quantization}, {_digest(getattr(model, 'quantization_config', None))}",
            "processing of images and sounds": _digest(_processing(model)),
            "KV cache dtype": f"{cache.cache_dtype}, scales {getattr(cache, 'calculate_kv_scales', False)}",
            "tokens in a block": ", ".join(f"{group.block_size} (window {group.window})" for group in groups),
            "tensor parallel size": str(parallel.tensor_parallel_size),
            "pipeline parallel size": str(parallel.pipeline_parallel_size),
            "block hashes": f"{cache.prefix_caching_hash_algo}, seed {_seed()}",
            "memory layout": "; ".join(layouts),
        }
    )


def _rotary_factors(model: Any) -> str:
    """The set of factors of a model with two: vLLM chooses by the longest request that the engine allows."""
    parts = list(_dicts_in(model.hf_config.to_dict()))
    if not any(part.get("rope_type", part.get("type")) in ("longrope", "su") for part in parts):
        return "one set"
    lengths = (part.get("original_max_position_embeddings") for part in parts)
    short = [length for length in lengths if isinstance(length, int)]
    return f"long: {[model.max_model_len > length for length in short]}"


def _processing(model: Any) -> Any:
    """The engine's settings for all requests; a request's own are in vLLM's hashes."""
    return getattr(getattr(model, "multimodal_config", None), "mm_processor_kwargs", None)


def _dicts_in(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from _dicts_in(part)


def descriptor(model: str, mine: Fingerprint) -> tuple[str, bytes]:
    """Key and bytes of the block with the ingredients of engines of this model's name."""
    return f"vllm/models/{Path(model).name[:200]}", json.dumps(mine.ingredients, sort_keys=True).encode()


def publish(pool: Pool, model: str, mine: Fingerprint) -> list[str]:
    """Leaves the ingredients in the pool under the model's name. Returns the differences of an earlier engine."""
    key, ingredients = descriptor(model, mine)
    try:
        pool.put(key, ingredients, deadline=1)
        found = json.loads(pool.get(key, deadline=1) or b"{}")
    except (TidepoolError, ValueError) as error:
        logger.warning("the pool did not take %s, so other engines cannot log their differences: %s", key, error)
        return []
    return mine.differences(found) if isinstance(found, dict) and found else []


def warn_of_random_hashes(algorithm: str) -> None:
    """Warns if no other process can have this engine's hashes."""
    fixed = hasattr(kv_cache_utils, "DEFAULT_NONE_HASH_SEED") and "xxhash" not in algorithm
    if not fixed and os.getenv("PYTHONHASHSEED") is None:
        logger.warning(
            "this engine's block hashes (%s) start from a random seed, so nothing is shared with other engines: "
            "set PYTHONHASHSEED to the same number in all of them",
            algorithm,
        )


def _seed() -> str:
    """The value from which hashes start: those of two processes are equal only if it is."""
    return hashlib.sha256(bytes(getattr(kv_cache_utils, "NONE_HASH", b""))).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """A model's configuration without its origin."""
    if isinstance(value, dict):
        left_out = ("_name_or_path", "transformers_version", "_commit_hash")
        return {str(key): _plain(item) for key, item in value.items() if key not in left_out}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]
