"""Host memory that callers ask for by address, and pools of it."""

import ctypes
import mmap
import threading
import time
from types import TracebackType
from typing import Any, Self


class HostMemory:
    """Anonymous memory in pages, by address."""

    def __init__(self) -> None:
        self._pieces: dict[int, mmap.mmap] = {}
        self._lock = threading.Lock()

    def alloc(self, size: int) -> int:
        """The address of ``size`` bytes, or 0 if there are none to be had."""
        try:
            piece = mmap.mmap(-1, size)
        except (OSError, ValueError, OverflowError):
            return 0
        address = ctypes.addressof(ctypes.c_char.from_buffer(piece))
        with self._lock:
            self._pieces[address] = piece
        return address

    def free(self, address: int) -> int:
        """Gives the memory back; -600 if it was not taken here."""
        with self._lock:
            piece = self._pieces.pop(address, None)
        # Closing fails while somebody still looks at the bytes; they go with the last look.
        return 0 if piece is not None else -600


class MooncakeHostMemAllocator(HostMemory):
    """Host memory for an engine's own buffers."""


class BufferLease:
    """A registered buffer, until it is released."""

    def __init__(self, pool: "BufferPool", address: int, size: int, room: int) -> None:
        self._pool, self.ptr, self.size, self._room = pool, address, size, room
        self._released = False

    @property
    def buffer(self) -> memoryview:
        return memoryview((ctypes.c_char * self.size).from_address(self.ptr)).cast("B")

    def release(self) -> None:
        if not self._released:
            self._released = True
            self._pool._take_back(self.ptr, self._room)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class BufferPool:
    """Registered buffers that are used again: sizes are rounded up to powers of two."""

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
        self._store, self._max_bytes, self._smallest = store, max_bytes, min_size_class
        self._largest, self._block, self._timeout = max_size_class, block_on_exhaustion, default_timeout
        self._max_regions = max_regions
        self._memory = HostMemory()
        self._free: dict[int, list[int]] = {}
        self._rooms: dict[int, int] = {}
        self._changed = threading.Condition()
        self._closed = False
        if prewarm_size is not None:
            self.prewarm(prewarm_size, prewarm_count)

    def acquire(self, size: int, block: bool | None = None, timeout: float | None = None) -> BufferLease:
        """A buffer of ``size`` bytes. Raises ``TimeoutError`` or ``MemoryError`` when there is none to be had."""
        room = self._room_for(size)
        block = self._block if block is None else block
        timeout = self._timeout if timeout is None else timeout
        until = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            while True:
                if self._closed:
                    raise RuntimeError("the buffer pool is closed")
                address = self._take(room)
                if address:
                    return BufferLease(self, address, size, room)
                if not block:
                    raise MemoryError(f"no buffer of {size} bytes is free")
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"no buffer of {size} bytes came free in time")
                self._changed.wait(left)

    buffer = acquire

    def prewarm(self, size: int, count: int) -> None:
        leases = [self.acquire(size, block=False) for _ in range(count)]
        for lease in leases:
            lease.release()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            for address in self._rooms:
                self._store.unregister_buffer(address)
                self._memory.free(address)
            self._rooms.clear()
            self._free.clear()
            self._changed.notify_all()

    def _room_for(self, size: int) -> int:
        if size <= 0 or (self._largest is not None and size > self._largest):
            limit = "" if self._largest is None else f" to {self._largest}"
            raise ValueError(f"size is {size}: allowed are bytes from 1{limit}")
        return max(self._smallest, 1 << (size - 1).bit_length())

    def _take(self, room: int) -> int:
        free = self._free.get(room)
        if free:
            return free.pop()
        full = self._max_bytes and sum(self._rooms.values()) + room > self._max_bytes
        if full or (self._max_regions is not None and len(self._rooms) >= self._max_regions):
            return 0
        address = self._memory.alloc(room)
        if address and self._store.register_buffer(address, room) == 0:
            self._rooms[address] = room
            return address
        self._memory.free(address)
        return 0

    def _take_back(self, address: int, room: int) -> None:
        with self._changed:
            if not self._closed:
                self._free.setdefault(room, []).append(address)
                self._changed.notify()


RegisteredBufferPool = BufferPool
RegisteredBufferLease = BufferLease
