"""Copies and moves that run in the background."""

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from mooncake.kinds import QueryTaskResponse, TaskStatus, TaskType

_NOT_FOUND = -1400
#: Finished tasks that can still be asked about.
_REMEMBERED = 10_000


class Tasks:
    """Tasks of one store."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: OrderedDict[tuple[int, int], QueryTaskResponse] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, kind: TaskType, steps: Sequence[Callable[[], int]]) -> tuple[int, int]:
        """Runs the steps one after the other, until one returns a code other than zero."""
        task_id = (random.getrandbits(63), random.getrandbits(63))
        now = _now()
        task = QueryTaskResponse(task_id, kind, TaskStatus.PENDING, now, now)
        with self._lock:
            self._threads = self._threads or ThreadPoolExecutor(2, thread_name_prefix="mooncake-task")
            self._tasks[task_id] = task
            while len(self._tasks) > _REMEMBERED:
                self._tasks.popitem(last=False)
        self._threads.submit(self._run, task, steps)
        return task_id

    def query(self, task_id: tuple[int, int]) -> tuple[QueryTaskResponse | None, int]:
        with self._lock:
            task = self._tasks.get((task_id[0], task_id[1]))
        return (task, 0) if task else (None, _NOT_FOUND)

    def _run(self, task: QueryTaskResponse, steps: Sequence[Callable[[], int]]) -> None:
        task.status = TaskStatus.PROCESSING
        try:
            code = next((code for code in (step() for step in steps) if code), 0)
            task.message = "Task completed successfully" if not code else f"failed with code {code}"
        except Exception as error:
            code, task.message = -1, str(error)
        task.last_updated_at_ms_epoch = _now()
        task.status = TaskStatus.FAILED if code else TaskStatus.SUCCESS


def _now() -> int:
    return time.time_ns() // 1_000_000
