"""The stubs take what users write."""

import subprocess
import sys
from pathlib import Path

import tidepool

from .typed import ordinary

HERE = Path(__file__).parent


def test_ordinary_typed_code_runs(pool: tidepool.Pool) -> None:
    assert ordinary.use(pool) == [b"12", b"12", b"12", b"3", b"4", b"56", b"7", b"12", b"8"]


def test_ordinary_typed_code_passes_a_strict_checker() -> None:
    line = [sys.executable, "-m", "mypy", "--config-file", str(HERE.parent / "mypy.ini"), "--strict"]
    file = HERE / "typed" / "ordinary.py"
    answer = subprocess.run([*line, str(file)], capture_output=True, text=True, check=False, cwd=HERE)
    assert answer.returncode == 0, answer.stdout
