"""Where ``mooncake_master`` listens."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from .mooncake_store.conftest import free_port


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
