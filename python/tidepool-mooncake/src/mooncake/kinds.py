"""The enumerations and small records of ``mooncake.store``."""

import copy
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class SoftPinAction(IntEnum):
    PRESERVE = 0
    ENABLE = 1
    DISABLE = 2


class ObjectDataType(IntEnum):
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


class ReplicaStatus(IntEnum):
    UNDEFINED = 0
    INITIALIZED = 1
    PROCESSING = 2
    COMPLETE = 3
    REMOVED = 4
    FAILED = 5


class TaskType(IntEnum):
    REPLICA_COPY = 0
    REPLICA_MOVE = 1


class TaskStatus(IntEnum):
    PENDING = 0
    PROCESSING = 1
    FAILED = 2
    SUCCESS = 3


#: Replicas, the segment to try first, whether older blocks are replaced, the pins, the groups.
Terms = tuple[int, str | None, bool, bool, int, list[str]]
#: How long a soft pin lasts, unless it says so itself, and at most.
_PIN_MS = 30 * 60 * 1000
_LONGEST_PIN_MS = 24 * 60 * 60 * 1000


class ReplicateConfig:
    """How a block is stored."""

    __slots__ = (
        "_soft_pin_ttl_ms",
        "data_type",
        "dfs_replica_num",
        "group_ids",
        "nof_replica_num",
        "prefer_alloc_in_same_node",
        "preferred_nof_segments",
        "preferred_segment",
        "preferred_segments",
        "replica_num",
        "soft_pin_action",
        "with_hard_pin",
    )

    def __init__(self) -> None:
        self.replica_num = 1
        self.nof_replica_num = 0
        self.dfs_replica_num = 0
        self.soft_pin_action = SoftPinAction.PRESERVE
        self._soft_pin_ttl_ms: int | None = None
        self.with_hard_pin = False
        self.preferred_segments: list[str] = []
        self.preferred_nof_segments: list[str] = []
        self.preferred_segment = ""
        self.prefer_alloc_in_same_node = False
        self.data_type = ObjectDataType.UNKNOWN
        self.group_ids: list[str] | None = None

    @property
    def soft_pin_ttl_ms(self) -> int | None:
        return self._soft_pin_ttl_ms

    @soft_pin_ttl_ms.setter
    def soft_pin_ttl_ms(self, value: int | None) -> None:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64):
            raise TypeError(f"soft_pin_ttl_ms is None or a number of milliseconds from 0 on, not {value!r}")
        self._soft_pin_ttl_ms = value

    def terms(self, keys: int, upsert: bool = False) -> "Terms | None":
        """How ``keys`` blocks are stored, for the extension module; None when fields contradict each other."""
        soft = self.soft_pin_action == SoftPinAction.ENABLE
        ttl = self._soft_pin_ttl_ms
        if (ttl is not None and (not soft or ttl > _LONGEST_PIN_MS)) or (
            self.group_ids is not None and len(self.group_ids) != keys
        ):
            return None
        pin_ms = (_PIN_MS if ttl is None else ttl) if soft else 0
        return self.replica_num, self.first_choice(), upsert, self.with_hard_pin, pin_ms, self.group_ids or []

    def for_key(self, index: int) -> "ReplicateConfig":
        """The same for one key of a batch."""
        if self.group_ids is None:
            return self
        one = copy.copy(self)
        one.group_ids = self.group_ids[index : index + 1]
        return one

    def first_choice(self) -> str | None:
        """The segment to try first."""
        return self.preferred_segments[0] if self.preferred_segments else self.preferred_segment or None


@dataclass
class Descriptor:
    """Where a replica lies."""

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
    """How a copy or a move stands."""

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
