"""A request that has blocks, as the scheduler's side knows it."""

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from .messages import Load

#: vLLM's block that stands for "not needed".
NULL_BLOCK = 0


@dataclass
class Tracked:
    """A request that has blocks."""

    request: Any
    #: Block tables, one for each KV group of the engine.
    tables: list[list[int]] = field(default_factory=list)
    #: Tokens after which its tables were last looked through for blocks behind a window.
    passed: int = 0
    #: Hashed blocks that were offered to the pool, or need not be.
    offered: int = 0
    #: Hashed blocks that came from the pool.
    loaded: range = range(0)
    #: The load under way: its blocks hold nothing yet.
    load: Load | None = None
    #: After how many steps it was given its blocks; -1: it has none.
    given_after: int = -1
    #: The step from which on it is known that all its blocks hold what they should.
    proven_from: int = 0
    #: Whether it shares blocks with a request that is to compute them anew: nobody says when that has happened.
    tainted: bool = False

    def blocks(self) -> set[int]:
        return {block for table in self.tables for block in table if block != NULL_BLOCK}

    def first_of(self, wanted: Set[int]) -> int | None:
        """The first place in its tables that has one of these blocks."""
        firsts = (place for table in self.tables for place, block in enumerate(table) if block in wanted)
        return next(firsts, None)
