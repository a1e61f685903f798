"""The layout of vLLM's blocks in a worker's memory, with a description that is equal exactly where bytes are
interchangeable.
"""

import hashlib
import json
import math
import platform
from collections.abc import Collection
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from ..errors import InvalidError

#: (address in block 0, bytes from block to block, bytes).
Piece = tuple[int, int, int]


@dataclass(frozen=True)
class Places:
    """The places of every KV group's blocks."""

    #: For each KV group the pieces of a block.
    pieces: list[list[Piece]]
    #: For each KV group a description of its bytes; None for a group that this rank has no part of.
    descriptions: list[str | None]
    #: The tensors that must stay alive.
    memory: list[torch.Tensor]
    #: The GPU that has them; None for the host's memory.
    device: int | None


def lay_out(kv_cache_config: Any, kv_caches: dict[str, torch.Tensor], moved: Collection[int]) -> Places:
    """The blocks of tensors that have a layer each, for the KV groups that are moved."""
    groups = enumerate(kv_cache_config.kv_cache_groups)
    layers = [_layers(group.layer_names, kv_caches) if index in moved else {} for index, group in groups]
    return _places(kv_cache_config, layers)


def lay_out_together(kv_cache_config: Any, kv_cache: torch.Tensor) -> Places:
    """The blocks of one tensor that has all layers, which is offered to models with one KV group."""
    [group] = kv_cache_config.kv_cache_groups
    return _places(kv_cache_config, [{f"{group.layer_names[0]} and all others": kv_cache}])


def _places(kv_cache_config: Any, groups: list[dict[str, torch.Tensor]]) -> Places:
    pieces: list[list[Piece]] = []
    descriptions: list[str | None] = []
    for group, tensors in zip(kv_cache_config.kv_cache_groups, groups, strict=True):
        pieces.append([])
        described = []
        for name, tensor in tensors.items():
            found, shape = _pieces(name, tensor, kv_cache_config.num_blocks)
            _check_length(name, shape[-1], group.kv_cache_spec)
            pieces[-1] += found
            described.append([name, *shape])
        descriptions.append(_summary(described) if described else None)
    named = {name: tensor for tensors in groups for name, tensor in tensors.items()}
    device = _device(named)
    if device is None:
        descriptions = [described and f"{described}, {_processor()}" for described in descriptions]
    return Places(pieces, descriptions, list(named.values()), device)


def _processor() -> str:
    """The features by which vLLM chooses attention kernels, which differ in the order of values in a block."""
    amx, avx512 = torch.cpu._is_amx_tile_supported(), torch.cpu._is_avx512_supported()
    return f"kernels for {platform.machine()}{' with AVX-512' if avx512 else ''}{' with AMX' if amx else ''}"


def _check_length(name: str, length: int, spec: Any) -> None:
    """Refuses a tensor that does not show all of a block: the rest, such as separate scales, would not be saved."""
    spec = getattr(spec, "kv_cache_specs", {}).get(name, spec)
    expected = getattr(spec, "unpadded_page_size_bytes", 0)
    if length < expected:
        raise InvalidError(
            f"the KV cache of {name} shows {length} bytes of a block, but {type(spec).__name__} has {expected}: "
            "TidepoolConnector cannot see the rest, and would restore blocks without it"
        )


def _layers(names: list[str], kv_caches: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The group's layers on this rank; of layers that share memory, the first."""
    seen: set[int] = set()
    layers = {}
    for name in names:
        tensor = kv_caches.get(name)
        if isinstance(tensor, torch.Tensor) and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            layers[name] = tensor
    return layers


def _device(tensors: dict[str, torch.Tensor]) -> int | None:
    """The GPU that has all of them, or None for the host."""
    devices = {tensor.device: name for name, tensor in tensors.items()}
    if len(devices) > 1:
        found = ", ".join(f"{name} on {device}" for device, name in devices.items())
        raise InvalidError(f"KV caches are on several devices ({found}): TidepoolConnector allows one for each worker")
    device = next(iter(devices), torch.device("cpu"))
    if device.type == "cpu":
        return None
    if device.type != "cuda":
        raise InvalidError(
            f"the KV cache is on {device}: TidepoolConnector moves KV blocks in host memory and on NVIDIA GPUs (cuda)"
        )
    index: int = torch.cuda.current_device() if device.index is None else device.index
    return index


def _pieces(name: str, tensor: torch.Tensor, blocks: int) -> tuple[list[Piece], list[Any]]:
    """The pieces of one layer's blocks in the order of their addresses, and their description."""
    dimension = next((index for index in (0, 1) if tensor.dim() > index and tensor.shape[index] % blocks == 0), None)
    if dimension is None:
        raise InvalidError(
            f"the KV cache of {name} has shape {tuple(tensor.shape)}: no dimension counts its {blocks} blocks"
        )
    size, strides = tensor.element_size(), [stride * tensor.element_size() for stride in tensor.stride()]
    # A block may be several blocks of the attention kernel, end to end.
    split = tensor.shape[dimension] // blocks
    inner = [(split, strides[dimension])]
    inner += [(tensor.shape[index], strides[index]) for index in range(tensor.dim()) if index != dimension]
    inner = sorted((extent for extent in inner if extent[0] > 1), key=lambda extent: -extent[1])
    run = size
    while inner and inner[-1][1] == run:
        run *= inner.pop()[0]
    offsets = [sum(place) for place in product(*(range(0, count * step, step) for count, step in inner))]
    stride = strides[dimension] * split
    pieces = [(tensor.data_ptr() + offset, stride, run) for offset in offsets]
    shape = [extent for index, extent in enumerate(tensor.shape) if index != dimension]
    order = [index for index in range(tensor.dim()) if index != dimension]
    order.sort(key=lambda index: -strides[index])
    return pieces, [str(tensor.dtype), split, shape, order, run, math.prod(shape) * split * size]


def _summary(described: list[list[Any]]) -> str:
    """Short enough to read, long enough to tell layouts apart."""
    name, dtype, split, shape, order, _, length = described[0]
    digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]
    return (
        f"{len(described)} layers from {name}, each {length} bytes a block: "
        f"{dtype} {split}x{shape} in order {order} ({digest})"
    )
