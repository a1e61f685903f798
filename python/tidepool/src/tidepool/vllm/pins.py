"""Blocks that are being saved stay where they are.

A reference in vLLM's own block pool keeps each block from being reused until every worker has reported its save,
whatever becomes of the request meanwhile: it may end, be preempted or aborted, or slide its window on.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: Seconds after which a save that is still under way is a slow one, which nobody had better wait for.
_SOON = 0.25


@dataclass
class Pin:
    """The blocks of one save."""

    blocks: list[Any]
    workers_left: int
    events: list[Any]
    since: float
    incomplete: bool = False


class Pins:
    """The saves that are under way."""

    def __init__(self, block_pool: Any, workers: int) -> None:
        self._block_pool = block_pool
        self._workers = workers
        self._pins: dict[int, Pin] = {}
        #: How many saves hold a block, by its number: requests that share a prefix may offer it at the same time.
        self._holds: Counter[int] = Counter()
        #: A quarter of the engine's memory: saves beyond it wait, so that a slow pool never starves requests.
        self._most: int = max(1, block_pool.num_gpu_blocks // 4)

    def has_room(self, *, is_last: bool = False) -> bool:
        """Whether a save may begin; the last one of a request cannot wait for a step, and has twice the room."""
        return len(self._holds) < (2 * self._most if is_last else self._most)

    def is_empty(self) -> bool:
        return not self._pins

    def give_back_soon(self) -> bool:
        """Whether a block that nothing but young saves keeps from being used is about to be free."""
        now = time.monotonic()
        young = (pin for pin in self._pins.values() if now - pin.since < _SOON)
        return any(block.ref_cnt == self._holds[block.block_id] for pin in young for block in pin.blocks)

    def hold(self, job: int, block_ids: Iterable[int], events: list[Any]) -> None:
        blocks = [self._block_pool.blocks[block_id] for block_id in dict.fromkeys(block_ids)]
        self._block_pool.touch(blocks)
        self._pins[job] = Pin(blocks, self._workers, events, time.monotonic())
        self._holds.update(block.block_id for block in blocks)

    def release(self, saved: dict[int, int], incomplete: set[int]) -> list[Any]:
        """Takes in what workers report; returns the events of saves that are over and stored all."""
        events: list[Any] = []
        for job, workers in saved.items():
            pin = self._pins.get(job)
            if pin is None:
                continue
            pin.incomplete |= job in incomplete
            pin.workers_left -= workers
            if pin.workers_left <= 0:
                del self._pins[job]
                for block in pin.blocks:
                    self._holds[block.block_id] -= 1
                    if not self._holds[block.block_id]:
                        del self._holds[block.block_id]
                self._block_pool.free_blocks(reversed(pin.blocks))
                events += [] if pin.incomplete else pin.events
        return events

    def forget(self, block_ids: set[int]) -> None:
        """Takes blocks out of vLLM's prefix cache: nobody finds them there any more; who has them keeps them."""
        self._block_pool.evict_blocks(block_ids)

    def release_all(self) -> None:
        """Lets go of everything."""
        self.release({job: pin.workers_left for job, pin in self._pins.items()}, set(self._pins))
