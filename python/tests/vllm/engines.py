"""Engines and pools as processes, for tests: each is told what to do, and can be stopped and killed."""

import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

HERE = Path(__file__).parent
#: A vLLM on two slow cores starts in under a minute.
LIMIT = 400
_ENDED = object()


class Engine:
    """A vLLM that runs ``serve.py``."""

    def __init__(self, python: str, model: Path, connector: dict[str, Any] | None, environment: dict[str, str]) -> None:
        configuration = "none" if connector is None else json.dumps(connector)
        self._log: list[str] = []
        self._answers: Queue[Any] = Queue()
        self._process = subprocess.Popen(
            [python, str(HERE / "serve.py"), str(model), configuration],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                self._answers.put(json.loads(line.removeprefix("ANSWER ")))
            else:
                self._log.append(line)
        self._answers.put(_ENDED)

    def log(self) -> str:
        return "".join(self._log)

    def answer(self) -> Any:
        """What it answers to the oldest order that has no answer yet."""
        answer = self._answers.get(timeout=LIMIT)
        assert answer is not _ENDED, self.log()[-4000:]
        return answer

    def order(self, do: str, **arguments: Any) -> None:
        """Tells it to do something, and does not wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def tell(self, do: str, **arguments: Any) -> Any:
        self.order(do, **arguments)
        return self.answer()

    def ask(self, *prompts: Any, tokens: int = 8, params: Any = None) -> list[Any]:
        """Generates for prompts, all at once: each a (seed, length), or tokens."""
        answers: list[Any] = self.tell("ask", prompts=prompts, tokens=tokens, params=params)
        return answers

    def number(self, name: str) -> int:
        return int(self.tell("metrics").get(f"vllm:{name}", 0))

    def end(self) -> int:
        """Ends it in order; the answer is its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class TidePool:
    """A catalog and nodes, as programs."""

    def __init__(self) -> None:
        self.dir = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="tidepool-vllm-"))
        self._programs: list[subprocess.Popen[str]] = []
        catalog, addresses = self._start("catalog", "--listen=127.0.0.1:0")
        self.catalog, self.address = catalog, addresses["catalog"]["listen"]
        self.nodes: list[subprocess.Popen[str]] = []

    def add_node(self, capacity: str = "512MiB") -> "subprocess.Popen[str]":
        line = [
            f"--name=n{len(self.nodes)}",
            f"--dir={self.dir}",
            f"--capacity={capacity}",
            "--data-listen=127.0.0.1:0",
        ]
        self.nodes.append(self._start("node", *line, f"--catalogs={self.address}")[0])
        return self.nodes[-1]

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
        assert engine.answer() == "ready"
        yield engine
        assert engine.end() == 0, engine.log()[-4000:]
    finally:
        engine.kill()
