"""The native interface, over shared memory and over TCP."""

import threading
import warnings
from pathlib import Path

import numpy as np
import pytest

import tidepool
from tidepool import Pool


def content(seed: int, size: int) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def test_what_is_put_is_got_back(pool: Pool) -> None:
    for size in (1, 17, 4096, 131_073, 3 << 20):
        block = content(size, size)
        assert pool.put(f"size/{size}", block).moved
        assert pool.get(f"size/{size}") == block
    assert pool.get("nothing") is None


def test_a_key_is_text_or_bytes_and_both_name_the_same_block(pool: Pool) -> None:
    pool.put("ключ", b"value")
    assert pool.get("ключ".encode()) == b"value"
    pool.put(b"\xff\x00", b"binary")
    assert pool.get(b"\xff\x00") == b"binary"
    assert {key for key, _, _ in pool.list_blocks()} == {"ключ", b"\xff\x00"}


def test_a_key_that_the_pool_holds_moves_nothing(pool: Pool) -> None:
    assert pool.put("once", b"first").moved
    assert not pool.put("once", b"second").moved
    assert pool.get("once") == b"first"


def test_buffers_of_any_kind_go_in_and_out_in_pieces(pool: Pool) -> None:
    array = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    pool.put("array", array)
    back = np.empty_like(array)
    assert pool.get_into("array", back) == array.nbytes
    assert np.array_equal(back, array)
    pool.put("parts", [b"ab", bytearray(b"cd"), memoryview(b"xefx")[1:3]])
    first, second = bytearray(1), bytearray(5)
    assert pool.get_into("parts", [first, second]) == 6
    assert bytes(first + second) == b"abcdef"


def test_a_range_is_read_alone(pool: Pool) -> None:
    block = content(1, 400_000)
    pool.put("ranged", block)
    assert pool.get("ranged", start=131_000, stop=132_000) == block[131_000:132_000]
    assert pool.get("ranged", start=399_990) == block[399_990:]
    into = bytearray(10)
    assert pool.get_into("ranged", into, start=5, stop=15) == 10
    assert into == block[5:15]
    with pytest.raises(tidepool.InvalidError, match="400001"):
        pool.get("ranged", start=0, stop=400_001)


def test_batches_answer_key_by_key(pool: Pool) -> None:
    stored = pool.put_many({"a": b"1", b"b": [b"2", b"2"], "": b"3"})
    assert [type(answer) for answer in stored] == [tidepool.Stored, tidepool.Stored, tidepool.InvalidError]
    assert stored[2].key == ""
    assert pool.put_many([("c", b"33")])[0].replicas == 1
    assert pool.get_many(["a", "b", "absent", "c"]) == [b"1", b"22", None, b"33"]
    assert pool.exists_many(["a", "absent"]) == [True, False]
    into = [bytearray(2) for _ in range(3)]
    answers = pool.get_many_into(["c", "absent", "a"], into)
    assert answers == [2, None, 1]
    assert into[0] == b"33"
    short = pool.get_many_into(["c", "a"], [bytearray(1), bytearray(1)])
    assert isinstance(short[0], tidepool.InvalidError)
    assert short[0].key == "c"
    assert short[1] == 1


def test_a_view_shows_the_bytes_until_it_is_closed(pool: Pool) -> None:
    block = content(2, 100_000)
    pool.put("viewed", block)
    view = pool.view("viewed")
    assert view is not None
    with view:
        look = memoryview(view)
        assert look.readonly
        assert len(view) == len(block)
        pool.remove("viewed")
        assert look == block
        with pytest.raises(BufferError, match="release"):
            view.close()
        look.release()
    with pytest.raises(tidepool.ClosedError):
        memoryview(view)
    assert pool.view("viewed") is None


def test_prefixes_are_matched_in_one_call(pool: Pool) -> None:
    pool.put_many({f"chain/{n}": b"x" for n in (0, 1, 2, 4)})
    match = pool.match_prefix([[f"chain/{n}" for n in range(6)], ["chain/4"], []])
    assert match.runs == [3, 1, 0]
    assert match.shortest == 0


