"""KV caches as vLLM itself allocates them, on the CPU.

Every layout that 0.32 has a name for, and those of 0.26's kernels.
"""

import dataclasses
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from vllm.v1 import kv_cache_interface as interface
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheGroupSpec, KVQuantMode, MLAAttentionSpec

BLOCKS = 6
LAYERS = 3
HAS_NAMES = hasattr(interface, "KVCacheLayout")


@dataclasses.dataclass
class Cache:
    """A KV cache."""

    config: Any
    #: Each layer's own view.
    tensors: dict[str, torch.Tensor]
    #: All layers' in one tensor, where vLLM offers it.
    together: torch.Tensor | None = None
    #: The dimension of a layer's view that counts blocks.
    dimension: int = 0

    def raw(self) -> list[torch.Tensor]:
        """All memory, as bytes."""
        storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in self.tensors.values()}
        return [torch.empty(0, dtype=torch.uint8).set_(storage) for storage in storages.values()]  # type: ignore[call-overload]

    def fill(self, seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        for raw in self.raw():
            raw.copy_(torch.randint(0, 256, raw.shape, generator=draw, dtype=torch.uint8))

    def blocks(self, group: int) -> list[torch.Tensor]:
        """Each layer's bytes, by block, as its kernels see them."""
        names = self.config.kv_cache_groups[group].layer_names
        views = [self.tensors[name].view(torch.uint8).movedim(self.dimension, 0) for name in names]
        return [view.unflatten(0, (BLOCKS, -1)) for view in views]


def caches() -> Iterator[tuple[str, Callable[[], Cache]]]:
    """Every cache that this vLLM would make, by name."""
    return _named() if HAS_NAMES else _by_kernel()


def _full(**options: Any) -> Any:
    return FullAttentionSpec(
        **{"block_size": 32, "num_kv_heads": 2, "head_size": 16, "dtype": torch.bfloat16, **options}
    )


def _mla(**options: Any) -> Any:
    plain = {"block_size": 64, "num_kv_heads": 1, "head_size": 576, "dtype": torch.bfloat16}
    return MLAAttentionSpec(**{**plain, **options})


def _sliding(**options: Any) -> Any:
    plain = {"block_size": 32, "num_kv_heads": 2, "head_size": 16, "dtype": torch.bfloat16, "sliding_window": 40}
    return interface.SlidingWindowSpec(**{**plain, **options})


# vLLM 0.32: one allocation, whose layout has a name.


def _named() -> Iterator[tuple[str, Callable[[], Cache]]]:
    refused = 0
    for layout in interface.KVCacheLayout:
        for name, (groups, kernel) in _models().items():
            try:
                _allocate(layout, groups, kernel)
            except (AssertionError, ValueError):
                refused += 1  # by vLLM itself: not every layout can have every model
                continue
            yield f"{layout.name}, {name}", lambda args=(layout, groups, kernel): _allocate(*args)
    assert refused < 20, f"vLLM has refused {refused}"


def _models() -> dict[str, tuple[list[Any], int | None]]:
    """The specs of each KV group's layers, and the tokens in a block of the kernel's."""
    from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend

    scaled = TritonAttentionBackend.customize_spec
    fp8 = {"dtype": torch.float8_e4m3fn, "kv_quant_mode": KVQuantMode.FP8_PER_TENSOR}
    fp8_scaled = {"dtype": torch.uint8, "kv_quant_mode": KVQuantMode.FP8_PER_TOKEN_HEAD}
    int4_scaled = {"dtype": torch.uint8, "kv_quant_mode": KVQuantMode.INT4_PER_TOKEN_HEAD}
    nvfp4 = {"dtype": torch.uint8, "kv_quant_mode": KVQuantMode.NVFP4, "state_content_bytes": 2 * (8 + 1)}
    sparse = {"dtype": torch.uint8, "cache_dtype_str": "fp8_ds_mla", "state_content_bytes": 656}
    compressed = {
        "dtype": torch.uint8,
        "cache_dtype_str": "fp8_ds_mla",
        "model_version": "deepseek_v4",
        "state_content_bytes": 584,
        "tokens_per_state": 4,
        "alignment": 576,
    }
    window = {"sliding_window": 40, "block_size": 64, "num_kv_heads": 1, "head_size": 576, "dtype": torch.bfloat16}
    return {
        "full": ([_full()], None),
        "full, two blocks of the kernel's": ([_full()], 16),
        "one head": ([_full(num_kv_heads=1)], None),
        "values longer than keys": ([_full(head_size_v=24)], None),
        "sliding window": ([_sliding()], None),
        "full and sliding window": ([_full(), _sliding()], None),
        "full and sliding window of other sizes": ([_full(), _sliding(head_size=24)], None),
        "fp8": ([_full(**fp8)], None),
        "fp8 as bytes": ([_full(**{**fp8, "dtype": torch.uint8})], None),
        "fp8 with scales": ([scaled(_full(**fp8_scaled))], None),
        "int4 with scales": ([scaled(_full(**int4_scaled))], None),
        "nvfp4 with scales": ([_full(**nvfp4)], None),
        "padded": ([_full(page_size_padded=8192)], None),
        "MLA": ([_mla()], None),
        "MLA, two blocks of the kernel's": ([_mla()], 32),
        "MLA, fp8": ([_mla(dtype=torch.float8_e4m3fn)], None),
        "MLA, fp8 with scales": ([_mla(**sparse)], None),
        "MLA, compressed and padded": ([_mla(**compressed)], None),
        "MLA, sliding window": ([interface.SlidingWindowMLASpec(**window)], None),
    }


def _allocate(layout: Any, specs: list[Any], kernel: int | None) -> Cache:
    from vllm.v1.core.kv_cache_utils import get_kv_cache_config_from_groups
    from vllm.v1.worker.utils import allocate_kv_cache

    groups = [
        KVCacheGroupSpec([f"g{index}.l{layer}" for layer in range(LAYERS)], spec) for index, spec in enumerate(specs)
    ]
    settings = {"num_gpu_blocks_override": BLOCKS, "prefix_cache_retention_interval": None}
    cache_config = SimpleNamespace(get_resolved_kv_cache_layout=lambda: layout, **settings)
    vllm_config: Any = SimpleNamespace(
        cache_config=cache_config, attention_config=SimpleNamespace(hisparse_config=None)
    )
    config = get_kv_cache_config_from_groups(vllm_config, groups, 1 << 30)
    sizes = None if kernel is None else [kernel] * len(groups)
    return Cache(config, allocate_kv_cache(config, torch.device("cpu"), layout, sizes))


# vLLM 0.26: a tensor for each layer, or one for all, with the dimensions that a kernel wants.


def _by_kernel() -> Iterator[tuple[str, Callable[[], Cache]]]:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
    from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend
    from vllm.v1.attention.backends.mla.flashmla_sparse import FlashMLASparseBackend
    from vllm.v1.attention.backends.mla.triton_mla import TritonMLABackend
    from vllm.v1.attention.backends.rocm_attn import RocmAttentionBackend
    from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend

    fp8 = {"dtype": torch.uint8, "kv_quant_mode": KVQuantMode.FP8_PER_TENSOR}
    fp8_scaled = {"dtype": torch.uint8, "kv_quant_mode": KVQuantMode.FP8_PER_TOKEN_HEAD}
    plain = {"full": (_full(), "auto"), "sliding window": (_sliding(), "auto"), "fp8": (_full(**fp8), "fp8")}
    scales = {**plain, "fp8 with scales": (_full(**fp8_scaled), "fp8_per_token_head")}
    mla = {"MLA": (_mla(), "auto"), "MLA, fp8": (_mla(dtype=torch.uint8), "fp8")}
    sparse = {"MLA, fp8 with scales": (_mla(dtype=torch.uint8, cache_dtype_str="fp8_ds_mla"), "fp8_ds_mla")}
    kernels: dict[Any, dict[str, Any]] = {
        FlashAttentionBackend: plain,
        TritonAttentionBackend: scales,
        CPUAttentionBackend: {"full": plain["full"]},
        RocmAttentionBackend: plain,
        TritonMLABackend: mla,
        FlashMLASparseBackend: sparse,
    }
    for backend, specs in kernels.items():
        for order in ("NHD", "HND"):
            for name, (spec, dtype) in specs.items():
                for tokens in (spec.block_size, spec.block_size // 2):
                    kernel = f"{backend.get_name()} {order}, {name}, {tokens} tokens of {spec.block_size}"
                    arguments = (backend, order, spec, dtype, tokens)
                    yield kernel, lambda args=arguments: _apart(*args)
                    if backend.indexes_kv_by_block_stride():
                        yield f"{kernel}, layers together", lambda args=arguments: _together(*args)


def _config(spec: Any) -> Any:
    names = [f"l{layer}" for layer in range(LAYERS)]
    size = BLOCKS * spec.page_size_bytes
    tensors = [interface.KVCacheTensor(size=size, shared_by=[name]) for name in names]
    groups = [KVCacheGroupSpec(names, spec)]
    return interface.KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=tensors, kv_cache_groups=groups)


def _in_order(order: str) -> None:
    from vllm.v1.attention.backends.utils import get_kv_cache_layout, set_kv_cache_layout

    set_kv_cache_layout(order)
    get_kv_cache_layout.cache_clear()


def _apart(backend: Any, order: str, spec: Any, dtype: str, tokens: int) -> Cache:
    from vllm.v1.worker.gpu.attn_utils import _reshape_attention_kv_cache

    _in_order(order)
    config, blocks = _config(spec), BLOCKS * spec.block_size // tokens
    shape = backend.get_kv_cache_shape(blocks, tokens, spec.num_kv_heads, spec.head_size, cache_dtype_str=dtype)
    try:
        strides = backend.get_kv_cache_stride_order()
        assert len(strides) == len(shape)
    except (AttributeError, NotImplementedError):
        strides = tuple(range(len(shape)))
    tensors = {}
    for tensor in config.kv_cache_tensors:
        raw = torch.zeros(tensor.size, dtype=torch.int8)
        tensors[tensor.shared_by[0]] = _reshape_attention_kv_cache(raw, spec, shape, strides, blocks, None)
    return Cache(config, tensors, dimension=shape.index(blocks))


def _together(backend: Any, order: str, spec: Any, dtype: Any, tokens: int) -> Cache:
    from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin

    _in_order(order)
    config: Any = _config(spec)
    groups: Any = [[SimpleNamespace(kv_cache_spec=spec, backend=backend)]]
    tensors, together, _ = KVConnectorModelRunnerMixin.allocate_uniform_kv_caches(
        config, groups, dtype, torch.device("cpu"), [tokens]
    )
    return Cache(config, tensors, together)
