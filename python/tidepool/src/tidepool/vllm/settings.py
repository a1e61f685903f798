"""The user's settings in ``kv_connector_extra_config``."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .. import Pool
from ..errors import InvalidError


@dataclass(frozen=True)
class Settings:
    """The settings with their defaults; docs/vllm.md explains each."""

    catalogs: list[str] = field(default_factory=lambda: ["127.0.0.1:7411"])
    dir: str = "/dev/shm/tidepool"
    local: bool = True
    verify: Literal["network", "always"] = "network"
    tcp_streams: int = 2
    #: Seconds that a start waits for the pool before it fails.
    connect_wait: float = 10.0
    #: Seconds that a scheduler's step waits for a look-up; 0 never waits.
    lookup_wait: float = 0.0
    lookup_deadline: float = 0.5
    load_deadline: float = 5.0
    save_deadline: float = 2.0
    load_threads: int = 2
    save_threads: int = 2
    replicas: int = 1
    #: MiB a second at which a node of this host copies loaded blocks of other hosts.
    replica_rate: int = 0
    #: What vLLM does with a request whose load failed: "recompute" or "fail".
    load_failure_policy: str = "recompute"
    #: How weights are told apart: "sampled" reads a part of every tensor, "full" all of it.
    weights_check: str = "sampled"
    #: A name for the weights, where they cannot be read from files.
    weights_id: str = ""
    #: Whether blocks from before a reset of all caches are used after it: "apart" never, "keep" where weights stay.
    after_reset: str = "apart"

    @classmethod
    def read(cls, given: dict[str, Any]) -> "Settings":
        """Reads the user's settings. An error names an unknown name or an invalid value."""
        known = {setting.name: setting for setting in fields(cls)}
        for name in given:
            if name not in known:
                raise InvalidError(f"kv_connector_extra_config has {name!r}: allowed are {', '.join(known)}")
        given = dict(given)
        if isinstance(given.get("catalogs"), str):
            given["catalogs"] = [part.strip() for part in given["catalogs"].split(",") if part.strip()]
        for name, value in given.items():
            rule = _RULES[name]
            if not rule.allows(value):
                raise InvalidError(f"{name} is {value!r}: allowed {rule.allowed}")
        return cls(**given)

    def connect(self) -> Pool:
        """Connects to the pool. Raises an error with the addresses if there is no answer within ``connect_wait``."""
        return Pool.connect(
            self.catalogs,
            dir=self.dir,
            wait=self.connect_wait,
            local=self.local,
            verify=self.verify,
            tcp_streams=self.tcp_streams,
        )


@dataclass(frozen=True)
class _Rule:
    """The values that a setting may have, and the words for them."""

    allows: Callable[[Any], bool]
    allowed: str


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _whole(low: int, high: int) -> _Rule:
    return _Rule(
        lambda value: isinstance(value, int) and not isinstance(value, bool) and low <= value <= high,
        f"are whole numbers from {low} to {high}",
    )


def _one_of(*choices: str) -> _Rule:
    return _Rule(lambda value: isinstance(value, str) and value in choices, f"are {', '.join(choices)}")


#: The longest time that a setting may ask for.
_LONGEST = 3600
_SECONDS = _Rule(
    lambda value: _number(value) and 0 < value <= _LONGEST,
    f"is a number of seconds above 0 and up to {_LONGEST}, like 0.5",
)

_RULES = {
    "catalogs": _Rule(
        lambda value: isinstance(value, list) and bool(value) and all(_text(part) and ":" in part for part in value),
        "are addresses host:port, at least one, in a list or separated by commas",
    ),
    "dir": _Rule(lambda value: _text(value) and value.startswith("/"), "is the full path of a directory"),
    "local": _Rule(lambda value: isinstance(value, bool), "are true and false"),
    "verify": _one_of("network", "always"),
    "tcp_streams": _whole(1, 16),
    "connect_wait": _SECONDS,
    "lookup_wait": _Rule(
        lambda value: _number(value) and 0 <= value <= _LONGEST,
        f"is a number of seconds from 0 (never wait) to {_LONGEST}",
    ),
    "lookup_deadline": _SECONDS,
    "load_deadline": _SECONDS,
    "save_deadline": _SECONDS,
    "load_threads": _whole(1, 64),
    "save_threads": _whole(1, 64),
    "replicas": _whole(1, 64),
    "replica_rate": _whole(0, 1 << 20),
    "load_failure_policy": _one_of("recompute", "fail"),
    "weights_check": _one_of("sampled", "full"),
    "weights_id": _Rule(_text, "is a text"),
    "after_reset": _one_of("apart", "keep"),
}
