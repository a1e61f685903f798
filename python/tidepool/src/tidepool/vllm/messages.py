"""Messages between the scheduler's side and the workers' sides: once a step, packed."""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorMetadata,
    KVConnectorWorkerMetadata,
)

from .sessions import Origin


@dataclass
class Part:
    """Blocks of one KV group, one behind the other: hashes, and block numbers as 32-bit integers, end to end."""

    group: int
    width: int
    hashes: bytes
    blocks: bytes
    #: The group's blocks before the first of them.
    depth: int = 0

    @classmethod
    def pack(cls, group: int, hashes: Sequence[bytes], blocks: Iterable[int], depth: int = 0) -> "Part":
        return cls(group, len(hashes[0]) if hashes else 0, b"".join(hashes), array("I", blocks).tobytes(), depth)

    def block_ids(self) -> "array[int]":
        numbers = array("I")
        numbers.frombytes(self.blocks)
        return numbers


@dataclass
class Load:
    """A load that a request waits for."""

    job: int
    request: str
    parts: list[Part]
    origin: Origin | None = None


@dataclass
class Save:
    """Blocks that the scheduler keeps in place until every worker has reported the job."""

    job: int
    parts: list[Part]
    origin: Origin | None = None


@dataclass
class Step(KVConnectorMetadata):
    """From the scheduler to every worker."""

    #: The prefix of all keys; None until every worker has described its memory.
    namespace: str | None = None
    loads: list[Load] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    #: Whether it computes tokens: the blocks to save are then complete only when vLLM says so.
    computes: bool = True


@dataclass
class RankLayout:
    """One worker's memory: for each KV group how its blocks are laid out (None: it has no part of the group) and which
    share of the group's heads and layers it holds. Ranks with one label hold the same bytes."""

    labels: list[str]
    layouts: list[str | None]


@dataclass
class Report(KVConnectorWorkerMetadata):
    """From a worker to the scheduler; the reports of one step are added up."""

    #: By rank, until the scheduler has named a namespace.
    ranks: dict[int, RankLayout] = field(default_factory=dict)
    #: Save jobs that have ended, with the number of workers that reported it.
    saved: dict[int, int] = field(default_factory=dict)
    #: Save jobs of which a worker could not save all blocks.
    incomplete: set[int] = field(default_factory=set)
    #: Requests whose load failed on a worker.
    failed: set[str] = field(default_factory=set)

    def aggregate(self, other: KVConnectorWorkerMetadata) -> "Report":
        assert isinstance(other, Report)
        saved = dict(self.saved)
        for job, workers in other.saved.items():
            saved[job] = saved.get(job, 0) + workers
        return Report(
            {**self.ranks, **other.ranks}, saved, self.incomplete | other.incomplete, self.failed | other.failed
        )
