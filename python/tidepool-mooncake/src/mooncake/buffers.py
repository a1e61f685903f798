"""Registered buffers that are lent and used again."""

import contextlib
import ctypes
import mmap
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from tidepool._native import LeasedBuffer, MooncakeStore

from mooncake.settings import check_number

_PAGE = mmap.PAGESIZE
#: Seconds between two checks that the store is still open.
_SLICE = 0.2


class BufferLease(LeasedBuffer):
    """A registered buffer, until it is released, which is refused while views of it exist."""

    def __init__(self, pool: "BufferPool", memory: mmap.mmap, address: int, size: int) -> None:
        self._pool, self._memory = pool, memory

    @property
    def buffer(self) -> memoryview:
        return memoryview(self)

    def release(self) -> None:
        if self._give_up():
            self._pool._take_back(self._memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        # Views would have kept it, except when the interpreter ends.
        with contextlib.suppress(RuntimeError):
            self.release()


class BufferPool:
    """Registered buffers that are used again.

    It has ``max_bytes`` at most, or no bound if that is zero, and takes memory as it needs it. ``alignment``,
    ``max_size_class`` and ``max_regions`` are about how Mooncake cuts up its local buffer, which is not needed here.
    """

    def __init__(
        self,
        store: Any,
        max_bytes: int = 0,
        min_size_class: int = 65536,
        max_size_class: int | None = None,
        alignment: int = 8 << 20,
        block_on_exhaustion: bool = True,
        default_timeout: float | None = None,
        max_regions: int | None = None,
        prewarm_size: int | None = None,
        prewarm_count: int = 0,
    ) -> None:
        self._closed = True
        for name, number in (("max_bytes", max_bytes), ("min_size_class", min_size_class), ("alignment", alignment)):
            check_number(name, number)
        if min_size_class == 0 or alignment == 0:
            raise RuntimeError("min_size_class and alignment must be positive")
        if alignment & (alignment - 1) or alignment < ctypes.sizeof(ctypes.c_void_p):
            raise RuntimeError("alignment must be a power of two and at least sizeof(void*)")
        if not isinstance(store, MooncakeStore | None):
            raise RuntimeError("BufferPool store parameter must be a MooncakeDistributedStore")
        self._store = _set_up(store)
        self._max_bytes, self._smallest = max_bytes, min_size_class
        self._block, self._timeout = block_on_exhaustion, default_timeout
        #: Reentrant: a lease may end wherever Python drops its last reference.
        self._changed = threading.Condition()
        self._free: list[mmap.mmap] = []
        self._lent = 0
        self._bytes = 0
        self._closed = False
        if prewarm_size is not None:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(self, size: int, block: bool | None = None, timeout: float | None = None) -> BufferLease:
        """A buffer of ``size`` bytes. Raises ``RuntimeError`` if the pool has no room for one."""
        check_number("size", size)
        block = self._block if block is None else block
        timeout = self._timeout if timeout is None else timeout
        if timeout is not None and timeout < 0:
            raise RuntimeError("timeout must be non-negative")
        until = None if timeout is None else time.monotonic() + timeout
        room = self._room_for(size)
        with self._changed:
            while True:
                self._check_open()
                memory = self._take(room)
                if memory is not None:
                    self._lent += 1
                    return BufferLease(self, memory, _address(memory), size)
                if not block:
                    raise RuntimeError("buffer pool is exhausted")
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise RuntimeError("timed out waiting for buffer")
                # In slices: closing the store wakes no waiting thread.
                self._changed.wait(_SLICE if left is None else min(left, _SLICE))

    buffer = acquire

    def prewarm(self, size: int, count: int) -> None:
        """Has buffers ready, as many of them as there is room for."""
        check_number("size", size)
        check_number("count", count)
        leases = []
        try:
            for _ in range(count):
                leases.append(self.acquire(size, block=False))
        except RuntimeError:
            self._check_open()
        for lease in leases:
            lease.release()

    def close(self) -> None:
        with self._changed:
            if self._lent and not self._closed:
                raise RuntimeError("cannot close buffer pool with active leases")
            self._closed = True
            self._drop(list(self._free))
            self._changed.notify_all()

    def __del__(self) -> None:
        # Leases would have kept it, except when the interpreter ends.
        with contextlib.suppress(RuntimeError):
            if not self._closed:
                self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("buffer pool is closed")
        _set_up(self._store)

    def _room_for(self, size: int) -> int:
        """The bytes of the pool that a buffer takes."""
        if self._max_bytes and size > self._max_bytes:
            raise RuntimeError("requested buffer size exceeds pool capacity")
        room = -(-max(size, self._smallest) // _PAGE) * _PAGE
        return min(room, max(self._max_bytes, size, 1)) if self._max_bytes else room

    def _take(self, room: int) -> mmap.mmap | None:
        """A buffer of that room: a free one that is not much larger, or a new one that replaces free ones."""
        fitting = [memory for memory in self._free if room <= len(memory) <= 2 * room]
        if fitting:
            memory = min(fitting, key=len)
            self._free.remove(memory)
            if not self._store._are_registered([_address(memory)], [len(memory)]):
                # The store was closed since, which forgets all buffers, and set up again.
                self._register(memory)
            return memory
        if self._max_bytes:
            while self._bytes + room > self._max_bytes and self._free:
                self._drop([max(self._free, key=len)])
            if self._bytes + room > self._max_bytes:
                return None
        return self._map(room)

    def _map(self, room: int) -> mmap.mmap:
        try:
            memory = mmap.mmap(-1, room)
        except (OSError, ValueError, OverflowError) as error:
            raise RuntimeError(f"requested buffer size exceeds pool capacity: {room} bytes: {error}") from error
        self._register(memory)
        self._bytes += room
        return memory

    def _register(self, memory: mmap.mmap) -> None:
        if self._store.register_buffer(_address(memory), len(memory)) != 0:
            raise RuntimeError(f"a buffer of {len(memory)} bytes could not be registered")

    def _drop(self, buffers: Iterable[mmap.mmap]) -> None:
        for memory in buffers:
            self._store.unregister_buffer(_address(memory))
            self._free.remove(memory)
            self._bytes -= len(memory)

    def _take_back(self, memory: mmap.mmap) -> None:
        with self._changed:
            self._lent -= 1
            self._free.append(memory)
            self._changed.notify_all()


def _address(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _set_up(store: MooncakeStore | None) -> MooncakeStore:
    if store is None or not store._is_set_up():
        raise RuntimeError("MooncakeDistributedStore is not initialized")
    return store


RegisteredBufferPool = BufferPool
RegisteredBufferLease = BufferLease

__all__ = ["BufferLease", "BufferPool", "RegisteredBufferLease", "RegisteredBufferPool"]
