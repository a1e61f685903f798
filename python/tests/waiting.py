"""Waiting for events: nothing else in the tests lets time pass.

``vllm/waiting.py`` is a link to this file: programs in that folder are run by a Python that finds their folder only.
"""

import time
from collections.abc import Callable
from typing import TypeVar

#: Far longer than anything takes on a busy host, in seconds.
PATIENCE = 60.0
_LOOK_EVERY = 0.002

Answer = TypeVar("Answer")


def eventually(
    what: str, found: Callable[[], Answer], *, within: float = PATIENCE, shows: Callable[[], object] | None = None
) -> Answer:
    """Waits for an event: until ``found`` answers with something true, which it returns.

    When the event does not come, the error names it, and has what ``shows`` answers then.
    """
    until = time.monotonic() + within
    while not (answer := found()):
        assert time.monotonic() < until, f"not within {within:g} s: {what}{f'; {shows()}' if shows else ''}"
        time.sleep(_LOOK_EVERY)
    return answer
