"""Real vLLM, in its own environment, on a small model.

The environment's Python is named by ``TIDEPOOL_VLLM_PYTHON``; scripts/python_tests.sh makes it and sets it.
"""

import json
import math
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..mooncake_store.conftest import Master, free_port
from .engines import LIMIT, Engine, environment

HERE = Path(__file__).parent


@dataclass
class Vllm:
    """Runs instances of vLLM and returns what they report."""

    python: str
    model: Path
    environment: dict[str, str]

    def run(self, connector: dict[str, Any] | None, *lengths: int, **variables: str) -> dict[int, Any]:
        """One instance of its own; its reports by length."""
        reports = self.reports("instance.py", connector, *lengths, **variables)
        return {report["length"]: report for report in reports}

    def reports(
        self, script: str, connector: dict[str, Any] | None, *arguments: int, **variables: str
    ) -> list[dict[str, Any]]:
        """What a script beside this file has to say, which it does in lines ``RESULT {...}``."""
        configuration = "none" if connector is None else json.dumps(connector)
        line = [self.python, str(HERE / script), str(self.model), configuration, *map(str, arguments)]
        environment = {**os.environ, **self.environment, **variables}
        ended = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
        said = (text.removeprefix("RESULT ") for text in ended.stdout.splitlines() if text.startswith("RESULT "))
        return [json.loads(report) for report in said]

    def engine(self, connector: dict[str, Any] | None, model: Path | None = None, **variables: str) -> Engine:
        """One that does what it is told; :func:`running` waits until it can."""
        return Engine(self.python, model or self.model, connector, {**self.environment, **variables})

    def make_model(self, folder: Path, seed: int, *more: int) -> Path:
        line = [self.python, str(HERE / "model.py"), str(folder), *map(str, (seed, *more))]
        subprocess.run(line, check=True, capture_output=True, timeout=LIMIT)
        return folder


def same_output(one: Any, other: Any) -> bool:
    """The same tokens, with log-probabilities that differ by rounding only."""
    if one["tokens"] != other["tokens"] or one["logprobs"].keys() != other["logprobs"].keys():
        return False
    return all(
        math.isclose(one["logprobs"][token], other["logprobs"][token], abs_tol=1e-4) for token in one["logprobs"]
    )


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Vllm:
    python = os.environ.get("TIDEPOOL_VLLM_PYTHON")
    if not python:
        pytest.skip("TIDEPOOL_VLLM_PYTHON names no environment with vLLM: nothing is proved about it")
    folder = tmp_path_factory.mktemp("models") / "model"
    subprocess.run([python, str(HERE / "model.py"), str(folder)], check=True, capture_output=True, timeout=LIMIT)
    return Vllm(python, folder, environment(tmp_path_factory.mktemp("sockets")))


@dataclass
class Pool:
    """A master and a process that keeps the blocks."""

    master: Master
    settings: Path
    directory: Path


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    directory = Path(f"/dev/shm/tidepool-vllm-{os.getpid()}")
    monkeypatch.setenv("TIDEPOOL_DIR", str(directory))
    master = Master()
    line = ["mooncake_client", f"--master_server_address={master.address}", "--global_segment_size=512MB"]
    keeper = subprocess.Popen([*line, f"--port={free_port()}"], stderr=subprocess.PIPE, text=True)
    assert keeper.stderr is not None
    while "is mounted" not in keeper.stderr.readline():
        assert keeper.poll() is None
    settings = tmp_path / "mooncake.json"
    settings.write_text(
        json.dumps(
            {
                "metadata_server": "P2PHANDSHAKE",
                "master_server_address": master.address,
                "protocol": "tcp",
                "device_name": "",
                "mode": "standalone-store",
                "global_segment_size": 0,
                "local_buffer_size": 64 << 20,
            }
        )
    )
    yield Pool(master, settings, directory)
    keeper.terminate()
    assert keeper.wait(20) == 0
    assert master.stop() == 0
    assert list(directory.glob("*")) == []
    directory.rmdir()
