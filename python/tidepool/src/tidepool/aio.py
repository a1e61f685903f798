"""The pool for asyncio: every call of :class:`Pool` as a coroutine."""

import asyncio
import functools
import operator
import os
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, TypeVar

from tidepool._native import Pool
from tidepool.errors import ClosedError, ForkedError, InvalidError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _coroutine(
    method: Callable[Concatenate[Pool, _P], _R],
) -> Callable[Concatenate["AsyncPool", _P], Coroutine[Any, Any, _R]]:
    async def call(self: "AsyncPool", /, *arguments: _P.args, **settings: _P.kwargs) -> _R:
        if self._closed:
            raise ClosedError("used after close()")
        if os.getpid() != self._process:
            # The threads are the parent's: no thread here would ever begin the call.
            raise ForkedError("made before a fork, which threads do not survive: connect again in the child")
        work = functools.partial(method, self.pool, *arguments, **settings)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    call.__name__ = method.__name__
    call.__qualname__ = f"AsyncPool.{method.__name__}"
    call.__doc__ = f"As :meth:`Pool.{method.__name__}`."
    return call


def _some(threads: int) -> int:
    if operator.index(threads) < 1:
        raise InvalidError(f"threads is {threads}: allowed is 1 or more")
    return threads


class AsyncPool:
    """A :class:`Pool` whose calls are coroutines, run by threads of its own that hold no lock of the interpreter.

    >>> async def example():
    ...     async with await tidepool.AsyncPool.connect([catalog.address], dir=scratch) as pool:
    ...         await pool.put("async", b"awaited")
    ...         return await pool.get("async")
    >>> asyncio.run(example())
    b'awaited'

    Cancelling a coroutine ends it at once. A call that has not begun never begins. A call that has begun goes on to its
    end: the buffers that it reads or fills must stay unchanged until then.
    """

    def __init__(self, pool: Pool, threads: int = 4) -> None:
        self.pool = pool
        self._threads = ThreadPoolExecutor(_some(threads), thread_name_prefix="tidepool")
        self._closed = False
        self._process = os.getpid()

    @classmethod
    async def connect(cls, *arguments: Any, threads: int = 4, **settings: Any) -> "AsyncPool":
        """As :meth:`Pool.connect`; ``threads`` calls run at once, and further calls wait."""
        _some(threads)
        connect = functools.partial(Pool.connect, *arguments, **settings)
        return cls(await asyncio.to_thread(connect), threads)

    copy_to = _coroutine(Pool.copy_to)
    describe = _coroutine(Pool.describe)
    drain = _coroutine(Pool.drain)
    exists = _coroutine(Pool.exists)
    exists_many = _coroutine(Pool.exists_many)
    get = _coroutine(Pool.get)
    get_into = _coroutine(Pool.get_into)
    get_many = _coroutine(Pool.get_many)
    get_many_into = _coroutine(Pool.get_many_into)
    list_blocks = _coroutine(Pool.list_blocks)
    match_prefix = _coroutine(Pool.match_prefix)
    move_to = _coroutine(Pool.move_to)
    nodes = _coroutine(Pool.nodes)
    put = _coroutine(Pool.put)
    put_many = _coroutine(Pool.put_many)
    remove = _coroutine(Pool.remove)
    remove_all = _coroutine(Pool.remove_all)
    remove_many = _coroutine(Pool.remove_many)
    remove_matching = _coroutine(Pool.remove_matching)
    view = _coroutine(Pool.view)

    def stats(self) -> dict[str, int]:
        """As :meth:`Pool.stats`, which waits for nothing."""
        return self.pool.stats()

    async def close(self) -> None:
        """Ends the connection once the calls under way have finished; a use of it raises :class:`ClosedError`."""
        self._closed = True
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        self.pool.close()

    async def __aenter__(self) -> "AsyncPool":
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()
