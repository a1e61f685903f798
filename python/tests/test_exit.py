"""The interpreter exits while others still use what has files: nothing is left behind."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .mooncake_store.conftest import Master

NODE = """
import sys, threading, tidepool
node = tidepool.Node("ending", 16 << 20, [], dir=sys.argv[1])
pool = tidepool.Pool.connect([], dir=sys.argv[1])
used = threading.Event()
def work(node, pool):
    while True:
        try:
            pool.put("key", b"value")
            pool.get("key")
            node.metrics()
        except tidepool.TidepoolError:
            pass
        used.set()
"""
STORE = """
import sys, threading
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
assert store.setup("localhost", "P2PHANDSHAKE", 16 << 20, 0, "tcp", "", sys.argv[2]) == 0
assert store.allocate_and_mount_segment(16 << 20)["ret"] == 0
used = threading.Event()
def work(store, _):
    while True:
        store.put("key", b"value")
        store.get("key")
        used.set()
"""
END = """
from pathlib import Path
first, second = (store, None) if "store" in globals() else (node, pool)
threading.Thread(target=work, args=(first, second), daemon=True).start()
used.wait()
print(len(list(Path(sys.argv[1]).glob("*"))) > 0)
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="tidepool-exit-") as directory:
        monkeypatch.setenv("TIDEPOOL_DIR", directory)
        yield Path(directory)


def left_behind(place: Path, code: str, *arguments: str) -> list[Path]:
    line = [sys.executable, "-c", code + END, str(place), *arguments]
    answer = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stdout) == (0, "True\n"), answer.stderr
    return sorted(place.glob("*"))


def test_a_node_that_a_daemon_thread_uses_at_exit_leaves_no_files(place: Path) -> None:
    assert left_behind(place, NODE) == []


def test_segments_that_a_daemon_thread_uses_at_exit_leave_no_files(place: Path) -> None:
    master = Master()
    assert left_behind(place, STORE, master.address) == []
    assert master.stop() == 0