def test_replicas_and_copies_are_where_they_were_asked_for(pool: Pool) -> None:
    assert pool.put("two", b"x" * 1000, replicas=2).replicas == 2
    assert {copy.node for copy in pool.describe("two")} == {"node-0", "node-1"}
    pool.put("one", b"x" * 1000, prefer="node-1")
    assert [copy.node for copy in pool.describe("one")] == ["node-1"]
    pool.move_to("one", "node-0")
    assert [copy.node for copy in pool.describe("one")] == ["node-0"]
    with pytest.raises(tidepool.NotFoundError):
        pool.copy_to("absent", "node-0")


def test_fewer_copies_than_were_asked_for_are_a_success_that_says_so(pool: Pool) -> None:
    stored = pool.put("few", b"x" * 1000, replicas=99)
    assert (stored.replicas, stored.wanted) == (2, 99)
    assert repr(stored) == "Stored(replicas=2, wanted=99, moved=True)"
    assert len(pool.describe("few")) == 2
    [many] = pool.put_many({"few of many": b"x" * 1000}, replicas=3)
    assert isinstance(many, tidepool.Stored)
    assert (many.replicas, many.wanted) == (2, 3)
    assert repr(pool.put("enough", b"x", replicas=2)) == "Stored(replicas=2, moved=True)"


def test_a_preference_for_a_node_that_nobody_knows_is_heard_of(pool: Pool) -> None:
    """A typo looked like a success, and the block was anywhere. The node may come back, so the block is stored."""
    with pytest.warns(UserWarning, match="no catalog knows a node named node-7; known are node-0, node-1"):
        assert pool.put("stray", b"x", prefer="node-7").moved
    with warnings.catch_warnings(action="error"):
        # Once a name, and for nobody who is known.
        pool.put("stray", b"x", prefer="node-7")
        pool.put_many({"at home": b"x"}, prefer="node-1")
    with warnings.catch_warnings(action="error"), pytest.raises(UserWarning, match="node-8"):
        pool.put_many({"never": b"x"}, prefer="node-8")
    assert pool.exists_many(["stray", "at home", "never"]) == [True, True, False]


def test_removals_say_what_was_there(pool: Pool) -> None:
    pool.put_many({"r/1": b"1", "r/2": b"2", "s/1": b"3"})
    assert pool.remove("r/1")
    assert not pool.remove("r/1")
    assert pool.remove_matching("^r/").copies == 1
    assert [bool(removed) for removed in pool.remove_many(["s/1", "absent"])] == [True, False]
    assert pool.remove_all().copies == 0


def test_nodes_and_stats_are_shown(pool: Pool) -> None:
    assert {node.name: node.state for node in pool.nodes()} == {"node-0": "alive", "node-1": "alive"}
    pool.put("counted", b"x")
    pool.get("counted")
    stats = pool.stats()
    assert stats["hits_shm"] + stats["hits_tcp"] >= 1


def test_threads_share_a_pool_and_do_not_hold_each_other_up(pool: Pool) -> None:
    def work(number: int) -> None:
        for turn in range(20):
            block = content(number * 100 + turn, 50_000)
            pool.put(f"{number}/{turn}", block)
            results.append(pool.get(f"{number}/{turn}") == block)

    results: list[bool] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


def test_an_unreachable_pool_is_an_error_that_names_it(scratch: Path) -> None:
    with pytest.raises(tidepool.UnreachableError, match=r"127\.0\.0\.1:1\b"):
        Pool.connect(["127.0.0.1:1"], dir=scratch / "none", wait=0.2)
    with Pool.connect(["127.0.0.1:1"], dir=scratch / "none", wait=None, deadline=0.2) as pool:
        assert pool.get("anything") is None
        with pytest.raises(tidepool.UnreachableError) as caught:
            pool.put("key", b"block")
        assert caught.value.key == "key"
