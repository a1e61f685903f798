"""Connector against connector: two vLLMs on Tidepool, two on Mooncake through vLLM's own connector.

In each pair one computes prompts and the other, another process, restores them: the time to its first token counts.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sides import Side

PYTHON = Path(__file__).parent.parent
TESTS = PYTHON / "tests" / "vllm"
sys.path.append(str(PYTHON))
from tests.vllm.engines import Engine, TidePool, environment  # noqa: E402 - the vLLMs that tests run, too

TOKENS = 8192
BLOCK = 128
#: A vLLM's workers poll without a pause for a second after their last request: on two cores that is one less for the
#: other side, whose turn it is then.
AT_REST = 2.0
#: One core computes and one is left for vLLM's other process, which polls for its answer, as vLLM shares them out by
#: itself. With two that compute, each of their many meetings at times waits for the one whose core the polling has:
#: 0.2 s instead of 0.005 between a load and the model's first layer, with either connector.
COMPUTING_CORES = "1"


def restore(python: str, tidepool: str, mooncake: Side, samples: int) -> list[list[float]]:
    """Seconds to the first token of restored prompts: Tidepool's, Mooncake's. The first of each is a warm-up."""
    os.environ["PATH"] = f"{tidepool}/bin:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        subprocess.run([python, str(TESTS / "model.py"), str(model)], check=True, capture_output=True)
        pool = TidePool()
        engines: list[Engine] = []
        try:
            pool.add_node("1GiB")
            lanes = [
                (pool.connector(), {"PYTHONPATH": packages(tidepool)}),
                stock(Path(folder), mooncake),
            ]
            prompts = [(seed, TOKENS) for seed in range(samples + 1)]

            def start(lane: tuple[Any, dict[str, str]]) -> Engine:
                variables = {"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": COMPUTING_CORES} | lane[1]
                engine = Engine(python, model, lane[0], environment(Path(folder), **variables))
                engines.append(engine)
                engine.wait_until_ready()
                return engine

            computed = []
            for lane in lanes:
                engine = start(lane)
                computed.append([engine.ask(prompt, tokens=1)[0] for prompt in prompts])
                # What was computed is stored in the background.
                time.sleep(2)
            readers = [start(lane) for lane in lanes]
            times: list[list[float]] = [[], []]
            for number, prompt in enumerate(prompts):
                for reader, expected, kept in zip(readers, computed, times, strict=True):
                    time.sleep(AT_REST)
                    answer = reader.ask(prompt, tokens=1)[0]
                    assert answer["cached"] >= TOKENS - BLOCK, answer["cached"]
                    assert answer["tokens"] == expected[number]["tokens"], "restored blocks are not the computed ones"
                    if number:
                        kept.append(answer["seconds"])
            return times
        finally:
            for engine in engines:
                ended(engine)
            pool.close()


def ended(engine: Engine) -> None:
    """Ends it with the processes that it has started, which a kill would leave."""
    try:
        engine.end()
    except subprocess.TimeoutExpired:
        engine.kill()


def stock(folder: Path, mooncake: Side) -> tuple[Any, dict[str, str]]:
    """vLLM's own connector over Mooncake's wheel, whose segment is in the engine, as its documentation has it."""
    settings = folder / "mooncake.json"
    settings.write_text(
        json.dumps(
            {
                "metadata_server": "P2PHANDSHAKE",
                "master_server_address": mooncake.address,
                "protocol": "tcp",
                "device_name": "",
                "global_segment_size": 1 << 30,
                "local_buffer_size": 256 << 20,
            }
        )
    )
    # Mooncake alone, not all that its environment has beside it.
    alone = folder / "packages"
    alone.mkdir()
    for part in Path(packages(str(Path(mooncake.path).parent))).glob("mooncake*"):
        (alone / part.name).symlink_to(part)
    connector = {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}
    return connector, {"PYTHONPATH": str(alone), "MOONCAKE_CONFIG_PATH": str(settings)}


def packages(environment: str) -> str:
    [found] = Path(environment).glob("lib/python3*/site-packages")
    return str(found)
