"""The promises in ``units.py`` and the programs beside it, with the classes of vLLM 0.32 and of 0.26."""

import os
import subprocess
from pathlib import Path

import pytest

from .conftest import HERE, Vllm

ROOT = HERE.parent.parent.parent


def run_units(vllm: Vllm, *first: Path, **variables: str) -> None:
    path = os.pathsep.join([*map(str, first), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, **vllm.environment, "VLLM_LOGGING_LEVEL": "ERROR", "PYTHONPATH": path, **variables}
    for program in ("units.py", "identities.py", "siblings.py", "layouts.py", "sessions.py"):
        line = [vllm.python, str(HERE / program), str(vllm.model)]
        ended = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600, check=False)
        assert ended.returncode == 0, ended.stderr[-8000:]
        assert "\nOK" in ended.stderr


def test_with_the_classes_of_this_vllm(vllm: Vllm) -> None:
    run_units(vllm)


def test_with_the_classes_of_vllm_0_26(vllm: Vllm) -> None:
    """Its scheduler, cache manager and connector base; the model is simulated either way."""
    fetched = subprocess.run(
        [ROOT / "scripts/vllm_sources.sh", "0.26.0"], capture_output=True, text=True, timeout=900, check=False
    )
    if fetched.returncode:
        pytest.skip(f"the sources of vLLM 0.26 could not be had, so nothing is proved about it: {fetched.stderr}")
    # Before 0.32, hashes of two processes are equal only with this.
    run_units(vllm, Path(fetched.stdout.strip()), PYTHONHASHSEED="0")
