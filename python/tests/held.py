"""A catalog and a node in a process of their own, which can be stopped: calls then wait for as long as they may."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_POOL = """
import sys, tidepool
catalog = tidepool.Catalog("127.0.0.1:0", suspect_after=60.0, dead_after=120.0)
node = tidepool.Node("elsewhere", 64 << 20, [catalog.address], dir=sys.argv[1])
print(catalog.address, flush=True)
sys.stdin.read()
"""


def stop(process: subprocess.Popen[Any]) -> None:
    """Stops a child; when this returns it has stopped. Its threads run on for a moment after the signal."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)


class Elsewhere:
    """The process."""

    def __init__(self, directory: Path) -> None:
        line = [sys.executable, "-c", _POOL, str(directory)]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.catalog = self.process.stdout.readline().strip()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        stop(self.process)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.process.communicate(timeout=20)
