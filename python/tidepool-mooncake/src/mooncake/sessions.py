"""Blocks that are written or read in many calls, layer by layer."""

import copy
import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tidepool._native import listed

from mooncake.kinds import ReplicateConfig, refusal
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
    store: "MooncakeDistributedStore",
    keys: Sequence[str],
    all_ptrs: Sequence[Sequence[int]],
    all_sizes: Sequence[Sequence[int]],
    all_offsets: Sequence[Sequence[int]],
    one: Callable[[bytes, list[int], list[int], list[int]], int],
) -> list[int]:
    """The answers of ``one`` for each key and the addresses, sizes and offsets of its pieces."""
    names, ptrs, sizes = store._names(keys), store._numbers(all_ptrs), store._numbers(all_sizes)
    offsets = [[check_number("an offset", offset) for offset in some] for some in listed(all_offsets, "offsets", 2)]
    if not len(names) == len(ptrs) == len(sizes) == len(offsets):
        return [_INVALID_PARAMS] * len(names)
    return [one(*item) for item in zip(names, ptrs, sizes, offsets, strict=True)]


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
    """Unfinished blocks: gathered here and put whole at the end, so that no reader sees half a block."""

    def __init__(self) -> None:
        self._open: dict[bytes, tuple[bytearray, ReplicateConfig]] = {}
        self._lock = threading.Lock()

    def start(
        self, store: "MooncakeDistributedStore", keys: Sequence[str], sizes: Sequence[int], config: ReplicateConfig
    ) -> list[int]:
        names = store._names(keys)
        sizes = [check_number("size", size) for size in listed(sizes, "sizes")]
        code = refusal(config, len(names))
        if len(names) != len(sizes) or not store._is_set_up():
            return [_INVALID_PARAMS] * len(names)
        if code:
            return [code] * len(names)
        # A session keeps its own copy, which the caller cannot change.
        config = copy.deepcopy(config)
        held = store.batch_is_exist(names)
        capacities = [capacity for _, capacity in store._segments()]
        if not capacities and not store._master_answers():
            return [_RPC_FAIL] * len(names)
        each = enumerate(zip(names, sizes, held, strict=True))
        return [
            _EXISTS if there > 0 else self._start(name, size, config.for_key(index), capacities)
            for index, (name, size, there) in each
        ]

    def _start(self, name: bytes, size: int, config: ReplicateConfig, capacities: Sequence[int]) -> int:
        if not name or size == 0:
            return _INVALID_PARAMS
        if len(name) > _LONGEST_KEY:
            return _INVALID_KEY
        with self._lock:
            if name in self._open:
                return _INVALID_PARAMS
            # Blocks that no segment could take at the end, alone or together, are not begun.
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
        def one(name: bytes, *pieces: Sequence[int]) -> int:
            with self._lock:
                block, _ = self._open.get(name, (None, None))
            if block is None or not _fit(store, len(block), *pieces):
                return _INVALID_PARAMS
            start = ctypes.addressof(ctypes.c_char.from_buffer(block))
            for ptr, size, offset in zip(*pieces, strict=True):
                ctypes.memmove(start + offset, ptr, size)
            return sum(pieces[1])

        return _of_each(store, keys, all_ptrs, all_sizes, all_offsets, one)

    def end(self, store: "MooncakeDistributedStore", keys: Sequence[str]) -> list[int]:
        return [self._end(store, name) for name in store._names(keys)]

    def _end(self, store: "MooncakeDistributedStore", name: bytes) -> int:
        with self._lock:
            block, config = self._open.pop(name, (None, None))
        if block is None or config is None:
            return _INVALID_PARAMS
        return store._put_bytes([name], [block], config)[0]

    def revoke(self, store: "MooncakeDistributedStore", keys: Sequence[str]) -> list[int]:
        names = store._names(keys)
        with self._lock:
            return [0 if self._open.pop(name, None) else _INVALID_PARAMS for name in names]

    def clear(self) -> None:
        with self._lock:
            self._open.clear()


class GetSessions:
    """Blocks that are read in many calls: held in place from the start of a session to its end."""

    def __init__(self) -> None:
        self._open: dict[bytes, Any] = {}
        self._lock = threading.Lock()

    def start(self, store: "MooncakeDistributedStore", keys: Sequence[str]) -> list[int]:
        names = store._names(keys)
        handles = store.batch_get_buffer(names)
        with self._lock:
            for name, handle in zip(names, handles, strict=True):
                if handle is not None:
                    self._open[name] = handle
        return [_NOT_FOUND if handle is None else 0 for handle in handles]

    def read(
        self,
        store: "MooncakeDistributedStore",
        keys: Sequence[str],
        all_ptrs: Sequence[Sequence[int]],
        all_sizes: Sequence[Sequence[int]],
        all_offsets: Sequence[Sequence[int]],
    ) -> list[int]:
        def one(name: bytes, *pieces: Sequence[int]) -> int:
            with self._lock:
                handle = self._open.get(name)
            if handle is None or not _fit(store, handle.size(), *pieces):
                return _INVALID_PARAMS
            for ptr, size, offset in zip(*pieces, strict=True):
                ctypes.memmove(ptr, handle.ptr() + offset, size)
            return sum(pieces[1])

        return _of_each(store, keys, all_ptrs, all_sizes, all_offsets, one)

    def end(self, store: "MooncakeDistributedStore", keys: Sequence[str]) -> int:
        names = store._names(keys)
        with self._lock:
            for name in names:
                self._open.pop(name, None)
        return 0

    def clear(self) -> None:
        with self._lock:
            self._open.clear()
