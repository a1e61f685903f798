"""Other engines, each in its own environment, and a pool for them.

An environment's Python is named by ``TIDEPOOL_SGLANG_PYTHON`` or ``TIDEPOOL_LMCACHE_PYTHON``; scripts/python_tests.sh
makes them and sets them.
"""

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from ..mooncake_store.conftest import Master, free_port
from ..waiting import eventually

HERE = Path(__file__).parent
#: Importing an engine takes some ten seconds on a slow core; nothing that is asked of it takes one.
_IMPORT, _ANSWER = 300.0, 60.0


class Process:
    """A process in which an engine's own class runs: its methods are those of the ``Side`` there."""

    def __init__(self, path: str, settings: dict[str, Any]) -> None:
        self._log = Path(path).with_name("log")
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(_ANSWER)
        self._socket.connect(path)
        self._lines = self._socket.makefile("rw")
        try:
            self._ask("", settings)
        except BaseException:
            self._socket.close()
            raise

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda **arguments: self._ask(name, arguments)

    def _ask(self, name: str, arguments: dict[str, Any]) -> Any:
        self._lines.write(json.dumps([name, arguments]) + "\n")
        self._lines.flush()
        answer = json.loads(self._lines.readline())
        assert "failure" not in answer, answer["failure"] + self._log.read_text()[-4000:]
        return answer["answer"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines.close()
        self._socket.close()


@dataclass
class Engine:
    """An engine that is imported, and starts processes quickly."""

    path: str

    def __call__(self, **settings: Any) -> Process:
        return Process(self.path, settings)


@contextlib.contextmanager
def started(name: str, folder: Path) -> Iterator[Engine]:
    """The engine's environment with ``NAME_side`` of this folder."""
    variable = f"TIDEPOOL_{name.upper()}_PYTHON"
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no environment with {name}: nothing is proved about it")
    path, log = folder / "socket", folder / "log"
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    line = [python, str(HERE / "side.py"), f"{name}_side", str(path)]
    with log.open("w") as text:
        server = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=text, stderr=text, env=environment)
    try:

        def is_there() -> bool:
            assert server.poll() is None, log.read_text()[-4000:]
            return path.exists()

        eventually(f"{name} is imported", is_there, within=_IMPORT, shows=lambda: log.read_text()[-4000:])
        yield Engine(str(path))
    finally:
        assert server.stdin is not None
        server.stdin.close()
        code = server.wait(20)
    assert code == 0, log.read_text()[-4000:]


@dataclass
class Pool:
    """A master, and a ``mooncake_client`` that keeps blocks."""

    master: Master
    client: str


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    directory = Path(f"/dev/shm/tidepool-engines-{os.getpid()}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDEPOOL_DIR", str(directory))
        master, port = Master(), free_port()
        line = ["mooncake_client", f"--master_server_address={master.address}", "--global_segment_size=64MB"]
        keeper = subprocess.Popen([*line, f"--port={port}"], stderr=subprocess.PIPE, text=True)
        assert keeper.stderr is not None
        while "is mounted" not in keeper.stderr.readline():
            assert keeper.poll() is None
        yield Pool(master, f"127.0.0.1:{port}")
        keeper.terminate()
        assert keeper.wait(20) == 0
        assert master.stop() == 0
    # Processes of engines end by themselves, and leave nothing.
    eventually("no file is left", lambda: not any(directory.iterdir()), shows=lambda: list(directory.iterdir()))
    directory.rmdir()
