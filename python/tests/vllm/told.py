"""A program that is told what to do: orders are lines of JSON, answers lines ``ANSWER {...}``, the rest is its log."""

import json
import os
import subprocess
import threading
from concurrent.futures import Future
from typing import Any


class Told:
    """Such a program, whose first answer is that it is ready."""

    def __init__(self, line: list[str], environment: dict[str, str]) -> None:
        self._log: list[str] = []
        self._waiting: dict[str, Future[Any]] = {"ready": Future()}
        self._ready = self._waiting["ready"]
        self._last = 0
        #: Held while a line is written: threads may order at once.
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            line,
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
                said = json.loads(line.removeprefix("ANSWER "))
                waiting = self._waiting.pop(said["id"])
                if "error" in said:
                    waiting.set_exception(RuntimeError(said["error"] + "\n" + self.log()[-8000:]))
                else:
                    waiting.set_result(said["answer"])
            else:
                self._log.append(line)
        for waiting in list(self._waiting.values()):
            waiting.set_exception(RuntimeError("the program has ended:\n" + self.log()[-20000:]))

    def log(self) -> str:
        return "".join(self._log)

    def wait_until_ready(self, limit: float) -> None:
        self._ready.result(limit)

    def order(self, do: str, **arguments: Any) -> "Future[Any]":
        """Tells it to do something, and does not wait."""
        with self._lock:
            self._last += 1
            name = str(self._last)
            future: Future[Any] = Future()
            self._waiting[name] = future
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": name, "do": do, **arguments}) + "\n")
            self._process.stdin.flush()
        return future

    def end(self, patience: float) -> int:
        """Ends it in order, by the end of its orders; the answer is its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(patience)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
