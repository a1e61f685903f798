"""Copies and moves that run in the background."""

import os
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from mooncake.kinds import QueryTaskResponse, TaskStatus, TaskType
from mooncake.settings import shown

_NOT_FOUND = -1400
_TOO_MANY = -1401
#: The most tasks kept: beyond that, the oldest finished ones are dropped, or else no task begins.
_REMEMBERED = 1000
_ENDED = (TaskStatus.SUCCESS, TaskStatus.FAILED)

Answer = tuple[tuple[int, int], int]


class Tasks:
    """Tasks of this process: any of its stores can ask about the tasks of all."""

    def __init__(self) -> None:
        self.begin_anew()
        # A forked child has neither the threads nor their tasks.
        os.register_at_fork(after_in_child=self.begin_anew)

    def begin_anew(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._tasks: OrderedDict[tuple[int, int], QueryTaskResponse] = OrderedDict()
        self._lock = threading.Lock()

    def start(self, kind: TaskType, steps: Sequence[Callable[[], int]]) -> Answer:
        """Runs the steps one after the other, until one returns a code other than zero."""
        task_id = (random.getrandbits(63), random.getrandbits(63))
        now = _now()
        task = QueryTaskResponse(task_id, kind, TaskStatus.PENDING, now, now)
        with self._lock:
            if len(self._tasks) >= _REMEMBERED and not self._forget_one():
                return (0, 0), _TOO_MANY
            self._threads = self._threads or ThreadPoolExecutor(2, thread_name_prefix="mooncake-task")
            self._tasks[task_id] = task
        self._threads.submit(_run, task, steps)
        return task_id, 0

    def query(self, task_id: Sequence[int]) -> tuple[QueryTaskResponse | None, int]:
        is_id = isinstance(task_id, list | tuple) and [isinstance(part, int) for part in task_id] == [True, True]
        if not is_id:
            raise TypeError(f"a task's id is two numbers, not {shown(task_id)}")
        with self._lock:
            task = self._tasks.get((task_id[0], task_id[1]))
        return (task, 0) if task else (None, _NOT_FOUND)

    def _forget_one(self) -> bool:
        ended = next((task_id for task_id, task in self._tasks.items() if task.status in _ENDED), None)
        return ended is not None and bool(self._tasks.pop(ended))


def _run(task: QueryTaskResponse, steps: Sequence[Callable[[], int]]) -> None:
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


#: The tasks of this process.
TASKS = Tasks()
