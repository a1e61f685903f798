"""The enumerations and small records of ``mooncake.store``."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from mooncake.settings import check_number, shown, warn_once


class _Kind(int, Enum):
    """Numbers that are written as their names."""


class SoftPinAction(_Kind):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ObjectDataType(_Kind):
    UNKNOWN = 0
    KVCACHE = 1
    TENSOR = 2
    WEIGHT = 3
    SAMPLE = 4
    ACTIVATION = 5
    GRADIENT = 6
    OPTIMIZER_STATE = 7
    METADATA = 8
    GENERAL = 9


class ReplicaStatus(_Kind):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class TaskType(_Kind):
    REPLICA_COPY = 0
    REPLICA_MOVE = 1


class TaskStatus(_Kind):
    PENDING = 0
    PROCESSING = 1
    FAILED = 2
    SUCCESS = 3


#: Replicas, the segments to try first, whether older blocks are replaced, the pins, the groups.
Terms = tuple[int, list[str], bool, bool, int, list[str]]
#: The default and longest time of a soft pin.
_PIN_MS = 30 * 60 * 1000
_LONGEST_PIN_MS = 24 * 60 * 60 * 1000
_INVALID_PARAMS = -600
_NO_FILE_SYSTEM = -1601


def refusal(config: Any, keys: int) -> int:
    """The code why ``keys`` blocks cannot be stored as ``config`` has it; zero if they can."""
    if not isinstance(config, ReplicateConfig):
        raise TypeError(f"config is a ReplicateConfig, not {shown(config)}")
    return config.refusal(keys)


def _count(value: Any) -> int:
    return check_number("it", value)


def _flag(value: Any) -> bool:
    # Numbers and None have a truth of their own; texts and lists only a length.
    if not hasattr(type(value), "__bool__"):
        raise TypeError("it is True or False")
    return bool(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is a str")
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise TypeError("it is a list of str")
    return list(value)


def _or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def _one_of(kind: type[_Kind]) -> Callable[[Any], _Kind]:
    def check(value: Any) -> _Kind:
        if not isinstance(value, kind):
            raise TypeError(f"it is a {kind.__name__}")
        return value

    return check


_FIELDS: dict[str, Callable[[Any], Any]] = {
    "replica_num": _count,
    "nof_replica_num": _count,
    "dfs_replica_num": _count,
    "soft_pin_action": _one_of(SoftPinAction),
    "soft_pin_ttl_ms": _or_none(_count),
    "with_hard_pin": _flag,
    "preferred_segments": _texts,
    "preferred_nof_segments": _texts,
    "preferred_segment": _text,
    "prefer_alloc_in_same_node": _flag,
    "data_type": _one_of(ObjectDataType),
    "group_ids": _or_none(_texts),
}


class ReplicateConfig:
    """The terms on which a block is stored."""

    __slots__ = tuple(_FIELDS)

    replica_num: int
    nof_replica_num: int
    dfs_replica_num: int
    soft_pin_action: SoftPinAction
    soft_pin_ttl_ms: int | None
    with_hard_pin: bool
    preferred_segments: list[str]
    preferred_nof_segments: list[str]
    preferred_segment: str
    prefer_alloc_in_same_node: bool
    data_type: ObjectDataType
    group_ids: list[str] | None

    def __init__(self) -> None:
        self.replica_num = 1
        self.nof_replica_num = self.dfs_replica_num = 0
        self.soft_pin_action = SoftPinAction.PRESERVE
        self.soft_pin_ttl_ms = None
        self.with_hard_pin = self.prefer_alloc_in_same_node = False
        self.preferred_segments, self.preferred_nof_segments, self.preferred_segment = [], [], ""
        self.data_type = ObjectDataType.UNKNOWN
        self.group_ids = None

    def __setattr__(self, name: str, value: Any) -> None:
        check = _FIELDS.get(name)
        if check is None:
            raise AttributeError(f"'ReplicateConfig' object has no attribute {name!r}")
        try:
            value = check(value)
        except TypeError as error:
            raise TypeError(f"ReplicateConfig.{name} cannot be {shown(value)}: {error}") from None
        object.__setattr__(self, name, value)

    def __str__(self) -> str:
        ttl = "default" if self.soft_pin_ttl_ms is None else self.soft_pin_ttl_ms
        fields = {
            "replica_num": self.replica_num,
            "nof_replica_num": self.nof_replica_num,
            "dfs_replica_num": self.dfs_replica_num,
            "soft_pin_action": self.soft_pin_action.name,
            "soft_pin_ttl_ms": ttl,
            "with_hard_pin": int(self.with_hard_pin),
            "preferred_segments": f"[{', '.join(self.preferred_segments)}]",
            "preferred_nof_segments": f"[{', '.join(self.preferred_nof_segments)}]",
            "prefer_alloc_in_same_node": int(self.prefer_alloc_in_same_node),
            "data_type": self.data_type.name,
        }
        return f"ReplicateConfig: {{ {', '.join(f'{name}: {value}' for name, value in fields.items())} }}"

    def refusal(self, keys: int) -> int:
        """The code why ``keys`` blocks cannot be stored like this; zero if they can."""
        if self.dfs_replica_num:
            warn_once(f"dfs_replica_num is {self.dfs_replica_num}: Tidepool has no file system tier, so the put fails")
            return _NO_FILE_SYSTEM
        if self.nof_replica_num:
            warn_once(f"nof_replica_num is {self.nof_replica_num}: Tidepool has no NVMe-oF segments, so the put fails")
            return _INVALID_PARAMS
        soft, ttl = self.soft_pin_action == SoftPinAction.ENABLE, self.soft_pin_ttl_ms
        is_pin_wrong = ttl is not None and (not soft or ttl > _LONGEST_PIN_MS)
        is_group_wrong = self.group_ids is not None and len(self.group_ids) != keys
        is_wrong = is_pin_wrong or is_group_wrong or not 0 < self.replica_num < 1 << 32
        return _INVALID_PARAMS if is_wrong else 0

    def terms(self, upsert: bool = False) -> Terms:
        """How blocks are stored, for the extension module; only if :meth:`refusal` says nothing against it."""
        pin_ms = 0
        if self.soft_pin_action == SoftPinAction.ENABLE:
            pin_ms = _PIN_MS if self.soft_pin_ttl_ms is None else self.soft_pin_ttl_ms
        wanted = self.preferred_segments or [self.preferred_segment] * bool(self.preferred_segment)
        return self.replica_num, wanted, upsert, self.with_hard_pin, pin_ms, self.group_ids or []

    def for_key(self, index: int) -> "ReplicateConfig":
        """The same for one key of a batch."""
        if self.group_ids is None:
            return self
        one = copy.copy(self)
        one.group_ids = self.group_ids[index : index + 1]
        return one


@dataclass
class Descriptor:
    """The place of a replica."""

    size: int = 0
    buffer_address: int = 0
    transport_endpoint: str = ""


@dataclass
class MemoryDescriptor:
    buffer_descriptor: Descriptor


@dataclass
class DiskDescriptor:
    file_path: str = ""
    object_size: int = 0


@dataclass
class ReplicaDescriptor:
    """One copy of a block. All copies are in memory."""

    status: ReplicaStatus
    _memory: MemoryDescriptor
    segment: str = ""

    def is_memory_replica(self) -> bool:
        return True

    def is_disk_replica(self) -> bool:
        return False

    def is_local_disk_replica(self) -> bool:
        return False

    def get_memory_descriptor(self) -> MemoryDescriptor:
        return self._memory

    def get_disk_descriptor(self) -> DiskDescriptor:
        raise RuntimeError("a replica in memory has no disk descriptor")


@dataclass
class QueryTaskResponse:
    """The state of a copy or a move."""

    id: tuple[int, int] = (0, 0)
    type: TaskType = TaskType.REPLICA_COPY
    status: TaskStatus = TaskStatus.PENDING
    created_at_ms_epoch: int = 0
    last_updated_at_ms_epoch: int = 0
    assigned_client: tuple[int, int] = (0, 0)
    message: str = ""


@dataclass
class ParallelAxis:
    kind: str = ""
    rank: int = 0
    size: int = 1
    split_dim: int = 0
    expert_id: int = 0
    stage_id: int = 0


@dataclass
class TensorParallelism:
    axes: list[ParallelAxis] = field(default_factory=list)


@dataclass
class ReadTarget:
    mode: str = ""
    parallelism: Any = None
