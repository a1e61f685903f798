"""A request that has blocks, as the scheduler's side knows it."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from .messages import Load
from .sessions import Origin

#: vLLM's block that stands for "not needed".
NULL_BLOCK = 0


@dataclass
class Tracked:
    """A request that has blocks."""

    request: Any
    #: Block tables, one for each KV group of the engine.
    tables: list[list[int]] = field(default_factory=list)
    #: Number of tokens when its tables were last searched for blocks behind a window.
    passed: int = 0
    #: Hashed blocks that were offered to the pool, or need not be.
    offered: int = 0
    #: Hashed blocks that came from the pool.
    loaded: range = range(0)
    #: The load under way, whose blocks are still empty.
    load: Load | None = None
    #: Number of steps when it was given its blocks; -1 without blocks.
    given_after: int = -1
    #: The step that proves the content of all its blocks.
    proven_from: int = 0
    #: Whether it shares blocks with a request that must compute them anew; vLLM does not announce when it has.
    tainted: bool = False
    #: Where in a session it belongs, if it says so.
    origin: Origin | None = None

    def blocks(self) -> set[int]:
        return {block for table in self.tables for block in table if block != NULL_BLOCK}

    def first_of(self, wanted: Set[int]) -> int | None:
        """The first place in its tables with one of these blocks."""
        firsts = (place for table in self.tables for place, block in enumerate(table) if block in wanted)
        return next(firsts, None)
