"""A master as its users start it, and stores of it.

Everything here uses Mooncake's names only, so the tests run against Mooncake itself too: with its wheel on the path
instead of ours, they say whether it does what we believe it does.
"""

import ctypes
import os
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mooncake.store import MooncakeDistributedStore

from ..waiting import eventually

MIB = 1 << 20


class Master:
    """A running ``mooncake_master``."""

    def __init__(self, lease_ms: int = 300) -> None:
        self.port, self.admin_port = free_port(), free_port()
        line = ["mooncake_master", f"--rpc_port={self.port}", f"--metrics_port={self.admin_port}"]
        line.append(f"--default_kv_lease_ttl={lease_ms}")
        self.process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
        self.address = f"127.0.0.1:{self.port}"
        eventually("the master answers", lambda: self.page("/health")[0] == 200)

    def page(self, path: str, data: bytes | None = None) -> tuple[int, str]:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", data)
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


def first_code_but(refusal: int, ask: Callable[[], int]) -> int:
    """Asks again for as long as the code is this one, and returns the first other code."""
    [code] = eventually(f"a code other than {refusal}", lambda: {ask()} - {refusal})
    return code


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session", autouse=True)
def _own_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    directory = Path(f"/dev/shm/tidepool-mooncake-{os.getpid()}")
    os.environ["TIDEPOOL_DIR"] = str(directory)
    yield
    if directory.exists():
        assert list(directory.glob("*")) == []
        directory.rmdir()


@pytest.fixture(scope="session")
def master() -> Iterator[Master]:
    master = Master()
    yield master
    master.stop()


@pytest.fixture
def new_store(master: Master) -> Iterator[Callable[..., MooncakeDistributedStore]]:
    stores: list[MooncakeDistributedStore] = []

    def make(size: int = 64 * MIB) -> MooncakeDistributedStore:
        store = MooncakeDistributedStore()
        assert store.setup("localhost", "P2PHANDSHAKE", size, 16 * MIB, "tcp", "", master.address) == 0
        stores.append(store)
        return store

    yield make
    for store in stores:
        if store.health_check() == 0:
            store.remove_all(True)
        store.close()


@pytest.fixture
def store(new_store: Callable[..., MooncakeDistributedStore]) -> MooncakeDistributedStore:
    return new_store()


class Memory:
    """A megabyte at an address, with bytes that differ from place to place."""

    def __init__(self) -> None:
        self.bytes = (ctypes.c_char * MIB).from_buffer(bytearray(n * 31 % 251 for n in range(MIB)))
        self.at = ctypes.addressof(self.bytes)

    def __getitem__(self, place: slice) -> bytes:
        return bytes(self.bytes[place])


@pytest.fixture
def memory(store: MooncakeDistributedStore) -> Iterator[Memory]:
    memory = Memory()
    assert store.register_buffer(memory.at, MIB) == 0
    yield memory
    store.unregister_buffer(memory.at)
