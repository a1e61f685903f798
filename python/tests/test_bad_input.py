"""Bad input gets an error that says what is allowed, and never costs the process."""

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mooncake.store import MooncakeDistributedStore

import tidepool
from tidepool import Pool

from .waiting import eventually


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


def test_numbers_out_of_range_and_lone_addresses_say_what_is_allowed(pool: Pool, scratch: Path) -> None:
    """They were the interpreter's own errors, which do not say what is allowed."""
    calls = (
        (lambda: pool.get("key", start=-1), "-1", "start"),
        (lambda: pool.get_into("key", bytearray(1), stop=1 << 64), str(1 << 64), "stop"),
        (lambda: pool.put("key", b"1", replicas=-1), "-1", "replicas"),
        (lambda: pool.put_many({"key": b"1"}, replicas=1 << 32), str(1 << 32), "replicas"),
        (lambda: Pool.connect([], dir=scratch, wait=None, copy_threads=-2), "-2", "copy_threads"),
        (lambda: tidepool.Node("negative", -1, [], dir=scratch), "-1", "capacity"),
    )
    for call, number, argument in calls:
        with pytest.raises(tidepool.InvalidError, match=f"^{number} is out of range: allowed is 0 to ") as caught:
            call()
        assert argument in caught.value.__notes__[0]
    for named in (lambda: Pool.connect("host:1"), lambda: tidepool.Node("one", 1 << 20, "host:1", dir=scratch)):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r'a list like \["127.0.0.1:7411"\], not str'):
            named()
    with pytest.raises(tidepool.InvalidError, match="threads is 0: allowed is 1 or more"):
        tidepool.AsyncPool(pool, threads=0)
    with pytest.raises(tidepool.InvalidError, match="deadline is 1e300: allowed"):
        pool.get("key", deadline=1e300)


def test_a_bad_argument_is_an_invalid_error_whatever_it_is_for(pool: Pool, scratch: Path) -> None:
    """Some were a bare TidepoolError, others an OverflowError; two said that 0 is not allowed, where it is."""

    def node(capacity: int = 1 << 20, **settings: Any) -> object:
        return tidepool.Node("bad", capacity, [], dir=settings.pop("dir", scratch), **settings)

    calls: tuple[tuple[Callable[[], object], str], ...] = (
        (lambda: node(0), "capacity 0B with blocks of 4KiB: a pool has 1 to"),
        (lambda: node(smallest_expected_block=0), "with blocks of 0B: a pool has 1 to"),
        (lambda: node(eviction="fifo"), 'eviction is "fifo": allowed are "lru", "s3fifo"'),
        (lambda: node(listen="nowhere"), 'listen: "nowhere" is no address: allowed is host:port'),
        (lambda: node(listen="127.0.0.1:99999"), "with a port up to 65535"),
        (lambda: node(dir="a\0b"), "unexpected NUL byte"),
        (lambda: tidepool.Catalog("127.0.0.1:0", lease=-1), "lease is -1.0: allowed is 0, or a number of seconds"),
        (lambda: tidepool.Catalog("127.0.0.1:0", suspect_after=9.0), "dead_after = 5s: more than suspect_after"),
        (lambda: tidepool.Catalog("127.0.0.1:0", dead_after=10**400), "dead_after is inf: allowed is a number"),
        (lambda: pool.drain("nobody", 1), "no node named nobody is known"),
        (lambda: pool.drain("node-0", -1), "seconds is -1.0: allowed is 0, or a number of seconds"),
        (lambda: pool.get("key", deadline=-(10**400)), "deadline is -inf: allowed is a number of seconds above 0"),
        (lambda: pool.get("key", start=np.int64(-1)), "^-1 is out of range: allowed is 0 to"),
    )
    for call, message in calls:
        with pytest.raises(tidepool.InvalidError, match=message):
            call()
    for wrong in (5, ["key", b"block"], ("key",)):
        with pytest.raises(TypeError, match=r"an item of blocks is a pair \(key, block\), not"):
            pool.put_many([wrong])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="integer"):
        tidepool.AsyncPool(pool, threads=1.5)  # type: ignore[arg-type]


def test_a_number_that_is_much_too_long_is_not_repeated_whole(pool: Pool) -> None:
    """Of one with thousands of digits the interpreter wrote an error of its own to the log."""
    with pytest.raises(tidepool.InvalidError, match=r"^10{39}\.\.\. is out of range: allowed is 0 to"):
        pool.get("key", start=10**300)
    with pytest.raises(tidepool.InvalidError, match="a number of thousands of digits is out of range"):
        pool.get("key", start=10**5000)
    with pytest.raises(TypeError, match="a number of thousands of digits: allowed are whole numbers"):
        MooncakeDistributedStore().register_buffer(0, 10**5000)


def test_an_empty_pattern_removes_nothing(pool: Pool) -> None:
    """It is found in every key, so it emptied the pool; a variable that was not set is more likely than that wish."""
    pool.put("kept", b"block")
    with pytest.raises(tidepool.InvalidError, match=r"found in every key: remove_all\(\) removes every block"):
        pool.remove_matching("")
    assert pool.get("kept") == b"block"
    assert pool.remove_matching("^kept$").copies == 1


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


def use_async_after_fork(pool: tidepool.AsyncPool) -> None:
    try:
        asyncio.run(pool.get("key"))
    except tidepool.ForkedError:
        os._exit(7)
    os._exit(1)


