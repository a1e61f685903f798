"""Lists of keys, numbers and buffers are read item by item, and no further than a call goes.

A length that a sequence claimed was believed before its first item was looked at: memory for it was reserved, and
``exists_many(range(10**12))`` aborted the whole process. Whatever a sequence claims, the first wrong item is an error
at once, and so is one item more than a call takes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mooncake.store import MooncakeDistributedStore

import tidepool
from tidepool import Pool, _native

#: The most items of a call.
MOST = 1 << 20

Call = Callable[[Any], Any]


class Claims:
    """A sequence that claims a length and has the same item everywhere; it counts how often it was asked for one."""

    def __init__(self, length: int, item: object) -> None:
        self.length, self.item, self.asked = length, item, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: int) -> object:
        self.asked += 1
        return self.item


@pytest.fixture(scope="module")
def plain(catalog: tidepool.Catalog, nodes: list[tidepool.Node], scratch: Path) -> Iterator[Pool]:
    with Pool.connect([catalog.address], dir=scratch) as pool:
        yield pool


def native_calls(pool: Pool) -> dict[str, Call]:
    return {
        "exists_many": pool.exists_many,
        "get_many": pool.get_many,
        "remove_many": pool.remove_many,
        "match_prefix": pool.match_prefix,
        "a chain": lambda items: pool.match_prefix([items]),
        "get_many_into": lambda items: pool.get_many_into(items, []),
        "destinations": lambda items: pool.get_many_into([], items),
        "parts of a destination": lambda items: pool.get_into("key", items),
        "put_many": pool.put_many,
        "parts of a block": lambda items: pool.put("key", items),
        "catalogs": lambda items: Pool.connect(items, wait=None),
        "layout": lambda items: _native.BlockTransfers(pool, items, 1, None),
    }


def drop_in_calls(store: MooncakeDistributedStore) -> dict[str, Call]:
    return {
        "batch_is_exist": store.batch_is_exist,
        "get_batch": store.get_batch,
        "batch_get_buffer": store.batch_get_buffer,
        "batch_get_into": lambda items: store.batch_get_into(items, items, items),
        "addresses": lambda items: store.batch_get_into(["key"], items, [1]),
        "sizes": lambda items: store.batch_put_from(["key"], [1], items),
        "batch_put_from": lambda items: store.batch_put_from(items, items, items),
        "put_batch": lambda items: store.put_batch(items, items),
        "values": lambda items: store.put_batch(["key"], items),
        "parts": lambda items: store.put("key", items),
        "pieces": lambda items: store.batch_get_into_multi_buffers(["key"], [items], [[1]]),
        "batch_remove": store.batch_remove,
        "batch_get_replica_desc": store.batch_get_replica_desc,
        "batch_replica_clear": store.batch_replica_clear,
    }


def test_a_wrong_first_item_ends_a_native_call_at_once(plain: Pool) -> None:
    for name, call in native_calls(plain).items():
        for length in (1 << 40, 1 << 62):
            claims = Claims(length, 5)
            with pytest.raises(TypeError):
                call(claims)
            assert claims.asked <= 1, name
        with pytest.raises(TypeError):
            call(range(10**12))
        with pytest.raises(TypeError):
            call(np.broadcast_to(np.uint8(1), (1 << 40,)))


def test_a_wrong_first_item_ends_a_call_of_a_store_that_is_not_set_up(plain: Pool) -> None:
    for name, call in drop_in_calls(MooncakeDistributedStore()).items():
        claims = Claims(1 << 62, None)
        with pytest.raises(TypeError):
            call(claims)
        assert claims.asked <= 1, name


def test_a_call_takes_so_many_items_and_no_more(plain: Pool) -> None:
    assert len(plain.exists_many(["key"] * MOST)) == MOST
    store = MooncakeDistributedStore()
    endless = Claims(1 << 40, "key")
    calls: list[Call] = [
        plain.exists_many,
        lambda items: plain.match_prefix([items]),
        store.batch_is_exist,
        lambda items: store.get_into_ranges(items, [], [], [], []),
    ]
    for call in calls:
        endless.asked = 0
        with pytest.raises(tidepool.InvalidError, match=f"more than {MOST} items in one call"):
            call(endless)
        assert endless.asked == MOST + 1
    with pytest.raises(tidepool.InvalidError, match="more than"):
        plain.exists_many(["key"] * (MOST + 1))
    with pytest.raises(tidepool.InvalidError, match="more than"):
        plain.put_many(("key", b"") for _ in iter(int, 1))


def test_items_of_lists_in_lists_are_counted_together(plain: Pool) -> None:
    """A megabyte of Python's can stand for any number of them."""
    many, store = 1 << 12, MooncakeDistributedStore()
    nested = [["key"] * many] * many
    calls: list[Callable[[], Any]] = [
        lambda: plain.match_prefix(nested),
        lambda: plain.put_many({f"{n}": [b"x"] * many for n in range(many)}),
        lambda: plain.get_many_into([], [[bytearray(1)] * many] * many),
        lambda: store.put_batch(["key"], [[b"x"] * many] * many),
        lambda: store.batch_get_into_multi_buffers(["key"], [[1] * many] * many, []),
        lambda: store.get_into_ranges([1], [], [], [], [[[1] * many] * many]),
    ]
    for call in calls:
        with pytest.raises(tidepool.InvalidError, match="those of lists in lists too"):
            call()


def test_a_list_that_changes_while_it_is_read_is_no_crash() -> None:
    store = MooncakeDistributedStore()
    numbers: list[Any] = []

    class Growing:
        def __index__(self) -> int:
            numbers.append(self)
            return 5

    class Clearing:
        def __index__(self) -> int:
            numbers.clear()
            return 5

    class Endless(tuple[Any, ...]):
        def __iter__(self) -> Iterator[int]:
            while True:
                yield 5

    class Shifting:
        """Another length and another key each time."""

        times = 0

        def __len__(self) -> int:
            self.times += 1
            return self.times

        def __getitem__(self, place: int) -> str:
            self.times += 1
            if place > self.times / 2:
                raise IndexError
            return f"{self.times}"

    numbers[:] = [Clearing()] * 10
    assert store.batch_get_into(["key"], numbers, [1]) == [-600]
    numbers[:] = [Growing()]
    for endless in (numbers, Endless((1,))):
        with pytest.raises(tidepool.InvalidError, match="more than"):
            store.batch_get_into(["key"], endless, [1])
    assert len(store.batch_is_exist(Shifting())) > 0  # type: ignore[arg-type]


def test_a_buffer_that_claims_more_than_a_block_is_not_copied() -> None:
    """The bytes of a buffer with gaps were copied, however many it claimed to have."""
    store = MooncakeDistributedStore()
    huge = np.broadcast_to(np.uint8(1), (1 << 40,))
    for value in (huge, [huge], [np.broadcast_to(np.uint8(1), (1 << 20,)), b"x", huge]):
        with pytest.raises(TypeError, match="a block is bytes or a contiguous buffer"):
            store.put("key", value)
