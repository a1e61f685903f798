"""Waiting no longer than is allowed for what has no bound of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

_R = TypeVar("_R")


def within(seconds: float, work: Callable[[], _R]) -> _R:
    """What ``work`` returns or raises; ``TimeoutError`` when that takes longer, and it goes on by itself."""
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
