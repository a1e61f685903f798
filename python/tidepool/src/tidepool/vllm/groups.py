"""The KV groups of a model, as far as the pool is concerned."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
from vllm.v1.kv_cache_interface import (
    AttentionSpec,
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    EncoderOnlyAttentionSpec,
    SlidingWindowSpec,
    UniformTypeKVCacheSpecs,
)

from ..errors import InvalidError


@dataclass(frozen=True)
class Group:
    """A KV group whose blocks are saved and loaded."""

    id: int
    block_size: int
    #: Hashed blocks in one of its blocks.
    step: int
    #: Blocks that a prefix needs before its end; None for all.
    window: int | None
    #: Number of tokens back that a token reads (None: all), and the multiple at which reading starts anew.
    reach: int | None = None
    chunk: int = 1

    def gone(self, tokens: int) -> int:
        """Number of a request's first blocks that vLLM may have released once ``tokens`` are computed."""
        if self.reach is None:
            return 0
        return max(0, tokens - self.reach) // self.chunk * self.chunk // self.block_size


def groups_of(vllm_config: Any, kv_cache_config: Any) -> tuple[list[Group], int]:
    """The groups, and the tokens of a hashed block."""
    parallel = vllm_config.parallel_config
    for name in ("decode_context_parallel_size", "prefill_context_parallel_size"):
        if getattr(parallel, name, 1) != 1:
            raise InvalidError(f"{name} is {getattr(parallel, name)}: TidepoolConnector allows 1 only, so far")
    if getattr(vllm_config.cache_config, "calculate_kv_scales", False):
        raise InvalidError(
            "calculate_kv_scales is set: every engine makes scales of its own from what it computes first, so that the "
            "blocks of one are noise to another. Allowed are scales that come with the weights, or none"
        )
    hashed = getattr(kv_cache_config, "hash_block_size", None)
    if hashed is None:
        hashed = resolve_kv_cache_block_sizes(kv_cache_config, vllm_config)[1]
    ids = getattr(kv_cache_config, "prefix_cacheable_group_ids", None)
    if ids is None:
        ids = range(len(kv_cache_config.kv_cache_groups))
    return [_group(index, kv_cache_config.kv_cache_groups[index], hashed) for index in ids], hashed


def tells_failed_blocks(kv_cache_config: Any, groups: Sequence[Group]) -> bool:
    """Whether the numbers of the blocks that a failed load did not fill tell vLLM enough.

    vLLM computes from the first of these blocks on and trusts all blocks before. Behind a window no blocks were loaded,
    so that the computation would read empty blocks. With several groups, block numbers are not a request's own.
    """
    return len(kv_cache_config.kv_cache_groups) == 1 and all(group.reach is None for group in groups)


def _group(index: int, group: Any, hashed: int) -> Group:
    spec = group.kv_cache_spec
    if isinstance(spec, UniformTypeKVCacheSpecs):
        spec = next(iter(spec.kv_cache_specs.values()))
    if not isinstance(spec, AttentionSpec) or isinstance(spec, CrossAttentionSpec | EncoderOnlyAttentionSpec):
        raise InvalidError(
            f"KV group {index} ({type(spec).__name__}: {', '.join(group.layer_names[:3])}, ...) is not attention over "
            "a prefix: TidepoolConnector moves full, sliding-window, chunked and latent (MLA) attention, so far"
        )
    if getattr(group, "host_resident", False):
        raise InvalidError(
            f"KV group {index} is kept in host memory by vLLM (HiSparse): TidepoolConnector does not move it"
        )
    if spec.block_size % hashed:
        raise InvalidError(
            f"KV group {index} has blocks of {spec.block_size} tokens: allowed are multiples of {hashed}"
        )
    window, reach, chunk = None, None, 1
    if isinstance(spec, SlidingWindowSpec):
        reach = spec.sliding_window - 1
        window = max(1, -(-reach // spec.block_size))
    elif isinstance(spec, ChunkedLocalAttentionSpec):
        reach, chunk = 0, spec.attention_chunk_size
    return Group(index, spec.block_size, spec.block_size // hashed, window, reach, chunk)
