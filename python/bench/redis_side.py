"""The same work as ``side.py``, done by Redis: pipelined commands over TCP, answers read by its C parser."""

import sys
import time

import redis
from redis.utils import HIREDIS_AVAILABLE
from tasks import key, serve

assert HIREDIS_AVAILABLE, "without its C parser Redis would be measured at less than it can do"


class Side:
    def __init__(self, port: int) -> None:
        self.store = redis.Redis("127.0.0.1", port)
        self.store.ping()

    def fill(self, prefix: str, size: int, count: int) -> None:
        for number in range(count):
            self.store.set(key(prefix, number), block(size, number))

    def get(self, prefix: str, size: int, count: int, batch: int, calls: int, start: int) -> float:
        """Seconds for ``calls`` pipelined reads of ``batch`` blocks each, with every byte verified afterwards."""
        rounds = [[(start + call * batch + n) % count for n in range(batch)] for call in range(calls)]
        spent = 0.0
        for numbers in rounds:
            names = [key(prefix, number) for number in numbers]
            before = time.perf_counter()
            pipe = self.store.pipeline(transaction=False)
            for name in names:
                pipe.get(name)
            read = pipe.execute()
            spent += time.perf_counter() - before
            for number, bytes_read in zip(numbers, read, strict=True):
                assert bytes_read == block(size, number), "wrong bytes"
        return spent

    def put(self, prefix: str, size: int, batch: int, calls: int) -> float:
        """Seconds for ``calls`` pipelined writes of new blocks; one is read back, and all are removed afterwards."""
        values = [block(size, number) for number in range(batch)]
        names = [[key(prefix, call * batch + n) for n in range(batch)] for call in range(calls)]
        spent = 0.0
        for some in names:
            before = time.perf_counter()
            pipe = self.store.pipeline(transaction=False)
            for name, value in zip(some, values, strict=True):
                pipe.set(name, value)
            assert all(pipe.execute())
            spent += time.perf_counter() - before
        for some in names:
            assert self.store.get(some[-1]) == values[-1]
            assert self.store.delete(*some) == batch
        return spent

    def clear(self) -> int:
        return int(self.store.flushall())


_FILLINGS: dict[tuple[int, int], bytes] = {}


def block(size: int, number: int) -> bytes:
    """A block that says which it is, at both ends."""
    filling = _FILLINGS.setdefault((size, number % 251), bytes([number % 251]) * (size - 16))
    stamp = number.to_bytes(8, "little")
    return stamp + filling + stamp


if __name__ == "__main__":
    serve(Side(int(sys.argv[1])))
