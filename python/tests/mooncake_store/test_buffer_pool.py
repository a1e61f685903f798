"""Buffers that a pool lends: nobody else gets one before the last look at it is gone."""

import gc
import importlib
from collections.abc import Callable

import pytest
from mooncake.store import BufferLease, BufferPool, MooncakeDistributedStore

from .conftest import MIB

#: What the stores of these tests have as their local buffer, which bounds Mooncake's pools.
CAPACITY = 16 * MIB
SMALL = 60_000


@pytest.fixture
def pool(store: MooncakeDistributedStore) -> BufferPool:
    return BufferPool(store, CAPACITY)


def fill(pool: BufferPool, size: int) -> list[BufferLease]:
    leases: list[BufferLease] = []
    while True:
        try:
            leases.append(pool.acquire(size, block=False))
        except RuntimeError:
            return leases


def test_a_lent_buffer_is_registered(store: MooncakeDistributedStore, pool: BufferPool) -> None:
    with pool.acquire(1000) as lease:
        assert lease.size == 1000
        view = lease.buffer
        assert (len(view), view.format, view.readonly) == (1000, "B", False)
        view[:3] = b"abc"
        assert store.put_from("lent", lease.ptr, 3) == 0
        view[:3] = b"..."
        assert store.get_into("lent", lease.ptr, 1000) == 3
        assert bytes(view[:3]) == b"abc"
        view.release()
    assert BufferPool is importlib.import_module("mooncake").BufferPool
    assert BufferPool is importlib.import_module("mooncake.buffer_pool").RegisteredBufferPool


def test_a_buffer_is_not_released_while_somebody_looks_at_it(pool: BufferPool) -> None:
    lease = pool.acquire(1000)
    view = lease.buffer
    with pytest.raises(RuntimeError, match="exported views"):
        lease.release()
    part = view[10:20]
    view.release()
    with pytest.raises(RuntimeError, match="exported views"):
        lease.release()
    part.release()
    lease.release()
    lease.release()
    with pytest.raises(RuntimeError, match="closed"):
        _ = lease.ptr
    with pytest.raises(BufferError):
        _ = lease.buffer
    assert lease.size == 1000


def test_a_view_of_a_lease_that_nobody_has_any_more_keeps_its_bytes(pool: BufferPool) -> None:
    view = pool.acquire(1000).buffer
    view[:4] = b"mine"
    others = [pool.acquire(1000) for _ in range(20)]
    for other in others:
        other.buffer[:4] = b"else"
    assert bytes(view[:4]) == b"mine"


def test_a_view_outlives_its_pool(store: MooncakeDistributedStore) -> None:
    pool = BufferPool(store, CAPACITY)
    lease = pool.acquire(1000)
    view = lease.buffer
    view[:4] = b"mine"
    with pytest.raises(RuntimeError, match="active leases"):
        pool.close()
    del pool, lease
    gc.collect()
    assert bytes(view[:4]) == b"mine"


def test_a_closed_pool_lends_nothing(pool: BufferPool) -> None:
    pool.acquire(1000).release()
    pool.close()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.acquire(1000)


def test_what_cannot_be_lent_is_refused_at_once(store: MooncakeDistributedStore, pool: BufferPool) -> None:
    with pytest.raises(RuntimeError, match="capacity"):
        pool.acquire(4 * CAPACITY)
    with pytest.raises(RuntimeError, match="non-negative"):
        pool.acquire(10, timeout=-1)
    held = pool.acquire(CAPACITY * 3 // 4)
    with pytest.raises(RuntimeError, match="exhausted"):
        pool.acquire(CAPACITY // 2, block=False)
    with pytest.raises(RuntimeError, match="timed out"):
        pool.acquire(CAPACITY // 2, timeout=0.05)
    held.release()
    for size in (-1, 1 << 70, "x"):
        with pytest.raises(TypeError):
            pool.acquire(size)
    for wrong in (None, 5, MooncakeDistributedStore()):
        with pytest.raises(RuntimeError):
            BufferPool(wrong, CAPACITY)
    with pytest.raises(TypeError):
        BufferPool(store, -1)
    for settings in ({"alignment": 3}, {"alignment": 0}, {"min_size_class": 0}):
        with pytest.raises(RuntimeError):
            BufferPool(store, CAPACITY, **settings)


def test_leases_that_are_dropped_come_back(pool: BufferPool) -> None:
    for _ in range(50):
        pool.acquire(MIB, timeout=1)


def test_pools_that_are_dropped_leave_nothing_registered(store: MooncakeDistributedStore) -> None:
    for n in range(20):
        with BufferPool(store, CAPACITY).acquire(MIB, timeout=1) as lease:
            assert store.put_from(f"dropped/{n}", lease.ptr, 1000) == 0


def test_many_small_buffers_make_way_for_a_large_one(pool: BufferPool) -> None:
    for lease in fill(pool, SMALL):
        lease.release()
    pool.acquire(CAPACITY // 2, timeout=1).release()
    assert len(fill(pool, SMALL)) > 100


def test_as_many_buffers_are_made_ready_as_there_is_room_for(
    new_store: Callable[..., MooncakeDistributedStore],
) -> None:
    pool = BufferPool(new_store(), CAPACITY, prewarm_size=MIB, prewarm_count=100)
    pool.prewarm(4 * CAPACITY, 1)
    pool.acquire(MIB, timeout=1).release()
    pool.close()
