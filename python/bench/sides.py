"""The processes that the comparison is between: masters, stores, and Redis."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


class Process:
    """A side's process, told what to do by lines of JSON."""

    def __init__(self, line: list[str], environment: dict[str, str]) -> None:
        self._name = line[0]
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - as long as the process
        self.child = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env=environment,
            text=True,
        )
        assert self._answer() == "ready"

    def ask(self, task: str, **arguments: Any) -> Any:
        assert self.child.stdin
        self.child.stdin.write(json.dumps({"task": task, **arguments}) + "\n")
        self.child.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.child.stdout
        while line := self.child.stdout.readline():
            # Mooncake's libraries print to standard output too.
            if line.startswith(('"ready"', "null")) or line[:1].isdigit():
                return json.loads(line)
        ended = self.child.wait(10)
        self._said.seek(0)
        raise RuntimeError(f"{self._name} ended with {ended}:\n{self._said.read()[-4000:]}")

    def end(self) -> None:
        self.child.kill()
        self.child.wait()


@dataclass
class Side:
    """A store with Mooncake's interface: a master and its processes."""

    name: str
    python: str
    path: str
    variables: dict[str, str]
    processes: list[Process] = field(default_factory=list)

    def start(self) -> None:
        port, admin = free_port(), free_port()
        self.environment = {**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}", **self.variables}
        line = ["mooncake_master", f"--rpc_port={port}", f"--metrics_port={admin}", "--default_kv_lease_ttl=5000"]
        self.master = subprocess.Popen(
            [shutil.which(line[0], path=self.environment["PATH"]) or line[0], *line[1:]],
            env=self.environment,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        self.address = f"127.0.0.1:{port}"
        until = time.monotonic() + 30
        while not answers(f"http://127.0.0.1:{admin}/health"):
            assert time.monotonic() < until, f"{self.name}: the master did not start"
            time.sleep(0.1)

    def process(self, segment: int = 0, **variables: str) -> Process:
        line = [self.python, str(HERE / "side.py"), self.address, str(segment)]
        process = Process(line, {**self.environment, **variables})
        self.processes.append(process)
        return process

    def master_bytes(self) -> int:
        """Resident memory of the master and its children."""
        pids = [self.master.pid, *children(self.master.pid)]
        return sum(resident(pid) for pid in pids)

    def stop(self) -> None:
        for process in self.processes:
            process.end()
        self.processes.clear()
        for pid in [*children(self.master.pid), self.master.pid]:
            os.kill(pid, 15)
        self.master.wait(20)


class Redis:
    """A Redis server that keeps everything in memory, and one client."""

    def __init__(self, python: str) -> None:
        port = free_port()
        # No snapshots and no log; a second thread for sockets, as its documentation advises for large values.
        settings = ["--save", "", "--appendonly", "no", "--io-threads", "2", "--bind", "127.0.0.1"]
        self.server = subprocess.Popen(
            ["redis-server", "--port", str(port), *settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + 20
        while not accepts(port):
            assert time.monotonic() < until, "redis-server did not start"
            time.sleep(0.05)
        self.client = Process([python, str(HERE / "redis_side.py"), str(port)], dict(os.environ))

    def stop(self) -> None:
        self.client.end()
        self.server.kill()
        self.server.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [*children(child), child]
    return found


def resident(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def private_bytes(pid: int) -> int:
    """Memory that is a process's own: without what it shares, such as slabs."""
    fields = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in fields if line.startswith("RssAnon:"))


def stored_bytes(directory: str, ending: str) -> int:
    """Memory that files of a memory file system take."""
    return sum(path.stat().st_blocks * 512 for path in Path(directory).rglob(f"*{ending}"))