def test_a_forked_child_of_an_async_pool_is_told_too(pool: Pool) -> None:
    """It waited for ever, for a thread that only the parent has."""
    both = tidepool.AsyncPool(pool)
    asyncio.run(both.put("key", b"value"))
    child = multiprocessing.get_context("fork").Process(target=use_async_after_fork, args=(both,))
    child.start()
    child.join(20)
    assert child.exitcode == 7


def test_a_wait_of_more_than_a_year_is_refused(pool: Pool) -> None:
    """The moment at which it ends overflowed, which was a panic."""
    with pytest.raises(tidepool.InvalidError, match=r"like 0\.5, up to a year"):
        pool.get("key", deadline=1e19)


def test_what_is_no_list_of_keys_is_named(pool: Pool) -> None:
    class Places:
        """As an array has them, which is not registered as a sequence."""

        def __len__(self) -> int:
            return 2

        def __getitem__(self, place: int) -> str:
            return ["key", "other"][place]

    one = {"key": 1}
    for wrong, name in (("key", "str"), (b"key", "bytes"), (set(one), "set"), (one, "dict"), (None, "NoneType")):
        with pytest.raises(TypeError, match=f"keys is a list or another sequence of them, not {name}"):
            pool.exists_many(wrong)  # type: ignore[arg-type]
    assert pool.exists_many(("key", b"other")) == [False, False]
    assert pool.exists_many(Places()) == [False, False]  # type: ignore[arg-type]


def test_a_node_is_not_started_with_addresses_that_cannot_be(scratch: Path) -> None:
    """It started, and could never be found."""
    with pytest.raises(tidepool.InvalidError, match='catalogs: "no-port" is no address: allowed is host:port'):
        tidepool.Node("nowhere", 16 << 20, ["no-port"], dir=scratch)
    with pytest.raises(tidepool.InvalidError, match='advertise: "host:99999" is no address'):
        tidepool.Node("nowhere", 16 << 20, ["127.0.0.1:1"], dir=scratch, advertise="host:99999")


def test_a_key_that_is_much_too_long_is_not_repeated_whole(pool: Pool) -> None:
    with pytest.raises(tidepool.InvalidError) as raised:
        pool.get("x" * 1_000_000)
    assert len(str(raised.value)) < 2000
    assert raised.value.key == "x" * 1_000_000


def test_a_forked_child_that_only_ends_does_not_hang(pool: Pool) -> None:
    child = multiprocessing.get_context("fork").Process(target=len, args=(b"",))
    child.start()
    child.join(20)
    assert child.exitcode == 0


def test_a_bad_key_among_many_is_named(pool: Pool) -> None:
    long = "k" * 1025
    for call in (
        lambda: pool.exists_many(["good", long]),
        lambda: pool.match_prefix([["good"], ["good", long]]),
        lambda: pool.remove_many(["good", long]),
    ):
        with pytest.raises(tidepool.InvalidError) as caught:
            call()
        assert caught.value.key == long
    with pytest.raises(tidepool.InvalidError, match="lone surrogate"):
        pool.get("\udc80")


def test_buffers_of_one_block_that_overlap_are_refused(pool: Pool) -> None:
    pool.put("block", b"12345")
    buffer = memoryview(bytearray(8))
    with pytest.raises(tidepool.InvalidError, match="overlap"):
        pool.get_into("block", [buffer[:4], buffer[3:]])


def test_a_range_ends_inside_its_block_whichever_end_is_given(pool: Pool) -> None:
    pool.put("block", b"12345")
    assert pool.get("block", start=3) == b"45"
    assert pool.get("block", start=5) == b""
    assert pool.get("block", stop=2) == b"12"
    for start, stop in ((6, None), (None, 100), (1 << 63, None)):
        with pytest.raises(tidepool.InvalidError, match="in a block of 5 bytes") as caught:
            pool.get("block", start=start, stop=stop)
        assert caught.value.key == "block"


def test_no_replica_at_all_cannot_be_asked_for(pool: Pool) -> None:
    with pytest.raises(tidepool.InvalidError, match="replicas is 0: allowed is 1 or more"):
        pool.put("block", b"1", replicas=0)
    with pytest.raises(tidepool.InvalidError, match="replicas is 0"):
        pool.put_many({"block": b"1"}, replicas=0)


def test_nodes_of_which_no_catalog_tells_are_in_no_state(scratch: Path) -> None:
    catalog = tidepool.Catalog("127.0.0.1:0")
    node = tidepool.Node("forgotten", 16 << 20, [catalog.address], dir=scratch)
    with Pool.connect([catalog.address], dir=scratch, local=False) as pool:
        assert [(n.name, n.state) for n in pool.nodes()] == [("forgotten", "alive")]
        node.close()
        catalog.close()
        assert [n.state for n in pool.nodes(deadline=1.0)] == [None]


def test_a_node_that_stopped_in_order_has_left(scratch: Path) -> None:
    """It was "dead", like one that had crashed."""
    with tidepool.Catalog("127.0.0.1:0") as catalog, Pool.connect([catalog.address], dir=scratch, wait=None) as pool:
        tidepool.Node("leaving", 16 << 20, [catalog.address], dir=scratch).close()
        eventually("it has left", lambda: [node.state for node in pool.nodes()] == ["left"], shows=pool.nodes)
