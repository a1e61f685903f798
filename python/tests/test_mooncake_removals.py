"""Removals from a segment that does not answer: never "not found" while the block can come back."""

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import mooncake.store as store_module
import pytest
from mooncake.store import MooncakeDistributedStore

from .held import stop
from .mooncake_store.conftest import MIB, Master, first_code_but, free_port
from .waiting import eventually


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[Master]:
    directory = tempfile.mkdtemp(dir="/dev/shm", prefix="tidepool-removals-")
    monkeypatch.setenv("TIDEPOOL_DIR", directory)
    monkeypatch.setenv("TIDEPOOL_SHARED_MEMORY", "0")
    monkeypatch.setattr(store_module, "_DEADLINE", 1.0)
    master = Master()
    yield master
    assert master.stop() == 0
    shutil.rmtree(directory)


@contextmanager
def segment(master: Master) -> Iterator[subprocess.Popen[str]]:
    """A process that brings memory."""
    line = ["mooncake_client", f"--master_server_address={master.address}", "--global_segment_size=32MB"]
    process = subprocess.Popen([*line, f"--port={free_port()}"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "is mounted" not in process.stderr.readline():
        assert process.poll() is None
    yield process
    process.send_signal(signal.SIGCONT)
    process.terminate()
    process.communicate(timeout=20)


SEGMENTS = """
import sys
from mooncake.store import MooncakeDistributedStore
stores = [MooncakeDistributedStore() for _ in range(12)]
for store in stores:
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 1 << 20, 1 << 20, "tcp", "", sys.argv[1]) == 0
print("there", flush=True)
sys.stdin.read()
"""


def test_segments_that_have_crashed_hold_nothing_however_many_they_are(master: Master) -> None:
    """From the ninth on they counted as there, so that nothing could be removed for ten minutes."""
    line = [sys.executable, "-c", SEGMENTS, master.address]
    crashing = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert crashing.stdout is not None
    assert crashing.stdout.readline() == "there\n"
    with segment(master):
        store = new_store(master)
        crashing.kill()
        crashing.communicate(timeout=20)
        eventually("their end is noticed", lambda: len(store._segments()) == 1, shows=store._segments)
        assert store.put("kept", b"bytes") == 0
        assert store.remove("never was", True) == -704
        assert store.remove("kept", True) == 0
        assert store.remove_all(True) == 0
        store.close()


def test_what_cannot_be_begun_while_no_master_answers_says_so(master: Master) -> None:
    """A put session was refused for lack of space, and a copy for its arguments."""
    with segment(master):
        store = new_store(master)
        assert store.put("key", b"bytes") == 0
        [(name, _)] = store._segments()
        stop(master.process)
        try:
            assert store.batch_put_session_start(["session"], [100]) == [-900]
            assert store.create_copy_task("key", [name])[1] == -900
        finally:
            master.process.send_signal(signal.SIGCONT)
        eventually("the master answers", lambda: store.batch_put_session_start(["session"], [100]) == [0])
        assert store.batch_put_session_start(["x" * 1025], [100]) == [-400]
        store.close()


def new_store(master: Master) -> MooncakeDistributedStore:
    store = MooncakeDistributedStore()
    assert store.setup("127.0.0.1", "P2PHANDSHAKE", 0, MIB, "tcp", "", master.address) == 0
    return store


def test_a_remove_that_could_not_ask_the_owner_says_so_and_not_that_nothing_is_there(master: Master) -> None:
    with segment(master) as process:
        store = new_store(master)
        assert store.put("kept", b"by a stopped segment") == 0
        stop(process)
        assert store.remove("kept", True) == -900
        assert store.batch_remove(["kept", ""], True) == [-900, -704]
        assert store.remove_all(True) == -900
        assert store.remove_by_regex("^kept$", True) == -900
        process.send_signal(signal.SIGCONT)
        # It is -900 while the segment does not answer, which may have got to the removals that it was sent meanwhile.
        assert first_code_but(-900, lambda: store.remove("kept", True)) in (0, -704)
        assert first_code_but(-900, lambda: store.remove("kept")) == -704
        # Catalogs may take a moment longer than a client to believe that it is back.
        assert first_code_but(-900, store.remove_all) == 0
        store.close()


def test_a_segment_whose_process_was_killed_holds_nothing_and_does_not_count(master: Master) -> None:
    with segment(master) as process:
        store = new_store(master)
        assert store.put("gone", b"with its segment") == 0
        process.kill()
        process.wait(20)
        assert store.remove("gone", True) == -704
        assert store.remove_all(True) == 0
        store.close()


def test_a_pattern_that_is_not_supported_removes_nothing_and_says_why(
    master: Master, caplog: pytest.LogCaptureFixture
) -> None:
    with segment(master):
        store = new_store(master)
        assert store.put("kept", b"bytes") == 0
        for pattern, why in ((r"^(?!x)", "look-around"), (r"(k)\1", "backreferences"), ("(", "unclosed group")):
            assert store.remove_by_regex(pattern, True) == -600
            assert why in caplog.text
        assert store.remove_by_regex("^k", True) == 1
        store.close()
