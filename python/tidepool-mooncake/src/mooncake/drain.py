"""Drains segments: moves their blocks to others, and keeps new blocks out."""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mooncake.settings import log
from tidepool import NotFoundError, Pool, TidepoolError

#: Finished jobs that can still be asked about.
_REMEMBERED = 1000
#: How long a segment takes no blocks, and how often this is renewed: it ends by itself if this master goes away.
_CLOSED_FOR = 15.0
_TOLD_EVERY = 5.0
#: How often, and how many times, a job checks for blocks that were on their way in when it began.
_LOOK_EVERY = 0.1
_LOOKS = 100

_CREATED, _RUNNING, _SUCCEEDED, _FAILED, _CANCELED = 0, 2, 3, 4, 5
_NAMES = {0: "CREATED", 2: "RUNNING", 3: "SUCCEEDED", 4: "FAILED", 5: "CANCELED"}

Answer = tuple[int, dict[str, Any]]


@dataclass
class _Job:
    id: str
    segments: list[str]
    targets: list[str]
    status: int = _CREATED
    moved: int = 0
    moved_bytes: int = 0
    failed: int = 0
    active: int = 0
    message: str = "Drain job created"
    created: int = field(default_factory=lambda: _now())
    updated: int = field(default_factory=lambda: _now())
    cancelled: threading.Event = field(default_factory=threading.Event)

    def is_open(self) -> bool:
        return self.status in (_CREATED, _RUNNING)

    def become(self, status: int, message: str) -> None:
        self.message, self.updated, self.active = message, _now(), 0
        self.status = status


