"""Absent classes and functions of ``mooncake.store``, whose use raises an error with the reason."""

from typing import Any

_NO_TENSORS = "tidepool-mooncake has no tensor calls yet; store the tensor's bytes instead"


class _Absent:
    _why = ""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} is not part of tidepool-mooncake: {self._why}")


class MooncakeDistributedNoFRegister(_Absent):
    _why = "there are no NVMe-over-fabric segments; blocks are in memory"


class EngramStore(_Absent):
    _why = "embedding tables are not stored; put their rows as blocks instead"


class EngramStoreConfig(_Absent):
    _why = EngramStore._why


def no_tensors(*arguments: Any, **settings: Any) -> Any:
    """Stands in for the functions that turn tensors into bytes and back."""
    raise NotImplementedError(_NO_TENSORS)


class AbsentCallError(NotImplementedError, AttributeError):
    """A missing call of Mooncake's, for which ``hasattr`` is false."""


def absent_call(owner: object, name: str) -> Exception:
    """Why ``owner`` has no method of that name."""
    if "tensor" in name and not name.startswith("_"):
        return AbsentCallError(f"{name}: {_NO_TENSORS}")
    return AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
