"""Tidepool's drop-in against Mooncake itself: the same script on both sides, alternating, medians, in one run.

``make bench-peers`` prepares the environments and runs this. Each side has a master, a process with a segment that
holds the blocks, and a process without one that reads them.
"""

import argparse
import json
import os
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEGMENT = 1536 << 20
#: Name, bytes of a block, blocks stored, blocks in a call, calls in a sample.
READS = [
    ("2MiB x 32", 2 << 20, 128, 32, 4),
    ("64KiB x 128", 64 << 10, 2048, 128, 16),
    ("4KiB x 32", 4096, 8192, 32, 64),
]
WRITES = [("2MiB", 2 << 20, 32, 4), ("64KiB", 64 << 10, 128, 16), ("4KiB", 4096, 128, 16)]
GOALS = {
    "get, 2MiB x 32": 5,
    "get, 64KiB x 128": 12,
    "get, 4KiB x 32": 40,
    "get over TCP, 2MiB x 32": 1.8,
    "get over TCP, 64KiB x 128": 5,
    "get over TCP, 4KiB x 32": 10,
    "put, 2MiB": 3.5,
    "put, 64KiB": 4,
    "put, 4KiB": 2,
    "one get, 2MiB": 5,
    "one get, 4KiB": 15,
    "exist, 5000 keys": 8,
    "memory of the master per key": 10,
}


class Process:
    """A side's process, told what to do by lines of JSON."""

    def __init__(self, python: str, environment: dict[str, str], master: str, segment: int) -> None:
        self.child = subprocess.Popen(
            [python, str(HERE / "side.py"), master, str(segment)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
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
        raise RuntimeError(f"a side ended with {self.child.wait(10)}")

    def end(self) -> None:
        self.child.kill()
        self.child.wait()


@dataclass
class Side:
    """One of the two stores: a master and its processes."""

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
        process = Process(self.python, {**self.environment, **variables}, self.address, segment)
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


class Table:
    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def compare(self, name: str, samples: list[list[float]], lower_is_better: bool = True) -> None:
        ours, theirs = (statistics.median(values) for values in samples)
        ratio = theirs / ours
        self.rows[name] = {"tidepool": ours, "mooncake": theirs, "ratio": ratio, "goal": GOALS.get(name)}
        goal = GOALS.get(name)
        met = "" if goal is None else f"   goal {goal:>5}  {'met' if ratio >= goal else 'MISSED'}"
        print(f"{name:<32} tidepool {ours:12.6f}   mooncake {theirs:12.6f}   ratio {ratio:8.2f}{met}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidepool", required=True, help="an environment with Tidepool's wheels")
    parser.add_argument("--mooncake", required=True, help="an environment with Mooncake's wheel")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys for the look-up and memory rows")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--only", default="", help="rows whose names contain this")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(dir="/dev/shm", prefix="tidepool-peers-")
    sides = [
        Side("tidepool", f"{options.tidepool}/bin/python", f"{options.tidepool}/bin", {"TIDEPOOL_DIR": directory}),
        Side("mooncake", f"{options.mooncake}/bin/python", f"{options.mooncake}/bin", {}),
    ]
    table = Table()
    try:
        for work in (measure_reads, measure_writes, measure_look_ups):
            for side in sides:
                side.start()
            work(sides, table, options)
            for side in sides:
                side.stop()
    finally:
        for side in sides:
            for process in side.processes:
                process.end()
            if side.master.poll() is None:
                side.master.kill()
        shutil.rmtree(directory, ignore_errors=True)
    if options.json:
        machine = {"processor": platform.processor() or platform.machine(), "cores": os.cpu_count()}
        options.json.write_text(json.dumps({"machine": machine, "rows": table.rows}, indent=2) + "\n")


def measure_reads(sides: list[Side], table: Table, options: argparse.Namespace) -> None:
    owners = [side.process(SEGMENT) for side in sides]
    readers = [side.process() for side in sides]
    over_tcp = [sides[0].process(TIDEPOOL_SHARED_MEMORY="0"), readers[1]]
    for name, size, count, batch, calls in READS:
        for owner in owners:
            owner.ask("fill", prefix=name[:4], size=size, count=count)
        for label, processes in ((f"get, {name}", readers), (f"get over TCP, {name}", over_tcp)):
            if options.only in label:
                turn = {"task": "get", "prefix": name[:4], "size": size, "count": count, "batch": batch, "calls": calls}
                table.compare(label, alternate(processes, options.samples, turn, start=calls * batch))
        short = name.split(" ")[0]
        label = f"one get, {short}"
        if size != 64 << 10 and options.only in label:
            turn = {"task": "get_one", "prefix": name[:4], "size": size, "count": count, "calls": 200}
            table.compare(label, alternate(readers, options.samples, turn))
        for owner in owners:
            owner.ask("clear")


def measure_writes(sides: list[Side], table: Table, options: argparse.Namespace) -> None:
    writers = [side.process(SEGMENT) for side in sides]
    for name, size, batch, calls in WRITES:
        if options.only in f"put, {name}":
            turn = {"task": "put", "prefix": f"w{name[:3]}", "size": size, "batch": batch, "calls": calls}
            table.compare(f"put, {name}", alternate(writers, options.samples, turn))


def measure_look_ups(sides: list[Side], table: Table, options: argparse.Namespace) -> None:
    if options.only not in "exist, 5000 keys" and options.only not in "memory of the master per key":
        return
    owners = [side.process(SEGMENT) for side in sides]
    before = [side.master_bytes() for side in sides]
    for owner in owners:
        owner.ask("fill", prefix="look", size=64, count=options.keys)
    after = [side.master_bytes() for side in sides]
    per_key = [[(late - early) / options.keys] for late, early in zip(after, before, strict=True)]
    askers = [side.process() for side in sides]
    turn = {"task": "exist", "prefix": "look", "count": options.keys, "batch": 5000, "calls": 10}
    table.compare("exist, 5000 keys", alternate(askers, options.samples, turn))
    table.compare("memory of the master per key", per_key)


def alternate(processes: list[Process], samples: int, turn: dict[str, Any], start: int = 0) -> list[list[float]]:
    """One warm-up and then ``samples`` turns each, in turn."""
    times: list[list[float]] = [[] for _ in processes]
    for sample in range(samples + 1):
        place = {"start": sample * start} if start else {}
        for process, kept in zip(processes, times, strict=True):
            spent = process.ask(**turn, **place)
            if sample:
                kept.append(spent)
    return times


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


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


if __name__ == "__main__":
    sys.exit(main())