class DrainJobs:
    """Jobs of one master."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._jobs: dict[str, _Job] = {}
        #: Segments that take no new blocks, and their incarnations.
        self._closed: dict[str, int] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._keeper: threading.Thread | None = None

    def start(self, body: dict[str, Any]) -> Answer:
        segments, targets = body.get("segments"), body.get("target_segments") or []
        if not _are_names(segments) or not segments or not _are_names(targets):
            return _refusal(400, -600, "INVALID_PARAMS: segments is a list of segment names, and so is target_segments")
        if set(segments) & set(targets):
            return _refusal(400, -600, "INVALID_PARAMS: a segment cannot be drained onto itself")
        known = {node.name: node.epoch for node in self._pool.nodes() if node.state == "alive"}
        unknown = sorted((set(segments) | set(targets)) - known.keys())
        if unknown:
            return _refusal(404, -101, f"SEGMENT_NOT_FOUND: {unknown}")
        job = _Job(f"{random.getrandbits(63)}-{random.getrandbits(63)}", list(segments), list(targets))
        with self._lock:
            if self._closed.keys() & (set(segments) | set(targets)):
                return _refusal(409, -1010, "UNAVAILABLE_IN_CURRENT_STATUS")
            self._closed.update((segment, known[segment]) for segment in segments)
            self._jobs[job.id] = job
            for old in list(self._jobs)[:-_REMEMBERED]:
                del self._jobs[old]
            if self._keeper is None:
                self._keeper = threading.Thread(target=self._keep_closed, name="drained", daemon=True)
                self._keeper.start()
        threading.Thread(target=self._run, args=(job,), name="drain", daemon=True).start()
        return 200, {"success": True, "job_id": job.id, "status": "CREATED", "error_code": 0, "error_message": ""}

    def query(self, job_id: str) -> Answer:
        job = self._jobs.get(job_id)
        if job is None:
            return _no_job(job_id)
        return 200, {
            "success": True,
            "job_id": job.id,
            "type": 0,
            "type_name": "DRAIN",
            "status": job.status,
            "status_name": _NAMES[job.status],
            "created_at_ms_epoch": job.created,
            "last_updated_at_ms_epoch": job.updated,
            "segments": job.segments,
            "succeeded_units": job.moved,
            "failed_units": job.failed,
            "blocked_units": 0,
            "active_units": job.active,
            "migrated_bytes": job.moved_bytes,
            "message": job.message,
            "error_code": 0,
            "error_message": "",
        }

    def cancel(self, job_id: str) -> Answer:
        job = self._jobs.get(job_id)
        if job is None:
            return _no_job(job_id)
        if not job.is_open():
            return _refusal(409, -1010, "UNAVAILABLE_IN_CURRENT_STATUS")
        job.cancelled.set()
        return 200, {"success": True, "job_id": job.id, "error_code": 0, "error_message": ""}

    def status_of(self, segment: str) -> tuple[int, str]:
        """Mooncake's number and word for a segment's state."""
        if segment not in self._closed:
            return 1, "OK"
        is_draining = any(segment in job.segments and job.is_open() for job in list(self._jobs.values()))
        return (2, "DRAINING") if is_draining else (3, "DRAINED")

    def close(self) -> None:
        self._ended.set()
        for job in self._jobs.values():
            job.cancelled.set()

    def _keep_closed(self) -> None:
        """Tells drained and draining segments, again and again, to take no new blocks."""
        while not self._ended.wait(_TOLD_EVERY):
            for segment in self._still_closed():
                try:
                    self._pool.drain(segment, _CLOSED_FOR)
                except TidepoolError as error:
                    log.warning("segment %s, which is drained, does not answer: %s", segment, error)

    def _still_closed(self) -> list[str]:
        """The closed segments that answer. A segment that seems dead is told when it comes back; one that was restarted
        is not closed."""
        try:
            nodes = self._pool.nodes()
        except TidepoolError as error:
            log.warning("the segments that are drained are not known: %s", error)
            return []
        with self._lock:
            for node in nodes:
                if self._closed.get(node.name, node.epoch) != node.epoch:
                    del self._closed[node.name]
            return [node.name for node in nodes if node.name in self._closed and node.state in ("alive", "suspect")]

    def _run(self, job: _Job) -> None:
        job.become(_RUNNING, "Drain job running")
        try:
            self._empty(job)
        except TidepoolError as error:
            job.become(_FAILED, f"Drain job failed: {error}")
        if job.status != _SUCCEEDED:
            self._reopen(job.segments)

    def _empty(self, job: _Job) -> None:
        """Moves blocks until a round finds none and none is on its way in."""
        for _ in range(_LOOKS):
            coming = sum(self._pool.drain(segment, _CLOSED_FOR) for segment in job.segments)
            moved_before, found = job.moved, self._move_all(job)
            if job.cancelled.is_set():
                return job.become(_CANCELED, "Drain job canceled")
            if not found and not coming:
                return job.become(_SUCCEEDED, "Drain job finished successfully")
            if job.moved == moved_before:
                if not coming:
                    break
                job.cancelled.wait(_LOOK_EVERY)
        return job.become(_FAILED, f"Drain job failed: {job.message}")

    def _move_all(self, job: _Job) -> int:
        """Moves the blocks of one round. Returns their number."""
        nodes = [n for n in self._pool.nodes() if n.state == "alive" and n.name not in self._closed]
        by_room = sorted(nodes, key=lambda n: n.used - n.capacity)
        targets = [n.name for n in by_room if not job.targets or n.name in job.targets]
        job.failed, found = 0, 0
        for key, size, holders in self._pool.list_blocks():
            for segment in set(holders) & set(job.segments):
                if job.cancelled.is_set():
                    return found
                found += 1
                job.active = 1
                # A segment with a copy needs no room for another.
                wanted = sorted(targets, key=lambda name: name not in holders)
                self._move(job, (key, size), segment, wanted)
                job.updated = _now()
        return found

    def _move(self, job: _Job, block: tuple[str | bytes, int], segment: str, targets: Sequence[str]) -> None:
        key, size = block
        why = "no other segment is there"
        for target in targets:
            try:
                self._pool.move_to(key, target, source=segment)
            except NotFoundError:
                return  # Removed meanwhile.
            except TidepoolError as error:
                why = str(error)
                continue
            job.moved, job.moved_bytes = job.moved + 1, job.moved_bytes + size
            return
        job.failed += 1
        job.message = f"{key!r} stays on {segment}: {why}"

    def _reopen(self, segments: Sequence[str]) -> None:
        with self._lock:
            for segment in segments:
                self._closed.pop(segment, None)
        for segment in segments:
            try:
                self._pool.drain(segment, 0)
            except TidepoolError as error:
                log.warning("segment %s takes blocks again in %s seconds only: %s", segment, _CLOSED_FOR, error)


def _now() -> int:
    return time.time_ns() // 1_000_000


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _no_job(job_id: str) -> Answer:
    if not job_id:
        return _refusal(400, -600, "Missing or invalid job_id")
    return _refusal(404, -1402, "JOB_NOT_FOUND")


def _refusal(status: int, code: int, message: str) -> Answer:
    return status, {"success": False, "error_code": code, "error_message": message}
