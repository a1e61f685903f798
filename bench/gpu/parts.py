"""What the tables are made with: engines and a pool as processes, and models that need no download."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tidepool

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "python" / "tests" / "vllm"))

from told import Told  # noqa: E402

#: A vLLM with weights made up on the spot starts in about half a minute.
START = 240
ANSWER = 240

#: The shape of Llama-3.1-8B: a block of 16 tokens is 2 MiB.
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
TOKEN_BYTES = 131072


def write_model(folder: Path, config: dict[str, Any]) -> Path:
    """A folder that vLLM takes for a model, without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


class Engine:
    """A vLLM in a process of its own, and another for its core; of a kind, as engine.py says."""

    def __init__(
        self,
        model: Path,
        connector: dict[str, Any] | None,
        kind: str = "shared",
        **options: Any,
    ) -> None:
        settings = {
            "dtype": "bfloat16",
            "load_format": "dummy",
            "enforce_eager": True,
            "max_model_len": 100_000,
            "max_num_batched_tokens": 16384,
            "enable_prefix_caching": True,
            "seed": 0,
            **options,
        }
        if connector is not None:
            settings["kv_transfer_config"] = connector
        environment = {
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "PYTHONHASHSEED": "0",
            "VLLM_HOST_IP": "127.0.0.1",
            "HF_HUB_OFFLINE": "1",
            "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "INFO"),
        }
        line = [sys.executable, str(HERE / "engine.py"), kind, str(model), json.dumps(settings)]
        self._told = Told(line, environment)
        self.log, self.order = self._told.log, self._told.order
        self._names = count()

    def ready(self) -> "Engine":
        self._told.wait_until_ready(START)
        return self

    def ask(self, prompt: list[list[int]], tokens: int = 1) -> Any:
        return self.order("generate", name=f"r{next(self._names)}", prompt=prompt, tokens=tokens).result(ANSWER)

    def numbers(self) -> dict[str, float]:
        """What the connector has counted, as of a step that begins now."""
        self.ask([[1, 16]])
        counted: dict[str, float] = self.order("numbers").result(ANSWER)
        return counted

    def forget(self) -> None:
        self.order("forget").result(ANSWER)

    def nap(self) -> None:
        self.order("nap").result(ANSWER)

    def end(self) -> None:
        try:
            self._told.end(20)
        except subprocess.TimeoutExpired:
            self._told.kill()


def end_all(engines: list[Engine]) -> None:
    """All at once: each takes seconds."""
    threads = [threading.Thread(target=engine.end) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Pool:
    """A catalog and a node on this host."""

    def __init__(self, capacity: str) -> None:
        self._dir = tempfile.mkdtemp(dir="/dev/shm", prefix="tidepool-bench-")
        self._catalog = started("catalog", listen="127.0.0.1:0", metrics_listen="127.0.0.1:0")
        self._address: str = ready(self._catalog)["catalog"]["listen"]
        self._node = started(
            "node",
            dir=self._dir,
            capacity=capacity,
            smallest_expected_block="256KiB",
            data_listen="127.0.0.1:0",
            metrics_listen="127.0.0.1:0",
            catalogs=self._address,
        )
        self._is_ready = False

    def ready(self) -> "Pool":
        """Waits for the node, which touches all of its memory first: engines may start meanwhile."""
        self._is_ready = self._is_ready or bool(ready(self._node))
        return self

    def connector(self, **settings: Any) -> dict[str, Any]:
        return {
            "kv_connector": "TidepoolConnector",
            "kv_connector_module_path": "tidepool.vllm",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {
                "catalogs": [self._address],
                "dir": self._dir,
                "weights_id": "made up",
                **settings,
            },
        }

    def client(self, **options: Any) -> "tidepool.Pool":
        # Here, so that a Python without it is told what it lacks.
        import tidepool

        self.ready()
        return tidepool.Pool.connect([self._address], dir=self._dir, **options)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in (self._node, self._catalog):
            process.terminate()
            process.wait(60)
        # Whatever it leaves must not cost the table.
        shutil.rmtree(self._dir, ignore_errors=True)


def started(command: str, **flags: str) -> subprocess.Popen[str]:
    """A server of the pool, which says in a line of JSON when it is ready."""
    line = [sys.executable, "-m", "tidepool", command, "--json"]
    line += [f"--{name.replace('_', '-')}={value}" for name, value in flags.items()]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def ready(server: subprocess.Popen[str]) -> Any:
    assert server.stdout is not None
    said = server.stdout.readline()
    assert said, f"{server.args!r} has ended"
    return json.loads(said)
