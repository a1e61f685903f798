"""One side of the comparison: a process that uses ``mooncake.store``, whoever provides it, and does what it is told.

Times are of the calls alone: filling, verifying and removing are outside.
"""

import ctypes
import sys
import time
from typing import Any

from mooncake.store import MooncakeDistributedStore
from tasks import key, serve

#: Keys that are put, or asked about, in one call while filling.
_STEP = 1024


class Memory:
    """Registered memory, touched."""

    def __init__(self, store: Any, size: int) -> None:
        self.bytes = (ctypes.c_char * size).from_buffer(bytearray(size))
        self.at, self.size = ctypes.addressof(self.bytes), size
        assert store.register_buffer(self.at, size) == 0


class Side:
    def __init__(self, master: str, segment: int) -> None:
        self.store = MooncakeDistributedStore()
        # What its documentation advises: a local buffer as large as what is under way.
        assert self.store.setup("localhost", "P2PHANDSHAKE", segment, 256 << 20, "tcp", "", master) == 0
        self.memory: dict[int, Memory] = {}

    def buffer(self, size: int) -> Memory:
        if size not in self.memory:
            self.memory[size] = Memory(self.store, size)
        return self.memory[size]

    def fill(self, prefix: str, size: int, count: int) -> None:
        """Puts ``count`` blocks that say which they are."""
        step = max(1, min(_STEP, (64 << 20) // size))
        memory = self.buffer(size * step)
        for start in range(0, count, step):
            numbers = range(start, min(start + step, count))
            for place, number in enumerate(numbers):
                ctypes.memset(memory.at + place * size, number % 251, size)
                _stamp(memory.at + place * size, size, number)
            keys = [key(prefix, number) for number in numbers]
            codes = self.store.batch_put_from(
                keys, [memory.at + n * size for n in range(len(keys))], [size] * len(keys)
            )
            assert not any(codes), codes[:5]

    def get(self, prefix: str, size: int, count: int, batch: int, calls: int, start: int) -> float:
        """Seconds for ``calls`` batched reads of ``batch`` blocks each, with every byte verified afterwards."""
        memory = self.buffer(size * batch)
        places, sizes = [memory.at + n * size for n in range(batch)], [size] * batch
        rounds = [[(start + call * batch + n) % count for n in range(batch)] for call in range(calls)]
        names = [[key(prefix, number) for number in numbers] for numbers in rounds]
        spent = 0.0
        for numbers, keys in zip(rounds, names, strict=True):
            before = time.perf_counter()
            read = self.store.batch_get_into(keys, places, sizes)
            spent += time.perf_counter() - before
            assert read == sizes, read[:5]
            for place, number in zip(places, numbers, strict=True):
                _verify(place, size, number)
        return spent

    def get_one(self, prefix: str, size: int, count: int, calls: int) -> float:
        """The median of single reads, in seconds."""
        memory = self.buffer(size)
        times = []
        for call in range(calls):
            name = key(prefix, call % count)
            before = time.perf_counter()
            read = self.store.get_into(name, memory.at, size)
            times.append(time.perf_counter() - before)
            assert read == size
            _verify(memory.at, size, call % count)
        return sorted(times)[len(times) // 2]

    def put(self, prefix: str, size: int, batch: int, calls: int, start: int = 0, stay: bool = False) -> float:
        """Seconds for ``calls`` batched writes of new blocks, named by numbers from ``start`` on.

        They are read back, and removed afterwards unless they ``stay``.
        """
        memory = self.buffer(size * batch)
        places, sizes = [memory.at + n * size for n in range(batch)], [size] * batch
        for number, place in enumerate(places):
            ctypes.memset(place, number % 251, size)
            _stamp(place, size, number)
        names = [[key(prefix, start + call * batch + n) for n in range(batch)] for call in range(calls)]
        spent = 0.0
        for keys in names:
            before = time.perf_counter()
            codes = self.store.batch_put_from(keys, places, sizes)
            spent += time.perf_counter() - before
            assert not any(codes), codes[:5]
        check = self.buffer(2 * size)
        for call in (0, calls - 1):
            assert self.store.get_into(names[call][batch - 1], check.at, size) == size
            _verify(check.at, size, batch - 1)
        if not stay:
            assert self.store.remove_by_regex(f"^{prefix}", True) == calls * batch
        return spent

    def exist(self, prefix: str, count: int, batch: int, calls: int) -> float:
        """Seconds for ``calls`` look-ups of ``batch`` keys, half of them absent."""
        spent = 0.0
        for call in range(calls):
            numbers = [(call * 7919 + n * 104729) % count for n in range(batch)]
            keys = [key(prefix, number) if n % 2 else key(prefix + "-", number) for n, number in enumerate(numbers)]
            before = time.perf_counter()
            found = self.store.batch_is_exist(keys)
            spent += time.perf_counter() - before
            assert found == [n % 2 for n in range(batch)]
        return spent

    def clear(self) -> int:
        return self.store.remove_all(True)


def _stamp(place: int, size: int, number: int) -> None:
    stamp = number.to_bytes(8, "little")
    ctypes.memmove(place, stamp, min(8, size))
    if size >= 16:
        ctypes.memmove(place + size - 8, stamp, 8)


_EXPECTED: dict[tuple[int, int], bytes] = {}


def _verify(place: int, size: int, number: int) -> None:
    """Every byte: the filling by comparison with a block of the same filling, and the stamps."""
    filling = _EXPECTED.setdefault((size, number % 251), bytes([number % 251]) * size)
    block = ctypes.string_at(place, size)
    stamp = number.to_bytes(8, "little")
    ends = 8 if size >= 16 else 0
    assert block[:8] == stamp[:size], "another block's bytes"
    assert block[8 : size - ends] == filling[8 : size - ends], "wrong bytes"
    assert not ends or block[-8:] == stamp, "another block's end"


if __name__ == "__main__":
    serve(Side(sys.argv[1], int(sys.argv[2])))
