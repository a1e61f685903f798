"""Calls that wait: other threads and tasks go on meanwhile, Ctrl-C and cancellation end the waiting."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tidepool
from tidepool import AsyncPool, Pool

from .held import Elsewhere
from .memory import memory_taken
from .waiting import eventually

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


def is_borrowed(buffer: bytearray) -> bool:
    """Whether a call under way has the buffer, which then cannot be resized."""
    try:
        buffer.append(0)
        buffer.pop()
    except BufferError:
        return True
    return False


def test_a_buffer_is_borrowed_for_the_length_of_a_call(elsewhere: Elsewhere, scratch: Path) -> None:
    buffer = bytearray(5)
    with Pool.connect([elsewhere.catalog], dir=scratch, local=False) as pool:
        pool.put("key", b"value")
        with elsewhere.stopped():
            call = threading.Thread(target=pool.get_into, args=("key", buffer), kwargs={"deadline": 60.0})
            call.start()
            eventually("the buffer is borrowed", lambda: is_borrowed(buffer))
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
            buffer = bytearray(5)
            waiting = asyncio.create_task(pool.get_into("key", buffer, deadline=60.0))
            queued = asyncio.create_task(pool.put("never", b"stored"))
            await asyncio.to_thread(eventually, "the first call has begun", lambda: is_borrowed(buffer))
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
    async def work() -> None:
        async with await AsyncPool.connect([elsewhere.catalog], dir=scratch, local=False) as pool:
            await pool.put("key", b"value")
            buffer = bytearray(5)
            with elsewhere.stopped():
                waiting = asyncio.create_task(pool.get_into("key", buffer, deadline=60.0))
                await asyncio.to_thread(eventually, "the call has begun", lambda: is_borrowed(buffer))
                for _ in range(20):
                    assert await asyncio.to_thread(is_borrowed, buffer)
                assert not waiting.done()
            assert await waiting == 5

    asyncio.run(work())


@contextlib.contextmanager
def program(code: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A program that has imported what it needs when its first line says that it begins."""
    line = [sys.executable, "-c", f"import sys, tidepool, mooncake.store\nprint('begins', flush=True)\n{code}"]
    with subprocess.Popen([*line, *arguments], stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "begins\n"
            yield started
        finally:
            started.kill()


def interrupted(code: str, *arguments: str) -> str:
    """What a program prints that gets Ctrl-C while it waits for five minutes."""
    with program(code, *arguments) as waiting:
        stat = Path(f"/proc/{waiting.pid}/stat")
        eventually("the program waits", lambda: stat.read_text().rpartition(") ")[2][0] == "S", shows=stat.read_text)
        waiting.send_signal(signal.SIGINT)
        answer, _ = waiting.communicate(timeout=60)
        assert waiting.returncode == 0
    return answer


def test_ctrl_c_ends_a_wait_for_a_pool(elsewhere: Elsewhere, scratch: Path) -> None:
    code = """
try:
    tidepool.Pool.connect([sys.argv[1]], dir=sys.argv[2], wait=300.0)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert interrupted(code, "127.0.0.1:1", str(scratch / "none")) == "interrupted\n"
    with elsewhere.stopped():
        assert interrupted(code, elsewhere.catalog, str(scratch / "none")) == "interrupted\n"


def test_ctrl_c_ends_a_set_up_that_waits_for_a_master() -> None:
    code = """
mooncake.store._WAIT = 300.0
try:
    mooncake.store.MooncakeDistributedStore().setup("localhost", "P2PHANDSHAKE", 0, 0, "tcp", "", "127.0.0.1:1")
except KeyboardInterrupt:
    print("interrupted")
"""
    assert interrupted(code) == "interrupted\n"


def test_ctrl_c_ends_the_start_of_a_large_node_and_leaves_nothing(scratch: Path) -> None:
    code = """
try:
    tidepool.Node("large", int(sys.argv[2]), [], dir=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted")
"""
    place, capacity, peak = scratch / "large", 4 << 30, 0
    place.mkdir()

    def taken() -> int:
        nonlocal peak
        now = memory_taken(place)
        peak = max(peak, now)
        return now

    with program(code, str(place), str(capacity)) as starting:
        eventually("the node takes memory", lambda: taken() > capacity // 100, shows=taken)
        starting.send_signal(signal.SIGINT)
        eventually("its memory is gone", lambda: not taken(), shows=taken)
        assert starting.communicate(timeout=60)[0] == "interrupted\n"
    assert peak < capacity
    assert list(place.iterdir()) == []
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
        eventually("nothing is pinned", lambda: not pool.describe("seen")[0].views)
        pool.remove("seen")
