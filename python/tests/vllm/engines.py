"""Engines and pools as processes, for tests: each is told what to do, and can be stopped and killed."""

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .told import Told

HERE = Path(__file__).parent
#: A vLLM on two slow cores starts in under a minute.
LIMIT = 400


def environment(sockets: Path, **variables: str) -> dict[str, str]:
    """What a vLLM on two cores runs with. It leaves its processes' sockets behind: in a folder of the caller's."""
    return {
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "2",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_RPC_BASE_PATH": str(sockets),
        **variables,
    }


class Engine:
    """A vLLM that runs ``serve.py``."""

    def __init__(self, python: str, model: Path, connector: dict[str, Any] | None, environment: dict[str, str]) -> None:
        configuration = "none" if connector is None else json.dumps(connector)
        self._told = Told([python, str(HERE / "serve.py"), str(model), configuration], environment)
        self.log, self.order, self.kill = self._told.log, self._told.order, self._told.kill

    def tell(self, do: str, **arguments: Any) -> Any:
        return self.order(do, **arguments).result(LIMIT)

    def ask(self, *prompts: Any, tokens: int = 8, params: Any = None) -> list[Any]:
        """Generates for prompts, all at once: each a (seed, length), or tokens."""
        answers: list[Any] = self.tell("ask", prompts=prompts, tokens=tokens, params=params)
        return answers

    def number(self, name: str) -> int:
        return int(self.tell("metrics").get(f"vllm:{name}", 0))

    def wait_until_ready(self) -> None:
        self._told.wait_until_ready(LIMIT)

    def end(self) -> int:
        """Ends it in order; the answer is its exit status."""
        return self._told.end(60)


class TidePool:
    """A catalog and nodes, as programs."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="tidepool-vllm-"))
        self._programs: list[subprocess.Popen[str]] = []
        catalog, addresses = self._start("catalog", "--listen=127.0.0.1:0")
        self.catalog, self.address = catalog, addresses["catalog"]["listen"]
        self.nodes: list[subprocess.Popen[str]] = []
        #: Where each of them takes what other hosts ask.
        self.data_ports: list[int] = []

    def add_node(self, capacity: str = "512MiB") -> "subprocess.Popen[str]":
        line = [
            f"--name=n{len(self.nodes)}",
            f"--dir={self.dir}",
            f"--capacity={capacity}",
            "--data-listen=127.0.0.1:0",
        ]
        node, addresses = self._start("node", *line, f"--catalogs={self.address}")
        self.nodes.append(node)
        self.data_ports.append(int(addresses["node"]["data-listen"].rpartition(":")[2]))
        return node

    def _start(self, *line: str) -> tuple["subprocess.Popen[str]", Any]:
        program = subprocess.Popen(
            ["tidepool", *line, "--metrics-listen=127.0.0.1:0", "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._programs.append(program)
        assert program.stdout is not None
        return program, json.loads(program.stdout.readline())

    def connector(self, **settings: Any) -> dict[str, Any]:
        """A connector's configuration for this pool."""
        return {
            "kv_connector": "TidepoolConnector",
            "kv_connector_module_path": "tidepool.vllm",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"catalogs": [self.address], "dir": str(self.dir), **settings},
        }

    def close(self) -> None:
        for program in reversed(self._programs):
            program.send_signal(signal.SIGCONT)
            program.terminate()
            program.wait(20)
        for left in self.dir.iterdir():
            left.unlink()
        self.dir.rmdir()


def running(engine: Engine) -> Iterator[Engine]:
    """A fixture's engine, from ready to end."""
    try:
        engine.wait_until_ready()
        yield engine
        assert engine.end() == 0, engine.log()[-4000:]
    finally:
        engine.kill()
