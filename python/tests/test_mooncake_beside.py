"""Mooncake's own wheel installed beside ours, before it and after it: which of them runs, and who says so."""

import importlib.metadata
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mooncake
import pytest

import tidepool

INIT = """
from pkgutil import extend_path
from mooncake.buffer_pool import BufferPool
__path__ = extend_path(__path__, __name__)
"""


def lay_theirs(site: Path, *, metadata: bool = True) -> None:
    """Files as Mooncake's wheel has them; a library that cannot be loaded stands for its store."""
    package = site / "mooncake"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text(INIT)
    (package / "buffer_pool.py").write_text("from mooncake.store import BufferPool\n")
    (package / "store.so").write_bytes(b"not a library")
    (package / "engine.py").write_text("TransferEngine = 'theirs'\n")
    if metadata:
        info = site / "mooncake_transfer_engine-0.3.13.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mooncake-transfer-engine\nVersion: 0.3.13\n")


def lay_ours(site: Path) -> None:
    """The installed files of both of our wheels."""
    assert mooncake.__file__ is not None
    shutil.copytree(Path(mooncake.__file__).parent, site / "mooncake", dirs_exist_ok=True)
    for name in ("tidepool", "tidepool-mooncake"):
        info = Path(str(importlib.metadata.distribution(name)._path))  # type: ignore[attr-defined]
        shutil.copytree(info, site / info.name)
    (site / "tidepool").symlink_to(Path(tidepool.__file__).parent)


def imported(site: Path, what: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-c", what]
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(line, capture_output=True, text=True, check=False, env=environment, cwd=site)


WHO = "from mooncake.store import MooncakeDistributedStore as S; print(S.__mro__[1].__module__)"


@pytest.mark.parametrize("order", [(lay_theirs, lay_ours), (lay_ours, lay_theirs)], ids=["ours last", "theirs last"])
def test_our_store_runs_in_either_order_and_its_import_says_what_lies_beside(
    tmp_path: Path, order: tuple[Callable[[Path], None], ...]
) -> None:
    for lay in order:
        lay(tmp_path)
    answer = imported(tmp_path, WHO)
    assert answer.stdout == "tidepool._native\n", answer.stderr
    assert answer.stderr.count("mooncake-transfer-engine 0.3.13 is installed beside tidepool-mooncake") == 1
    assert "Uninstall both and install one" in answer.stderr
    assert imported(tmp_path, "import mooncake.engine as e; print(e.TransferEngine)").stdout == "theirs\n"


def test_files_of_mooncakes_without_its_metadata_are_noticed_too(tmp_path: Path) -> None:
    lay_theirs(tmp_path, metadata=False)
    lay_ours(tmp_path)
    answer = imported(tmp_path, WHO)
    assert answer.stdout == "tidepool._native\n", answer.stderr
    assert "mooncake/store.so is installed beside tidepool-mooncake" in answer.stderr


def test_our_package_alone_warns_of_nothing(tmp_path: Path) -> None:
    lay_ours(tmp_path)
    answer = imported(tmp_path, WHO)
    assert (answer.stdout, answer.stderr) == ("tidepool._native\n", "")
