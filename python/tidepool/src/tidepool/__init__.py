"""A shared pool of attention state (KV cache) for LLM serving.

Engines put the blocks that they computed; any engine gets them back. Start with :meth:`Pool.connect`. A failure while
reading is a miss (``None``), never wrong bytes.
"""

from tidepool._native import Catalog, Copy, Match, Node, NodeInfo, Pool, Removed, Stored, View
from tidepool.aio import AsyncPool
from tidepool.errors import (
    ClosedError,
    DeadlineError,
    ForkedError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    TidepoolError,
    UnreachableError,
)

__all__ = [
    "AsyncPool",
    "Catalog",
    "ClosedError",
    "Copy",
    "DeadlineError",
    "ForkedError",
    "InvalidError",
    "Match",
    "NoSpaceError",
    "Node",
    "NodeInfo",
    "NotFoundError",
    "Pool",
    "Removed",
    "Stored",
    "TidepoolError",
    "UnreachableError",
    "View",
]
