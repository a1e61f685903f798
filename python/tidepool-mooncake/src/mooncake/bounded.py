"""Waiting no longer than is allowed for what has no bound of its own."""

import queue
import threading
from collections.abc import Callable
from typing import TypeVar

_R = TypeVar("_R")


def within(seconds: float, work: Callable[[], _R]) -> _R:
    """What ``work`` returns or raises; ``TimeoutError`` when that takes longer, and it goes on by itself."""
    ended: queue.SimpleQueue[Callable[[], _R]] = queue.SimpleQueue()

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            failure = error

            def fail() -> _R:
                raise failure

            ended.put(fail)
        else:
            ended.put(lambda: result)

    threading.Thread(target=run, daemon=True).start()
    try:
        end = ended.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no whole answer within {seconds} s") from None
    return end()
