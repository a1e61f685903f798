"""Blocks that are written or read in many calls, layer by layer."""

import copy
import ctypes
import threading
from collections.abc import Sequence
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


class PutSessions:
    """Blocks in the making: gathered here, and put as a whole at the end, so that nobody sees half of one."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[bytearray, ReplicateConfig]] = {}
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
        if len(key.encode()) > _LONGEST_KEY:
            return _INVALID_KEY
        with self._lock:
            if key in self._open:
                return _INVALID_PARAMS
            # What no segment could take at the end, one by one or all together, is not begun.
            gathered = sum(len(block) for block, _ in self._open.values())
            if size > max(capacities, default=0) or gathered + size > sum(capacities):
                return _NO_SPACE
            try:
                self._open[key] = (bytearray(size), config)
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
        if not len(keys) == len(all_ptrs) == len(all_sizes) == len(all_offsets):
            return [_INVALID_PARAMS] * len(keys)
        return [self._write(store, *item) for item in zip(keys, all_ptrs, all_sizes, all_offsets, strict=True)]

    def _write(
        self,
        store: "MooncakeDistributedStore",
        key: str,
        ptrs: Sequence[int],
        sizes: Sequence[int],
        offsets: Sequence[int],
    ) -> int:
        with self._lock:
            block, _ = self._open.get(key, (None, None))
        fits = len(offsets) == len(sizes) and store._are_registered(ptrs, sizes)
        if block is None or not fits or any(o < 0 or o + s > len(block) for o, s in zip(offsets, sizes, strict=True)):
            return _INVALID_PARAMS
        target = memoryview(block)
        for ptr, size, offset in zip(ptrs, sizes, offsets, strict=True):
            source: Any = (ctypes.c_char * size).from_address(ptr)
            target[offset : offset + size] = memoryview(source).cast("B")
        return sum(sizes)

    def end(self, store: "MooncakeDistributedStore", keys: Sequence[str]) -> list[int]:
        return [self._end(store, key) for key in keys]

    def _end(self, store: "MooncakeDistributedStore", key: str) -> int:
        with self._lock:
            block, config = self._open.pop(key, (None, None))
        return _INVALID_PARAMS if block is None or config is None else store.put(key, block, config)

    def revoke(self, keys: Sequence[str]) -> list[int]:
        with self._lock:
            return [0 if self._open.pop(key, None) else _INVALID_PARAMS for key in keys]

    def clear(self) -> None:
        with self._lock:
            self._open.clear()


class GetSessions:
    """Blocks that are read in many calls: held in place from the start of a session to its end."""

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}
        self._lock = threading.Lock()

    def start(self, store: "MooncakeDistributedStore", keys: Sequence[str]) -> list[int]:
        handles = store.batch_get_buffer(keys)
        with self._lock:
            for key, handle in zip(keys, handles, strict=True):
                if handle is not None:
                    self._open[key] = handle
        return [_NOT_FOUND if handle is None else 0 for handle in handles]

    def read(
        self,
        store: "MooncakeDistributedStore",
        keys: Sequence[str],
        all_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_offsets: Sequence[Sequence[int]],
    ) -> list[int]:
        if not len(keys) == len(all_ptrs) == len(all_sizes) == len(all_offsets):
            return [_INVALID_PARAMS] * len(keys)
        return [self._read(store, *item) for item in zip(keys, all_ptrs, all_sizes, all_offsets, strict=True)]

    def _read(
        self,
        store: "MooncakeDistributedStore",
        key: str,
        ptrs: Sequence[int],
        sizes: Sequence[int],
        offsets: Sequence[int],
    ) -> int:
        with self._lock:
            handle = self._open.get(key)
        if handle is None:
            return _INVALID_PARAMS
        if len(offsets) != len(sizes) or not store._are_registered(ptrs, sizes):
            return _INVALID_PARAMS
        length = handle.size()
        if any(offset < 0 or size < 0 or offset + size > length for offset, size in zip(offsets, sizes, strict=True)):
            return _INVALID_PARAMS
        for ptr, size, offset in zip(ptrs, sizes, offsets, strict=True):
            ctypes.memmove(ptr, handle.ptr() + offset, size)
        return sum(sizes)

    def end(self, keys: Sequence[str]) -> int:
        with self._lock:
            for key in keys:
                self._open.pop(key, None)
        return 0

    def clear(self) -> None:
        with self._lock:
            self._open.clear()
