"""A time limit for work that has none of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

_R = TypeVar("_R")


def within(seconds: float, work: Callable[[], _R]) -> _R:
    """Returns or raises as ``work`` does; ``TimeoutError`` if that takes longer, while ``work`` goes on by itself."""
    end: Future[_R] = Future()

    def run() -> None:
        try:
            end.set_result(work())
        except Exception as error:
            end.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    wait([end], seconds)
    if not end.done():
        raise TimeoutError(f"no whole answer within {seconds} s")
    return end.result()
