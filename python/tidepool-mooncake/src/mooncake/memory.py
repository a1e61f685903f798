"""Host memory that callers ask for by address."""

import ctypes
import mmap
import threading


class HostMemory:
    """Anonymous memory in pages, by address."""

    def __init__(self) -> None:
        self._pieces: dict[int, mmap.mmap] = {}
        self._lock = threading.Lock()

    def alloc(self, size: int) -> int:
        """The address of ``size`` bytes, or 0 if they cannot be allocated."""
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
        # Closing fails while views of the bytes exist; the last view frees them.
        return 0 if piece is not None else -600


class MooncakeHostMemAllocator(HostMemory):
    """Host memory for an engine's own buffers."""


def bind_to_numa_node(node: int) -> None:
    """Does nothing: memory lies where its segment was started."""


def get_alloc_func_addr() -> int:
    """The address of a function that allocates host memory: the C library's ``malloc``."""
    return _address_of("malloc")


def get_free_func_addr() -> int:
    """The address of the function that takes it back: the C library's ``free``."""
    return _address_of("free")


def _address_of(function: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(None), function), ctypes.c_void_p).value or 0
