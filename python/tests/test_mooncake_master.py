"""Where ``mooncake_master`` listens, and what its admin pages do beyond what Mooncake's own tests ask of them."""

import http.client
import json
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from mooncake import program
from mooncake.store import MooncakeDistributedStore

from .held import stop
from .mooncake_store.conftest import MIB, Master, free_port


@contextmanager
def listening(*flags: str) -> Iterator[tuple[int, int]]:
    """A master, and the ports of it and of its admin pages."""
    ports = free_port(), free_port()
    line = ["mooncake_master", f"--rpc_port={ports[0]}", f"--metrics_port={ports[1]}", *flags]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "master serves at" not in process.stderr.readline():
        assert process.poll() is None
    yield ports
    process.terminate()
    process.communicate(timeout=20)


def is_open(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def test_admin_pages_listen_where_the_master_does_unless_told_otherwise() -> None:
    # Every address of 127/8 is this host's: the second stands for another interface.
    with listening("--rpc_address=127.0.0.1") as ports:
        assert [is_open("127.0.0.1", port) for port in ports] == [True, True]
        assert [is_open("127.0.0.2", port) for port in ports] == [False, False]
    with listening("--rpc_address=127.0.0.1", "--metrics_host=0.0.0.0") as ports:
        assert [is_open("127.0.0.2", port) for port in ports] == [False, True]
    with listening() as ports:
        assert [is_open("127.0.0.2", port) for port in ports] == [True, True]
    with listening("--rpc_address=localhost") as ports:
        assert [is_open("127.0.0.1", port) for port in ports] == [True, True]
    with listening("--rpc_address=127.0.0.1") as ports:
        line = ["mooncake_master", "--rpc_port=0", f"--metrics_port={ports[1]}", "--rpc_address=127.0.0.1"]
        taken = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
        assert taken.returncode == 1
        assert f"admin pages (--metrics_port) cannot be served at 127.0.0.1, port {ports[1]}" in taken.stderr


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Iterator[Master]:
    directory = tempfile.mkdtemp(dir="/dev/shm", prefix="tidepool-master-")
    monkeypatch.setenv("TIDEPOOL_DIR", directory)
    master = Master(lease_ms=60_000)
    yield master
    ended = master.stop()
    shutil.rmtree(directory)
    assert ended == 0


def test_the_page_that_removes_everything_leaves_what_is_leased_unless_forced(master: Master) -> None:
    """It removed all blocks, leased or not."""
    store = MooncakeDistributedStore()
    assert store.setup("localhost", "P2PHANDSHAKE", 32 * MIB, 0, "tcp", "", master.address) == 0
    assert (store.put("leased", b"1"), store.put("free", b"1")) == (0, 0)
    assert store.get("leased") == b"1"
    for path, removed, left in (
        ("/api/v1/remove_all", 1, [1, 0]),
        ("/api/v1/remove_all?force=false", 0, [1, 0]),
        ("/api/v1/remove_all?force=true", 1, [0, 0]),
    ):
        status, text = master.page(path, b"")
        assert (status, json.loads(text)) == (200, {"success": True, "removed_count": removed})
        assert store.batch_is_exist(["leased", "free"]) == left
    store.close()


def test_pages_answer_whatever_they_are_sent(master: Master) -> None:
    """A body of brackets, or a length that is no number, closed the connection without an answer."""
    assert master.page("/api/v1/drain_jobs", b"[" * 200_000)[0] == 400
    assert master.page("/api/v1/drain_jobs", b"{")[1].startswith('{"success": false, "error_code": -600')
    assert master.page("/batch_query_keys")[0] == 400
    connection = http.client.HTTPConnection("127.0.0.1", master.admin_port, timeout=10)
    connection.putrequest("POST", "/api/v1/drain_jobs")
    connection.putheader("Content-Length", "\xb2")
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    stores = [MooncakeDistributedStore() for _ in range(2)]
    for store in stores:
        assert store.setup("localhost", "P2PHANDSHAKE", 16 * MIB, 0, "tcp", "", master.address) == 0
    lines = master.page("/metrics")[1].splitlines()
    names = [line.partition("{")[0] for line in lines if line.startswith("segment_")]
    assert names == sorted(names)
    assert len(names) == 4
    for store in stores:
        store.close()


def connections(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(count)]


def asked(connection: socket.socket, path: str) -> None:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


def answer_of(connection: socket.socket) -> bytes:
    """All that comes before the server closes the connection."""
    with closing(connection):
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def answers_of_a_crowd(process: subprocess.Popen[Any], port: int, path: str) -> list[bytes]:
    """What a server answers to connections that all were open before it accepted one."""
    stop(process)
    try:
        crowd = connections(port, 256)
        for connection in crowd:
            asked(connection, path)
    finally:
        process.send_signal(signal.SIGCONT)
    return [answer_of(connection) for connection in crowd]


def test_pages_are_served_to_a_crowd(master: Master) -> None:
    """Five connections could wait to be accepted, so of SGLang's ranks, which all ask at their start, most waited for
    seconds for the kernel to try again, and some in vain."""
    answers = answers_of_a_crowd(master.process, master.admin_port, "/get_all_segments")
    assert {answer.partition(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 200 OK"}
    port = free_port()
    line = ["mooncake_client", f"--master_server_address={master.address}", f"--port={port}"]
    client = subprocess.Popen([*line, "--global_segment_size=16MB"], stderr=subprocess.PIPE, text=True)
    assert client.stderr is not None
    while "is mounted" not in client.stderr.readline():
        assert client.poll() is None
    answers = answers_of_a_crowd(client, port, "/masters")
    assert {answer.rpartition(b"\r\n")[2] for answer in answers} == {json.dumps([master.address]).encode()}
    client.terminate()
    client.communicate(timeout=20)


def test_connections_that_ask_nothing_take_a_bounded_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had a thread of its own, however many there were."""
    entered = threading.Semaphore(0)

    class Handler(program.Handler):
        def setup(self) -> None:
            entered.release()
            super().setup()

        def do_GET(self) -> None:
            self.answer(200, "text/plain", b"here")

    monkeypatch.setattr(program, "MOST_THREADS", 2)
    with program.http_server("pages", "127.0.0.1", 0, Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        silent = connections(server.server_port, 2)
        for _ in silent:
            assert entered.acquire(timeout=20)
        [waiting] = connections(server.server_port, 1)
        asked(waiting, "/")
        assert not server._free.acquire(blocking=False)  # type: ignore[attr-defined]
        silent[0].close()
        assert answer_of(waiting).endswith(b"here")
        silent[1].close()
        server.shutdown()
        thread.join()
