"""Bad input gets an error that says what is allowed, and never costs the process."""

import multiprocessing
import os
from pathlib import Path

import pytest

import tidepool
from tidepool import Pool


def test_keys_and_blocks_of_the_wrong_kind_are_named(pool: Pool) -> None:
    with pytest.raises(TypeError, match="a key is str or bytes, not int"):
        pool.get(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a block is bytes or a contiguous buffer"):
        pool.put("key", "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a destination is a writable contiguous buffer"):
        pool.get_into("key", b"read-only")
    with pytest.raises(TypeError, match="contiguous"):
        pool.put("key", memoryview(bytes(10))[::2])


@pytest.mark.parametrize("key", ["", "k" * 1025])
def test_keys_too_short_or_too_long_are_refused(pool: Pool, key: str) -> None:
    for call in (
        lambda: pool.put(key, b"x"),
        lambda: pool.get(key),
        lambda: pool.exists(key),
        lambda: pool.remove(key),
    ):
        with pytest.raises(tidepool.InvalidError, match="1024"):
            call()


def test_empty_blocks_and_short_or_overlapping_buffers_are_refused(pool: Pool) -> None:
    with pytest.raises(tidepool.InvalidError) as caught:
        pool.put("empty", b"")
    assert caught.value.key == "empty"
    pool.put("block", b"12345")
    with pytest.raises(tidepool.InvalidError, match="5 bytes are needed"):
        pool.get_into("block", bytearray(4))
    buffer = memoryview(bytearray(10))
    with pytest.raises(tidepool.InvalidError, match="overlap"):
        pool.get_many_into(["block", "block"], [buffer[:6], buffer[5:]])
    with pytest.raises(tidepool.InvalidError, match="2 keys and 1 buffers"):
        pool.get_many_into(["block", "block"], [buffer])


def test_settings_out_of_range_are_named(scratch: Path) -> None:
    for settings in ({"tcp_streams": 0}, {"deadline": 0.0}, {"verify": "never"}, {"deadline": float("nan")}):
        with pytest.raises(tidepool.InvalidError, match=f"{next(iter(settings))} is .*allowed"):
            Pool.connect([], dir=scratch, wait=None, **settings)  # type: ignore[arg-type]
    with pytest.raises(tidepool.InvalidError, match="nowhere"):
        tidepool.Catalog("nowhere")


def test_a_block_larger_than_every_node_says_so(pool: Pool) -> None:
    with pytest.raises(tidepool.NoSpaceError) as caught:
        pool.put("large", bytes(65 << 20))
    assert caught.value.key == "large"


def test_use_after_close_is_an_error(catalog: tidepool.Catalog, scratch: Path) -> None:
    pool = Pool.connect([catalog.address], dir=scratch)
    pool.close()
    pool.close()
    with pytest.raises(tidepool.ClosedError):
        pool.get("key")


def use_after_fork(pool: Pool) -> None:
    try:
        pool.get("key")
    except tidepool.ForkedError:
        os._exit(7)
    os._exit(1)


def test_a_forked_child_is_told_and_does_not_hang(pool: Pool) -> None:
    pool.put("key", b"value")
    child = multiprocessing.get_context("fork").Process(target=use_after_fork, args=(pool,))
    child.start()
    child.join(20)
    assert child.exitcode == 7
    assert pool.get("key") == b"value"


def test_a_forked_child_that_only_ends_does_not_hang(pool: Pool) -> None:
    child = multiprocessing.get_context("fork").Process(target=len, args=(b"",))
    child.start()
    child.join(20)
    assert child.exitcode == 0
