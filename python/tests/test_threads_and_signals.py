"""Calls that wait: other threads and tasks go on meanwhile, Ctrl-C and cancellation end the waiting."""

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tidepool
from tidepool import AsyncPool, Pool

from .held import Elsewhere

#: Seconds that a call waits for what is stopped.
WAIT = 0.3


@pytest.fixture
def elsewhere(scratch: Path) -> Iterator[Elsewhere]:
    elsewhere = Elsewhere(scratch)
    yield elsewhere
    elsewhere.end()


class Ticks:
    """Another thread, that needs the interpreter's lock for every tick."""

    def __init__(self) -> None:
        self.count, self._over = 0, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.wait(0.002):
            self.count += 1

    def __enter__(self) -> "Ticks":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()


CALLS: dict[str, Callable[[Pool], object]] = {
    "put": lambda pool: pool.put("new", b"1", deadline=WAIT),
    "put_many": lambda pool: pool.put_many({"new": b"1"}, deadline=WAIT),
    "get": lambda pool: pool.get("key", deadline=WAIT),
    "get_many": lambda pool: pool.get_many(["key"], deadline=WAIT),
    "get_into": lambda pool: pool.get_into("key", bytearray(5), deadline=WAIT),
    "view": lambda pool: pool.view("key", deadline=WAIT),
    "exists": lambda pool: pool.exists("key", deadline=WAIT),
    "match_prefix": lambda pool: pool.match_prefix([["key"]], deadline=WAIT),
    "remove": lambda pool: pool.remove("key", deadline=WAIT),
    "remove_all": lambda pool: pool.remove_all(deadline=WAIT),
    "list_blocks": lambda pool: pool.list_blocks(deadline=WAIT),
    "describe": lambda pool: pool.describe("key", deadline=WAIT),
    "nodes": lambda pool: pool.nodes(deadline=WAIT),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_threads_run_while_a_call_waits(elsewhere: Elsewhere, scratch: Path, name: str) -> None:
    with Pool.connect([elsewhere.catalog], dir=scratch, local=False) as pool:
        pool.put("key", b"value")
        with elsewhere.stopped(), Ticks() as ticks:
            before = ticks.count
            with contextlib.suppress(tidepool.TidepoolError):
                CALLS[name](pool)
            assert ticks.count - before > 10


def test_a_buffer_is_borrowed_for_the_length_of_a_call(elsewhere: Elsewhere, scratch: Path) -> None:
    buffer, until = bytearray(5), time.monotonic() + 20

    def resize() -> None:
        while time.monotonic() < until:
            buffer.append(0)
            buffer.pop()

    with Pool.connect([elsewhere.catalog], dir=scratch, local=False) as pool:
        pool.put("key", b"value")
        with elsewhere.stopped():
            call = threading.Thread(target=pool.get_into, args=("key", buffer), kwargs={"deadline": 60.0})
            call.start()
            with pytest.raises(BufferError):
                resize()
        call.join()
        assert buffer[:5] == b"value"
        with pytest.raises(tidepool.InvalidError):
            pool.get_into("", buffer)
        # It is nobody's, whatever became of the call.
        buffer.append(0)


def test_other_threads_run_while_a_connection_waits(elsewhere: Elsewhere, scratch: Path) -> None:
    with elsewhere.stopped(), Ticks() as ticks:
        before = ticks.count
        with pytest.raises(tidepool.UnreachableError):
            Pool.connect([elsewhere.catalog], dir=scratch / "none", wait=WAIT)
        assert ticks.count - before > 10


def test_a_cancelled_call_is_over_at_once_and_one_that_had_not_begun_never_begins(
    elsewhere: Elsewhere, scratch: Path
) -> None:
    async def work() -> None:
        pool = await AsyncPool.connect([elsewhere.catalog], dir=scratch, local=False, threads=1)
        await pool.put("key", b"value")
        with elsewhere.stopped():
            waiting = asyncio.create_task(pool.get("key", deadline=60.0))
            queued = asyncio.create_task(pool.put("never", b"stored"))
            await asyncio.sleep(0.1)
            for task in (waiting, queued):
                assert not task.done()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
        assert await pool.get("key") == b"value"
        assert not await pool.exists("never")
        await pool.close()
        with pytest.raises(tidepool.ClosedError):
            await pool.get("key")

    asyncio.run(work())


def test_tasks_go_on_while_a_coroutine_waits(elsewhere: Elsewhere, scratch: Path) -> None:
    async def work() -> int:
        async with await AsyncPool.connect([elsewhere.catalog], dir=scratch, local=False) as pool:
            await pool.put("key", b"value")
            with elsewhere.stopped():
                waiting, ticks = asyncio.create_task(pool.get("key", deadline=WAIT)), 0
                while not waiting.done():
                    await asyncio.sleep(0.002)
                    ticks += 1
                return ticks

    assert asyncio.run(work()) > 10


def interrupted(code: str, *arguments: str) -> str:
    """What a program prints that gets Ctrl-C while it waits for five minutes."""
    first = "import os, signal, sys, threading, tidepool\n"
    interrupt = "interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))\n"
    line = [sys.executable, "-c", first + interrupt + code, *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout


def test_ctrl_c_ends_a_wait_for_a_pool(elsewhere: Elsewhere, scratch: Path) -> None:
    code = """
try:
    interrupt.start()
    tidepool.Pool.connect([sys.argv[1]], dir=sys.argv[2], wait=300.0)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert interrupted(code, "127.0.0.1:1", str(scratch / "none")) == "interrupted\n"
    with elsewhere.stopped():
        assert interrupted(code, elsewhere.catalog, str(scratch / "none")) == "interrupted\n"


def test_ctrl_c_ends_a_set_up_that_waits_for_a_master() -> None:
    code = """
import mooncake.store
mooncake.store._WAIT = 300.0
try:
    interrupt.start()
    mooncake.store.MooncakeDistributedStore().setup("localhost", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert interrupted(code) == "interrupted\n"


def test_ctrl_c_ends_the_start_of_a_large_node_and_leaves_nothing(scratch: Path) -> None:
    code = """
import time
from pathlib import Path
place, peak = Path(sys.argv[1]), 0
def size():
    return max((path.stat().st_size for path in place.glob("*")), default=0)
def watch():
    global peak
    while not size():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)
    while found := size():
        peak = max(peak, found)
        time.sleep(0.001)
watcher = threading.Thread(target=watch)
watcher.start()
try:
    tidepool.Node("large", 1 << 30, [], dir=place)
except KeyboardInterrupt:
    watcher.join()
    print(peak < 1 << 30, sorted(place.glob("*")))
"""
    place = scratch / "large"
    place.mkdir()
    line = [sys.executable, "-c", "import os, signal, sys, threading, tidepool\n" + code, str(place)]
    answer = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout == "True []\n", answer
    place.rmdir()


def test_a_process_that_ends_with_open_views_ends_well_and_pins_nothing(
    catalog: tidepool.Catalog, nodes: list[tidepool.Node], scratch: Path
) -> None:
    code = """
import sys, tidepool
pool = tidepool.Pool.connect([sys.argv[1]], dir=sys.argv[2])
view = pool.view("seen")
part = memoryview(view)[2:4]
assert view.borrowed
print(pool.describe("seen")[0].views)
"""
    with Pool.connect([catalog.address], dir=scratch) as pool:
        pool.put("seen", b"where it lies")
        line = [sys.executable, "-c", code, catalog.address, str(scratch)]
        answer = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        assert (answer.returncode, answer.stdout, answer.stderr) == (0, "1\n", "")
        while pool.describe("seen")[0].views:
            time.sleep(0.01)
        pool.remove("seen")
