"""Unproven blocks beside other connectors of a MultiConnector: blocks whose content may be wrong.

Another connector's load may run during the step in which a request begins, and vLLM hears of its outcome only
afterwards. Meanwhile other requests may find those blocks, and blocks computed from them, in the engine's cache.
"""

from collections.abc import Iterable, Sequence

from .tracked import NULL_BLOCK, Tracked


class Unproven:
    """Requests with unproven blocks, until vLLM has handled the step's outcome: then the blocks are right or named."""

    def __init__(self, steps_at_once: int) -> None:
        self._steps_at_once = steps_at_once
        #: Each with the step that proves its blocks. An entry stays when its request ends or gives its blocks back.
        self._requests: list[tuple[int, Tracked]] = []

    def requests(self) -> Iterable[Tracked]:
        return (tracked for _, tracked in self._requests)

    def note(self, step: int, begun: Sequence[tuple[Tracked, bool]]) -> None:
        """Notes the requests that begin with this step, and whether another connector fills blocks of theirs in it."""
        self._requests = [(until, tracked) for until, tracked in self._requests if until > step]
        self._requests += [(step + self._steps_at_once, tracked) for tracked, is_filled in begun if is_filled]
        if not self._requests:
            return
        known_from: dict[int, int] = {}
        for until, tracked in self._requests:
            _raise(known_from, tracked.blocks(), until)
        for tracked, _ in begun:
            blocks = tracked.blocks()
            tracked.proven_from = max((known_from.get(block, 0) for block in blocks), default=0)
            if tracked.proven_from:
                # It computes blocks from those, and a third request may share only these.
                self._requests.append((tracked.proven_from, tracked))
                _raise(known_from, blocks, tracked.proven_from)


def _raise(known_from: dict[int, int], blocks: Iterable[int], until: int) -> None:
    for block in blocks:
        known_from[block] = max(until, known_from.get(block, 0))


def spoiled(invalid: set[int], requests: Iterable[Tracked]) -> set[int]:
    """The blocks that could not be filled, and all blocks computed from them."""
    wrong = set(invalid)
    tables = [table for tracked in requests for table in tracked.tables]
    before = 0
    while len(wrong) > before:
        before = len(wrong)
        for table in tables:
            first = next((place for place, block in enumerate(table) if block in wrong), None)
            if first is not None:
                wrong.update(block for block in table[first:] if block != NULL_BLOCK)
    return wrong
