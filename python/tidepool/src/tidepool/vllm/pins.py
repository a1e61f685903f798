"""Pins: blocks that are being saved stay in place.

A reference in vLLM's own block pool keeps each block from being reused until every worker has reported its save. The
request may meanwhile end, be preempted or aborted, or slide its window on.
"""

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: Seconds after which a save under way is slow, and no request should wait for it.
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
        #: Number of saves that hold a block, by block number: requests with the same prefix may offer it at once.
        self._holds: Counter[int] = Counter()
        #: A quarter of the engine's memory: saves beyond it wait, so that a slow pool never starves requests.
        self._most: int = max(1, block_pool.num_gpu_blocks // 4)

    def has_room(self, *, is_last: bool = False) -> bool:
        """Whether a save may begin. A request's last save cannot wait for a step, and so has twice the room."""
        return len(self._holds) < (2 * self._most if is_last else self._most)

    def is_empty(self) -> bool:
        return not self._pins

    def give_back_soon(self) -> bool:
        """Whether a block is about to be free: only young saves hold it."""
        now = time.monotonic()
        young = (pin for pin in self._pins.values() if now - pin.since < _SOON)
        return any(block.ref_cnt == self._holds[block.block_id] for pin in young for block in pin.blocks)

    def hold(self, job: int, block_ids: Iterable[int], events: list[Any]) -> None:
        blocks = [self._block_pool.blocks[block_id] for block_id in dict.fromkeys(block_ids)]
        self._block_pool.touch(blocks)
        self._pins[job] = Pin(blocks, self._workers, events, time.monotonic())
        self._holds.update(block.block_id for block in blocks)

    def release(self, saved: dict[int, int], incomplete: set[int]) -> list[Any]:
        """Takes the workers' reports. Returns the events of saves that have ended and stored all blocks."""
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
        """Takes blocks out of vLLM's prefix cache: new requests do not find them; requests that have them keep them."""
        self._block_pool.evict_blocks(block_ids)

    def release_all(self) -> None:
        """Releases all blocks."""
        self.release({job: pin.workers_left for job, pin in self._pins.items()}, set(self._pins))
