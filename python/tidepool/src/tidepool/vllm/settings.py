"""What a user may set, in ``kv_connector_extra_config``."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .. import Pool
from ..errors import InvalidError


@dataclass(frozen=True)
class Settings:
    """The settings with their defaults; docs/vllm.md says what each is for."""

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
    #: What vLLM does with a request whose load failed: "recompute" or "fail".
    load_failure_policy: str = "recompute"
    #: How weights are told apart: "sampled" reads a part of every tensor, "full" all of it.
    weights_check: str = "sampled"
    #: A name for the weights, where they cannot be read from files.
    weights_id: str = ""

    @classmethod
    def read(cls, given: dict[str, Any]) -> "Settings":
        """Takes the settings from what the user gave; a name or a value that is not allowed is named."""
        known = {setting.name: setting for setting in fields(cls)}
        for name in given:
            if name not in known:
                raise InvalidError(f"kv_connector_extra_config has {name!r}: allowed are {', '.join(known)}")
        given = dict(given)
        if isinstance(given.get("catalogs"), str):
            given["catalogs"] = [part.strip() for part in given["catalogs"].split(",") if part.strip()]
        settings = cls(**given)
        for name, allowed in _CHOICES.items():
            if getattr(settings, name) not in allowed:
                raise InvalidError(f"{name} is {getattr(settings, name)!r}: allowed are {', '.join(allowed)}")
        return settings

    def connect(self) -> Pool:
        """Connects to the pool; raises an error that names the addresses if nothing answers within ``connect_wait``."""
        return Pool.connect(
            self.catalogs,
            dir=self.dir,
            wait=self.connect_wait,
            local=self.local,
            verify=self.verify,
            tcp_streams=self.tcp_streams,
        )


_CHOICES = {
    "verify": ("network", "always"),
    "load_failure_policy": ("recompute", "fail"),
    "weights_check": ("sampled", "full"),
}
