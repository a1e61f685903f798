"""Blocks that are written or read in many calls, layer by layer."""

import copy
import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mooncake.kinds import ReplicateConfig
from mooncake.settings import check_number

if TYPE_CHECKING:
    from mooncake.store import MooncakeDistributedStore

_NO_SPACE = -200
_INVALID_PARAMS = -600
_NOT_FOUND = -704
_EXISTS = -705
_RPC_FAIL = -900
_INVALID_KEY = -400
#: Bytes.
_LONGEST_KEY = 1024


def _of_each(
    keys: Sequence[str],
    all_ptrs: Sequence[Sequence[int]],
    all_sizes: Sequence[Sequence[int]],
    all_offsets: Sequence[Sequence[int]],
    one: Callable[..., int],
) -> list[int]:
    """What ``one`` answers for each key and the addresses, sizes and offsets of its pieces."""
    if not len(keys) == len(all_ptrs) == len(all_sizes) == len(all_offsets):
        return [_INVALID_PARAMS] * len(keys)
    for offsets in all_offsets:
        for offset in offsets:
            check_number("an offset", offset)
    return [one(*item) for item in zip(keys, all_ptrs, all_sizes, all_offsets, strict=True)]


def _name(key: str | bytes) -> bytes:
    """A text and its UTF-8 bytes are one key."""
    return key.encode() if isinstance(key, str) else key


def _fit(
    store: "MooncakeDistributedStore",
    length: int,
    ptrs: Sequence[int],
    sizes: Sequence[int],
    offsets: Sequence[int],
) -> bool:
    """Whether the pieces lie in registered memory and within a block of that length."""
    if len(offsets) != len(sizes) or not store._are_registered(ptrs, sizes):
        return False
    return all(offset + size <= length for offset, size in zip(offsets, sizes, strict=True))


class PutSessions:
    """Blocks in the making: gathered here, and put as a whole at the end, so that nobody sees half of one."""

    def __init__(self) -> None:
        self._open: dict[bytes, tuple[bytearray, ReplicateConfig]] = {}
        self._lock = threading.Lock()

    def start(
        self, store: "MooncakeDistributedStore", keys: Sequence[str], sizes: Sequence[int], config: ReplicateConfig
    ) -> list[int]:
        for size in sizes:
            check_number("size", size)
        if len(keys) != len(sizes) or not store._is_set_up():
            return [_INVALID_PARAMS] * len(keys)
        refusal = config.refusal(len(keys))
        if refusal:
            return [refusal] * len(keys)
        # A session keeps what it was begun with, whatever becomes of the caller's.
        config = copy.deepcopy(config)
        held = store.batch_is_exist(keys)
        capacities = [capacity for _, capacity in store._segments()]
        if not capacities and not store._master_answers():
            return [_RPC_FAIL] * len(keys)
        each = enumerate(zip(keys, sizes, held, strict=True))
        return [
            _EXISTS if there > 0 else self._start(key, size, config.for_key(index), capacities)
            for index, (key, size, there) in each
        ]

    def _start(self, key: str, size: int, config: ReplicateConfig, capacities: Sequence[int]) -> int:
        if not key or size == 0:
            return _INVALID_PARAMS
        name = _name(key)
        if len(name) > _LONGEST_KEY:
            return _INVALID_KEY
        with self._lock:
            if name in self._open:
                return _INVALID_PARAMS
            # What no segment could take at the end, one by one or all together, is not begun.
            gathered = sum(len(block) for block, _ in self._open.values())
            if size > max(capacities, default=0) or gathered + size > sum(capacities):
                return _NO_SPACE
            try:
                self._open[name] = (bytearray(size), config)
            except MemoryError:
                return _NO_SPACE
        return 0

    def write(
        self,
        store: "MooncakeDistributedStore",
        keys: Sequence[str],
        all_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_offsets: Sequence[Sequence[int]],
    ) -> list[int]:
        def one(key: str, *pieces: Sequence[int]) -> int:
            with self._lock:
                block, _ = self._open.get(_name(key), (None, None))
            if block is None or not _fit(store, len(block), *pieces):
                return _INVALID_PARAMS
            start = ctypes.addressof(ctypes.c_char.from_buffer(block))
            for ptr, size, offset in zip(*pieces, strict=True):
                ctypes.memmove(start + offset, ptr, size)
            return sum(pieces[1])

        return _of_each(keys, all_ptrs, all_sizes, all_offsets, one)

    def end(self, store: "MooncakeDistributedStore", keys: Sequence[str]) -> list[int]:
        return [self._end(store, key) for key in keys]

    def _end(self, store: "MooncakeDistributedStore", key: str) -> int:
        with self._lock:
            block, config = self._open.pop(_name(key), (None, None))
        return _INVALID_PARAMS if block is None or config is None else store.put(key, block, config)

    def revoke(self, keys: Sequence[str]) -> list[int]:
        with self._lock:
            return [0 if self._open.pop(_name(key), None) else _INVALID_PARAMS for key in keys]

    def clear(self) -> None:
        with self._lock:
            self._open.clear()


class GetSessions:
    """Blocks that are read in many calls: held in place from the start of a session to its end."""

    def __init__(self) -> None:
        self._open: dict[bytes, Any] = {}
        self._lock = threading.Lock()

    def start(self, store: "MooncakeDistributedStore", keys: Sequence[str]) -> list[int]:
        handles = store.batch_get_buffer(keys)
        with self._lock:
            for key, handle in zip(keys, handles, strict=True):
                if handle is not None:
                    self._open[_name(key)] = handle
        return [_NOT_FOUND if handle is None else 0 for handle in handles]

    def read(
        self,
        store: "MooncakeDistributedStore",
        keys: Sequence[str],
        all_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_offsets: Sequence[Sequence[int]],
    ) -> list[int]:
        def one(key: str, *pieces: Sequence[int]) -> int:
            with self._lock:
                handle = self._open.get(_name(key))
            if handle is None or not _fit(store, handle.size(), *pieces):
                return _INVALID_PARAMS
            for ptr, size, offset in zip(*pieces, strict=True):
                ctypes.memmove(ptr, handle.ptr() + offset, size)
            return sum(pieces[1])

        return _of_each(keys, all_ptrs, all_sizes, all_offsets, one)

    def end(self, keys: Sequence[str]) -> int:
        with self._lock:
            for key in keys:
                self._open.pop(_name(key), None)
        return 0

    def clear(self) -> None:
        with self._lock:
            self._open.clear()
