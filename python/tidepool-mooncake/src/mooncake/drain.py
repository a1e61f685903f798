"""Emptying segments: every block that only they hold moves elsewhere, and then they can be taken away."""

import random
import threading
from dataclasses import dataclass, field
from typing import Any

from tidepool import Pool, TidepoolError

#: Finished jobs that can still be asked about.
_REMEMBERED = 1000
_UNKNOWN = (404, {"success": False, "error_code": -1402, "error_message": "JOB_NOT_FOUND"})


@dataclass
class _Job:
    id: str
    segments: list[str]
    targets: list[str]
    status: str = "CREATED"
    moved: int = 0
    failed: int = 0
    message: str = ""
    cancelled: threading.Event = field(default_factory=threading.Event)


class DrainJobs:
    """Jobs of one master."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()

    def start(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        segments, targets = body.get("segments"), body.get("target_segments") or []
        if not _are_names(segments) or not segments or not _are_names(targets):
            why = "segments is a list of segment names, and so is target_segments where it is given"
            return 400, {"success": False, "error_code": -600, "error_message": f"INVALID_PARAMS: {why}"}
        known = {node.name for node in self._pool.nodes() if node.state == "alive"}
        unknown = sorted((set(segments) | set(targets)) - known)
        if unknown:
            return 404, {"success": False, "error_code": -101, "error_message": f"SEGMENT_NOT_FOUND: {unknown}"}
        job = _Job(f"{random.getrandbits(63)}-{random.getrandbits(63)}", list(segments), list(targets))
        with self._lock:
            self._jobs[job.id] = job
            for old in list(self._jobs)[:-_REMEMBERED]:
                del self._jobs[old]
        threading.Thread(target=self._run, args=(job,), name="drain", daemon=True).start()
        return 200, {"success": True, "job_id": job.id, "status": "CREATED", "error_code": 0, "error_message": ""}

    def query(self, job_id: str) -> tuple[int, dict[str, Any]]:
        job = self._jobs.get(job_id)
        if job is None:
            return _UNKNOWN
        return 200, {
            "success": True,
            "job_id": job.id,
            "status": job.status,
            "segments": job.segments,
            "succeeded_units": job.moved,
            "failed_units": job.failed,
            "message": job.message,
            "error_code": 0,
            "error_message": "",
        }

    def cancel(self, job_id: str) -> tuple[int, dict[str, Any]]:
        job = self._jobs.get(job_id)
        if job is None:
            return _UNKNOWN
        job.cancelled.set()
        return 200, {"success": True, "job_id": job.id, "error_code": 0, "error_message": ""}

    def status_of(self, segment: str) -> dict[str, Any]:
        """Mooncake's number and word for how a segment stands."""
        jobs = [job for job in self._jobs.values() if segment in job.segments]
        if any(job.status in ("CREATED", "RUNNING") for job in jobs):
            return {"status": 2, "status_name": "DRAINING"}
        if jobs and jobs[-1].status == "SUCCEEDED":
            return {"status": 3, "status_name": "DRAINED"}
        return {"status": 1, "status_name": "OK"}

    def close(self) -> None:
        for job in self._jobs.values():
            job.cancelled.set()

    def _run(self, job: _Job) -> None:
        job.status = "RUNNING"
        try:
            for key, _, holders in self._pool.list_blocks():
                if job.cancelled.is_set():
                    job.status = "CANCELLED"
                    return
                for segment in set(holders) & set(job.segments):
                    self._move(job, key, segment)
            job.status = "FAILED" if job.failed else "SUCCEEDED"
        except TidepoolError as error:
            job.status, job.message = "FAILED", str(error)

    def _move(self, job: _Job, key: str | bytes, segment: str) -> None:
        nodes = [n for n in self._pool.nodes() if n.state == "alive" and n.name not in job.segments]
        wanted = [n for n in nodes if not job.targets or n.name in job.targets]
        for node in sorted(wanted, key=lambda n: n.used - n.capacity):
            try:
                self._pool.move_to(key, node.name, source=segment)
            except TidepoolError as error:
                job.message = str(error)
                continue
            job.moved += 1
            return
        job.failed += 1
        job.message = job.message or f"no other segment can take {key!r}"


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
