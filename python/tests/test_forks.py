"""A forked child connects anew, and is well."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

import tidepool

from .mooncake_store.conftest import Master
from .test_mooncake_removals import segment


def test_a_forked_child_that_connects_anew_is_well(monkeypatch: pytest.MonkeyPatch, scratch: Path) -> None:
    """One in ten ended with a broken heap: locks had kept lists of the parent's sleeping threads, in memory that the
    child had given to its own."""
    monkeypatch.setenv("TIDEPOOL_DIR", str(scratch))
    master = Master()
    with segment(master), tidepool.Pool.connect([master.address], dir=scratch) as pool:
        pool.put("key", b"value")
        ended: Counter[int] = Counter()
        for _ in range(100):
            pool.get("key")
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                tidepool.Node("child", 1 << 20, [master.address], dir=scratch, listen="127.0.0.1:0").close()
                os._exit(0)
            ended[os.waitpid(child, 0)[1]] += 1
    assert master.stop() == 0
    assert ended == {0: 100}
