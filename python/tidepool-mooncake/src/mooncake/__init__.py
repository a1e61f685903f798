"""``mooncake.store`` on a Tidepool pool.

This package takes the place of Mooncake's own: engines that import ``mooncake.store`` use a Tidepool pool without a
change. Importing a missing part raises an error that names the reason.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from mooncake import others

__version__ = "0.3.13"

_INSTEAD = {
    "engine": "its TransferEngine moves memory between two engines, which a pool does not; for sharing KV blocks use"
    " tidepool.vllm.TidepoolConnector, or vLLM's MooncakeStoreConnector on mooncake.store",
    "mooncake_store_service": "start 'mooncake_client --master_server_address=... --global_segment_size=...' instead",
    "http_metadata_server": "nodes find each other through the master: leave it away, and say P2PHANDSHAKE",
}


class _Absent(importlib.abc.MetaPathFinder):
    """Explains why a module of Mooncake's is missing. Comes last, after all other finders."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != __name__ or not name:
            return None
        if _is_only_asked():
            return None
        why = _INSTEAD.get(name, "Tidepool provides mooncake.store and mooncake.async_store")
        raise ModuleNotFoundError(f"{fullname} is not part of tidepool-mooncake: {why}", name=fullname)


def __getattr__(name: str) -> Any:
    if name in ("BufferPool", "RegisteredBufferPool"):
        return importlib.import_module("mooncake.store").BufferPool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _is_only_asked() -> bool:
    """Whether the finder was called by ``importlib.util.find_spec``, and not for ``import`` or ``python -m``."""
    caller = sys._getframe(3)
    is_question = caller.f_code is importlib.util.find_spec.__code__
    return is_question and caller.f_back is not None and caller.f_back.f_globals.get("__name__") != "runpy"


sys.meta_path.append(_Absent())
others.warn()
