"""Mooncake's own wheel beside this one: both bring the package ``mooncake``, and pip lays one over the other.

Whichever was installed last has its ``mooncake/__init__.py``, ``mooncake/async_store.py`` and commands in place.
``mooncake.store`` is this package's in either order: a directory is found before Mooncake's ``store.so``. So this check
runs when either of the two is imported.
"""

import importlib.metadata
import warnings
from pathlib import Path

_NAMES = ("mooncake-transfer-engine", "mooncake-transfer-engine-non-cuda", "mooncake-transfer-engine-cuda13")
_HERE = Path(__file__).parent
_said: list[str] = []


def found() -> list[str]:
    """Packages beside this one, with versions; the library itself if no package claims it."""
    known = []
    for name in _NAMES:
        try:
            known.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return known or [str(path) for path in sorted(_HERE.glob("store*.so"))]


def warn() -> None:
    """Warns once in a process: which package is installed beside, which one runs, and what to do."""
    beside = [] if _said else found()
    if not beside:
        return
    _said.extend(beside)
    warnings.warn(
        f"{', '.join(beside)} is installed beside tidepool-mooncake, and both bring the package 'mooncake':"
        f" mooncake.store is Tidepool's, other modules are Mooncake's, and mooncake_master is of whichever"
        f" was installed last. Uninstall both and install one (this is {_HERE})",
        stacklevel=2,
    )
