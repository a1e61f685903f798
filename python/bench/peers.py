"""Tidepool's drop-in against Mooncake itself and against Redis: the same work, alternating, medians, in one run.

``make bench-peers`` prepares the environments and runs this. Tidepool and Mooncake have a master, a process with a
segment that holds the blocks, and a process without one that reads them; both run the same script. Redis has a server
and a client.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

from connectors import restore
from sides import Process, Redis, Side, private_bytes, stored_bytes

SEGMENT = 1536 << 20
#: Name, bytes of a block, blocks stored, blocks in a call, calls in a sample.
READS = [
    ("2MiB x 32", 2 << 20, 128, 32, 4),
    ("64KiB x 128", 64 << 10, 2048, 128, 16),
    ("4KiB x 32", 4096, 8192, 32, 64),
]
WRITES = [("2MiB", 2 << 20, 32, 4), ("64KiB", 64 << 10, 128, 16), ("4KiB", 4096, 128, 16)]
#: The same into memory that nothing was stored in before, as while a pool fills up.
FIRST_WRITES = [("2MiB", 2 << 20, 32, 2), ("64KiB", 64 << 10, 128, 16), ("4KiB", 4096, 128, 16)]
#: Name, bytes of a block, blocks stored, blocks in a call, calls in a sample; for Redis, both ways.
BOTH_WAYS = [
    ("2MiB x 32", 2 << 20, 128, 32, 2),
    ("64KiB x 128", 64 << 10, 2048, 128, 8),
    ("4KiB x 32", 4096, 8192, 32, 64),
]
RESTORED = "first of 8192 tokens restored in vLLM"
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
    "put into new memory, 2MiB": 3.5,
    "put into new memory, 64KiB": 4,
    "put into new memory, 4KiB": 2,
    "one get, 2MiB": 5,
    "one get, 4KiB": 15,
    "exist, 5000 keys": 8,
    "memory of the master per key": 10,
    "with the node's index": 3,
    RESTORED: 1,
} | {f"{way} over TCP, {name}, to Redis": 1.5 for way in ("get", "put") for name, *_ in BOTH_WAYS}
#: A rate that will do as well as its row's ratio: 4 KiB blocks a second.
ENOUGH_KEYS_PER_S = 150_000


class Table:
    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def compare(self, name: str, samples: list[list[float]], peer: str = "mooncake", keys: int = 0) -> None:
        """Adds a row: less is better. ``keys``: how many a sample moved, where a rate counts too."""
        ours, theirs = (statistics.median(values) for values in samples)
        ratio, goal = theirs / ours, GOALS.get(name)
        met = goal is None or ratio >= goal
        row = {"tidepool": ours, peer: theirs, "ratio": ratio, "goal": goal}
        rate = ""
        if keys:
            row["keys_per_s"] = keys / ours
            rate = f"   {keys / ours:,.0f} keys/s"
            met = met or keys / ours >= ENOUGH_KEYS_PER_S
        self.rows[name] = row | {"met": met}
        verdict = "" if goal is None else f"   goal {goal:>5}  {'met' if met else 'MISSED'}"
        print(
            f"{name:<34} tidepool {ours:12.6f}   {peer} {theirs:12.6f}   ratio {ratio:8.2f}{verdict}{rate}", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tidepool", required=True, help="an environment with Tidepool's wheels")
    parser.add_argument("--mooncake", required=True, help="an environment with Mooncake's wheel")
    parser.add_argument("--redis", help="an environment with Redis's client; without it Redis is left out")
    parser.add_argument("--vllm", help="an environment with vLLM; without it vLLM is left out")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys for the look-up and memory rows")
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--only", default="", help="rows whose names contain this")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(dir="/dev/shm", prefix="tidepool-peers-")
    sides = [
        Side(
            "tidepool",
            f"{options.tidepool}/bin/python",
            f"{options.tidepool}/bin",
            {"TIDEPOOL_DIR": directory, "TIDEPOOL_SMALLEST_BLOCK": "1K"},
        ),
        Side("mooncake", f"{options.mooncake}/bin/python", f"{options.mooncake}/bin", {}),
    ]
    table = Table()
    try:
        if options.redis:
            measure_redis(sides[0], table, options)
        for work in (measure_reads, measure_writes, measure_look_ups):
            for side in sides:
                side.start()
            work(sides, table, options)
            for side in sides:
                side.stop()
        if options.vllm and options.only in RESTORED:
            sides[1].start()
            python = f"{options.vllm}/bin/python"
            table.compare(RESTORED, restore(python, options.tidepool, sides[1], options.samples))
            sides[1].stop()
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
                keys = calls * batch if label == "get over TCP, 4KiB x 32" else 0
                samples = alternate(processes, options.samples, turn, start=calls * batch)
                table.compare(label, samples, keys=keys)
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
    for name, size, batch, calls in FIRST_WRITES:
        if options.only in f"put into new memory, {name}":
            new = [side.process((options.samples + 2) * calls * batch * size) for side in sides]
            turn = {"task": "put", "prefix": f"n{name[:3]}", "size": size, "batch": batch, "calls": calls, "stay": True}
            samples = alternate(new, options.samples, turn, start=calls * batch)
            table.compare(f"put into new memory, {name}", samples)
            for process in new:
                process.ask("clear")


def measure_look_ups(sides: list[Side], table: Table, options: argparse.Namespace) -> None:
    rows = ("exist, 5000 keys", "memory of the master per key", "with the node's index")
    if not any(options.only in row for row in rows):
        return
    owners = [side.process(SEGMENT) for side in sides]
    before, owner_before = [side.master_bytes() for side in sides], private_bytes(owners[0].child.pid)
    for owner in owners:
        owner.ask("fill", prefix="look", size=64, count=options.keys)
    masters = [side.master_bytes() - early for side, early in zip(sides, before, strict=True)]
    # The node's share: what it keeps beside the blocks themselves, and what its process has grown by.
    index = stored_bytes(sides[0].variables["TIDEPOOL_DIR"], ".map") + private_bytes(owners[0].child.pid) - owner_before
    askers = [side.process() for side in sides]
    turn = {"task": "exist", "prefix": "look", "count": options.keys, "batch": 5000, "calls": 10}
    table.compare(rows[0], alternate(askers, options.samples, turn))
    table.compare(rows[1], [[grown / options.keys] for grown in masters])
    table.compare(rows[2], [[(masters[0] + index) / options.keys], [masters[1] / options.keys]])


def measure_redis(side: Side, table: Table, options: argparse.Namespace) -> None:
    if not any(options.only in row for row in GOALS if row.endswith("to Redis")):
        return
    side.start()
    side.process(SEGMENT)
    client, redis = side.process(TIDEPOOL_SHARED_MEMORY="0"), Redis(f"{options.redis}/bin/python")
    both = [client, redis.client]
    try:
        for name, size, count, batch, calls in BOTH_WAYS:
            shape = {"prefix": name[:4], "size": size, "batch": batch, "calls": calls}
            for process in both:
                process.ask("fill", prefix=name[:4], size=size, count=count)
            samples = alternate(both, options.samples, {"task": "get", "count": count, **shape}, start=calls * batch)
            table.compare(f"get over TCP, {name}, to Redis", samples, peer="redis")
            for process in both:
                process.ask("clear")
            samples = alternate(both, options.samples, {"task": "put", **shape})
            table.compare(f"put over TCP, {name}, to Redis", samples, peer="redis")
    finally:
        redis.stop()
        side.stop()


def alternate(processes: list[Process], samples: int, turn: dict[str, Any], start: int = 0) -> list[list[float]]:
    """One warm-up and then ``samples`` turns each, in turn."""
    times: list[list[float]] = [[] for _ in processes]
    for sample in range(samples + 1):
        place: dict[str, Any] = {"start": sample * start} if start else {}
        for process, kept in zip(processes, times, strict=True):
            spent = process.ask(**turn, **place)
            if sample:
                kept.append(spent)
    return times


if __name__ == "__main__":
    main()
