"""The store for asyncio: every call as ``async_*``, run by threads."""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from mooncake.store import MooncakeDistributedStore


class MooncakeDistributedStoreAsync(MooncakeDistributedStore):
    """A store whose calls are also coroutines: ``async_put`` for ``put``, and so on."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("async_"):
            call = getattr(self, name.removeprefix("async_"))
            return functools.partial(asyncio.to_thread, call)
        return super().__getattr__(name)
