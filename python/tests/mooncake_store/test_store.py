"""What users of ``mooncake.store`` rely on: return codes, edge cases and all."""

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import mooncake.store as mooncake
import pytest
from mooncake.async_store import MooncakeDistributedStoreAsync
from mooncake.store import MooncakeDistributedStore, ReplicateConfig

from ..waiting import eventually
from .conftest import MIB, Master, Memory, first_code_but

NewStore = Callable[..., MooncakeDistributedStore]


def test_before_setup_and_after_close_calls_answer_with_codes(master: Master) -> None:
    store = MooncakeDistributedStore()
    assert store.get("key") == b""
    assert store.health_check() == 1
    settings = {
        "local_hostname": "localhost",
        "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": "32MB",
        "local_buffer_size": "16MB",
        "protocol": "tcp",
        "master_server_addr": master.address,
    }
    for _ in range(2):
        assert store.setup(settings) == 0
        assert store.health_check() == 0
        assert store.put("key", b"again") == 0
        assert store.get("key") == b"again"
        assert store.close() == 0
        assert store.close() == 0
        assert store.get("key") == b""


def test_a_put_key_keeps_its_first_bytes(store: MooncakeDistributedStore) -> None:
    assert store.put("key", b"hello") == 0
    assert store.put("key", b"other!") == 0
    assert store.get("key") == b"hello"
    assert store.get_size("key") == 5
    assert store.get_size("none") == -704
    assert store.is_exist("key") == 1
    assert store.is_exist("none") == 0
    assert store.batch_is_exist(["key", "none", ""]) == [1, 0, 0]


def test_what_one_store_puts_another_gets(new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    assert one.get_hostname() != two.get_hostname()
    assert one.get_hostname().startswith("localhost:")
    assert one.put("shared", b"x" * 100_000) == 0
    assert two.get("shared") == b"x" * 100_000


def test_empty_keys_and_values_are_refused(store: MooncakeDistributedStore) -> None:
    assert store.put("", b"x") == -600
    assert store.put("empty", b"") == -600
    assert store.is_exist("empty") == 0
    with pytest.raises(TypeError):
        store.get(1)  # type: ignore[arg-type]


def test_zero_copy_calls_answer_key_by_key(store: MooncakeDistributedStore, memory: Memory) -> None:
    at = memory.at
    assert store.register_buffer(at, MIB) == -600
    assert store.put_from("one", at, 1000) == 0
    assert store.get("one") == memory[0:1000]
    assert store.get_into("one", at + 5000, 10) == -600
    assert store.get_into("one", at + 5000, 1000) == 1000
    assert memory[5000:6000] == memory[0:1000]
    assert store.get_into("one", at + 5000, 5000) == 1000
    assert store.get_into("none", at, 10) == -704
    places = [at + 20_000, at + 30_000, at + 40_000]
    assert store.batch_get_into(["one", "none", "one"], places, [1000, 1000, 10]) == [1000, -704, -600]
    assert store.batch_get_into(["one", "none"], [at], [1000]) == [-600, -600]
    assert store.batch_put_from(["a", "b"], [at, at + 100], [100, 200]) == [0, 0]
    assert store.batch_put_from(["a"], [at], [5]) == [0]
    assert store.batch_put_from(["c", "d"], [at], [5]) == [-600, -600]
    assert store.get_batch(["a", "b", "none"]) == [memory[0:100], memory[100:300], b""]


def test_one_block_goes_to_and_from_many_buffers(store: MooncakeDistributedStore, memory: Memory) -> None:
    at = memory.at
    assert store.batch_put_from_multi_buffers(["many"], [[at, at + 1000]], [[100, 200]]) == [0]
    assert store.get("many") == memory[0:100] + memory[1000:1200]
    into, sizes = [[at + 50_000, at + 60_000]], [[100, 200]]
    assert store.batch_get_into_multi_buffers(["many"], into, sizes) == [300]
    assert memory[60_000:60_200] == memory[1000:1200]
    assert store.batch_get_into_multi_buffers(["many"], into, [[100, 100]]) == [-600]
    assert store.batch_get_into_multi_buffers(["none"], into, sizes) == [-704]


def test_ranges_are_read_into_places(store: MooncakeDistributedStore, memory: Memory) -> None:
    at = memory.at
    assert store.put_from("block", at, 1000) == 0
    answers = store.get_into_ranges(
        [at + 70_000], [["block", "none"]], [[[0, 100], [200]]], [[[10, 20], [0]]], [[[5, 6], [7]]]
    )
    assert answers == [[[5, 6], [-704]]]
    assert memory[70_000:70_005] == memory[10:15]
    assert memory[70_100:70_106] == memory[20:26]


def test_parts_and_batches_of_bytes(store: MooncakeDistributedStore) -> None:
    assert store.put_parts("parts", b"ab", b"cd") == 0
    assert store.get("parts") == b"abcd"
    assert store.put_batch(["one", "two"], [b"1", b"2"]) == 0
    handle = store.get_buffer("parts")
    assert handle is not None
    assert (handle.size(), len(handle), bytes(memoryview(handle))) == (4, 4, b"abcd")
    assert store.get_buffer("none") is None
    assert [type(found).__name__ for found in store.batch_get_buffer(["one", "none"])] == ["BufferHandle", "NoneType"]


def test_removals_count_and_answer_key_by_key(store: MooncakeDistributedStore) -> None:
    store.put_batch(["r1", "r2", "s1"], [b"1", b"2", b"3"])
    assert store.batch_remove(["r1", "none"]) == [0, -704]
    assert store.remove("r1") == -704
    assert store.remove_by_regex("^r", True) == 1
    assert store.remove_by_regex("[") == -600
    assert store.remove_all(True) == 1
    assert store.remove_all(True) == 0


LOOKS: dict[str, Callable[[MooncakeDistributedStore, str], object]] = {
    "get": lambda store, key: store.get(key),
    "get_buffer": lambda store, key: store.get_buffer(key),
    "is_exist": lambda store, key: store.is_exist(key),
    "batch_is_exist": lambda store, key: store.batch_is_exist([key]),
    "get_size": lambda store, key: store.get_size(key),
    "get_replica_desc": lambda store, key: store.get_replica_desc(key),
    "session": lambda store, key: store.batch_get_session_start([key]),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_block_that_was_looked_at_is_removed_by_force_or_later(new_store: NewStore, look: str) -> None:
    one, two = new_store(), new_store()
    for looker, remover in ((one, one), (one, two), (two, one)):
        assert one.put(look, b"looked at") == 0
        assert LOOKS[look](looker, look)
        assert remover.remove(look) == -706
        assert remover.remove(look, True) == 0
        assert remover.remove(look) == -704
    assert one.put(look, b"once more") == 0
    LOOKS[look](two, look)
    assert first_code_but(-706, lambda: one.remove(look)) == 0


def test_leases_are_judged_key_by_key_and_puts_and_misses_give_none(store: MooncakeDistributedStore) -> None:
    assert store.is_exist("later") == 0
    assert store.get("later") == b""
    assert store.put("later", b"1") == 0
    assert store.put("later", b"2") == 0
    assert store.remove("later") == 0
    assert store.put_batch(["b1", "b2", "b3"], [b"1", b"2", b"3"]) == 0
    assert store.is_exist("b1") == 1
    assert store.batch_remove(["b1", "b2", "none"]) == [-706, 0, -704]
    assert store.remove_by_regex("^b") == 1
    assert store.batch_is_exist(["b1", "b2", "b3"]) == [1, 0, 0]
    assert store.put("b4", b"4") == 0
    assert store.remove_all() == 1
    assert store.remove_all(True) == 1


def test_an_upsert_takes_the_place_of_what_is_held(new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    assert one.upsert("key", b"first") == 0
    assert two.get("key") == b"first"
    assert one.upsert("key", b"second") == 0
    assert [one.get("key"), two.get("key")] == [b"second", b"second"]
    assert one.get_size("key") == 6
    assert two.upsert("key", b"third, and longer") == 0
    assert [one.get("key"), two.get("key")] == [b"third, and longer"] * 2
    assert one.upsert("", b"x") == -600
    assert one.upsert("key", b"") == -600
    assert one.get("key") == b"third, and longer"
    assert one.upsert_parts("key", b"a", b"b") == 0
    assert two.get("key") == b"ab"
    assert one.upsert_batch(["key", "other"], [b"1"]) == -600
    assert one.upsert_batch(["key", "other"], [b"1", b"2"]) == 0
    assert two.get_batch(["key", "other"]) == [b"1", b"2"]
    config = ReplicateConfig()
    config.replica_num = 2
    assert one.put("twice", b"one", config) == 0
    assert one.upsert("twice", b"two") == 0
    assert len(one.get_replica_desc("twice")) == 2
    assert one.put("twice", b"no change") == 0
    assert two.get("twice") == b"two"


def test_upserts_from_memory_answer_key_by_key(store: MooncakeDistributedStore, memory: Memory) -> None:
    at = memory.at
    assert store.put("key", b"old") == 0
    assert store.upsert_from("key", at, 1000) == 0
    assert store.get("key") == memory[0:1000]
    assert store.batch_upsert_from(["key", "other"], [at + 5, at], [10, 20]) == [0, 0]
    assert store.get_batch(["key", "other"]) == [memory[5:15], memory[0:20]]
    assert store.batch_upsert_from(["key", "other"], [at], [10, 20]) == [-600, -600]


def test_pins_are_checked_and_do_not_keep_a_block_from_being_removed(store: MooncakeDistributedStore) -> None:
    config = ReplicateConfig()
    config.with_hard_pin = True
    assert store.put("hard", b"x" * 100, config) == 0
    assert store.remove("hard") == 0
    assert store.is_exist("hard") == 0
    config.soft_pin_action = mooncake.SoftPinAction.ENABLE
    assert store.put("both", b"x" * 100, config) == 0
    config = ReplicateConfig()
    config.soft_pin_action = mooncake.SoftPinAction.ENABLE
    assert store.put("soft", b"x" * 100, config) == 0
    assert store.remove("soft") == 0
    config.soft_pin_ttl_ms = 25 * 3600 * 1000
    assert store.put("too long", b"x", config) == -600
    config.soft_pin_ttl_ms = 0
    assert store.put("no time", b"x", config) == 0
    config = ReplicateConfig()
    config.soft_pin_ttl_ms = 1000
    assert store.put("not enabled", b"x", config) == -600


def test_hard_pins_outlast_what_is_put_after_them(new_store: NewStore) -> None:
    store = new_store(16 * MIB)
    config = ReplicateConfig()
    config.with_hard_pin = True
    assert store.put("pinned", b"p" * MIB, config) == 0
    for n in range(60):
        assert first_code_but(-200, partial(store.put, f"filler/{n}", bytes([n]) * MIB)) == 0
    assert store.get("pinned") == b"p" * MIB
    assert store.get("filler/0") == b""


def test_blocks_of_a_group_are_leased_together(store: MooncakeDistributedStore) -> None:
    config = ReplicateConfig()
    config.group_ids = ["g", "g", "h", ""]
    assert store.put_batch(["g1", "g2", "h1", "alone"], [b"1", b"2", b"3", b"4"], config) == 0
    assert store.get("g1") == b"1"
    assert store.batch_remove(["g2", "h1", "alone"]) == [-706, 0, 0]
    assert store.put("one", b"1", config) == -600
    config.group_ids = ["g"]
    assert store.put_batch(["g3", "g4"], [b"1", b"2"], config) == -600


def test_a_store_clears_the_replicas_of_its_own_blocks(new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    config = ReplicateConfig()
    config.replica_num = 2
    assert one.put("own", b"1", config) == 0
    assert one.put("leased", b"1", config) == 0
    assert two.get("leased") == b"1"
    assert two.batch_replica_clear(["own"]) == []
    assert one.batch_replica_clear(["own", "leased", "none"], two.get_hostname()) == ["own"]
    assert one.batch_replica_clear(["own"], "nobody:1") == []
    assert one.batch_replica_clear(["own", "leased"]) == ["own"]
    assert one.batch_is_exist(["own", "leased"]) == [0, 1]
    assert one.batch_replica_clear([]) == []


def test_further_segments_come_and_go(store: MooncakeDistributedStore) -> None:
    answer = store.allocate_and_mount_segment(32 * MIB)
    assert answer["ret"] == 0
    assert answer["allocated_size"] == 32 * MIB
    assert store.put("while it is there", b"x") == 0
    assert store.unmount_and_free_segment(answer["segment_ids"]) == 0
    assert store.unmount_local_disk_segment() == 0
    assert store.get_offload_rpc_read_count() == 0
    assert mooncake.get_alloc_func_addr() != 0
    assert mooncake.get_free_func_addr() != 0


def test_replicas_go_to_distinct_segments_and_as_preferred(new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    config = ReplicateConfig()
    config.replica_num = 2
    assert one.put("two", b"x" * 100, config) == 0
    replicas = one.get_replica_desc("two")
    assert len(replicas) == 2
    assert all(replica.is_memory_replica() and not replica.is_disk_replica() for replica in replicas)
    places = {replica.get_memory_descriptor().buffer_descriptor.transport_endpoint for replica in replicas}
    assert len(places) == 2
    assert replicas[0].get_memory_descriptor().buffer_descriptor.size == 100
    assert replicas[0].status == mooncake.ReplicaStatus.COMPLETE
    config.replica_num = 5
    assert one.put("five", b"x" * 100, config) == 0
    assert len(one.get_replica_desc("five")) == 2
    config = ReplicateConfig()
    config.preferred_segment = two.get_hostname()
    assert one.put("there", b"x" * 100, config) == 0
    two.close()
    assert one.get("there") == b""
    assert one.get("two") == b"x" * 100
    assert {key: len(found) for key, found in one.batch_get_replica_desc(["two", "none"]).items()} == {"two": 1}


def test_configurations_have_the_known_fields() -> None:
    config = ReplicateConfig()
    assert (config.replica_num, config.with_hard_pin, config.preferred_segment) == (1, False, "")
    assert (config.group_ids, config.soft_pin_ttl_ms, config.preferred_segments) == (None, None, [])
    assert config.soft_pin_action == mooncake.SoftPinAction.PRESERVE
    assert config.data_type == mooncake.ObjectDataType.UNKNOWN
    config.soft_pin_ttl_ms = 5
    wrong = {
        "replica_num": ("x", -1, 1.5, 1 << 70),
        "nof_replica_num": ("x",),
        "preferred_segments": ("host", [1], None),
        "preferred_segment": (None, 5),
        "with_hard_pin": ("x",),
        "soft_pin_action": (1,),
        "soft_pin_ttl_ms": ("x", -1, 1.5),
        "data_type": (3,),
        "group_ids": ("x", [1]),
    }
    for field, values in wrong.items():
        for value in values:
            with pytest.raises(TypeError):
                setattr(config, field, value)
    config.preferred_segments = ("a", "b")  # type: ignore[assignment]
    assert config.preferred_segments == ["a", "b"]
    fields = "replica_num: 1, nof_replica_num: 0, dfs_replica_num: 0, soft_pin_action: PRESERVE, soft_pin_ttl_ms: 5"
    assert str(config).startswith(f"ReplicateConfig: {{ {fields}, with_hard_pin: 0, preferred_segments: [a, b], ")
    with pytest.raises(AttributeError):
        config.nonsense = 1  # type: ignore[attr-defined]
    assert str(mooncake.ReplicaStatus.COMPLETE) == f"{mooncake.ReplicaStatus.COMPLETE}" == "ReplicaStatus.COMPLETE"
    assert repr(mooncake.TaskStatus.SUCCESS) == "<TaskStatus.SUCCESS: 3>"
    assert int(mooncake.TaskStatus.SUCCESS) == 3


def test_configurations_that_cannot_be_met_are_refused(store: MooncakeDistributedStore) -> None:
    def put(field: str, value: int) -> int:
        config = ReplicateConfig()
        setattr(config, field, value)
        codes = {store.put(field, b"x", config), store.batch_put_session_start([field], [1], config)[0]}
        assert len(codes) == 1
        return codes.pop()

    assert put("replica_num", 0) == -600
    assert put("nof_replica_num", 1) == -600
    assert put("dfs_replica_num", 1) == -1601
    assert store.batch_is_exist(["replica_num", "nof_replica_num", "dfs_replica_num"]) == [0, 0, 0]
    for config in (None, 5):
        with pytest.raises(TypeError):
            store.put("key", b"x", config)


def test_replicas_go_to_all_segments_that_are_preferred(new_store: NewStore) -> None:
    stores = [new_store() for _ in range(4)]
    wanted = {store.get_hostname() for store in stores[2:]}

    def put(key: str, replicas: int, segments: list[str]) -> None:
        config = ReplicateConfig()
        config.replica_num, config.preferred_segments = replicas, segments
        assert stores[0].put(key, b"x", config) == 0

    for n in range(10):
        put(f"two/{n}", 2, sorted(wanted))
    put("one", 1, ["nobody", stores[3].get_hostname()])
    stores[0].close()
    stores[1].close()
    assert all(len(stores[2].get_replica_desc(f"two/{n}")) == 2 for n in range(10))
    stores[2].close()
    assert stores[3].get("one") == b"x"


def on(store: MooncakeDistributedStore) -> ReplicateConfig:
    config = ReplicateConfig()
    config.preferred_segment = store.get_hostname()
    return config


def test_tasks_that_cannot_be_are_refused(new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    here, there = one.get_hostname(), two.get_hostname()
    assert one.put("key", b"x", on(one)) == 0
    nothing = (0, 0)
    for targets in ([], ["nobody"], [there, "nobody"]):
        assert one.create_copy_task("key", targets) == (nothing, -600)
    assert one.create_copy_task("none", [there]) == (nothing, -704)
    for source, target in ((here, "nobody"), (here, here), ("nobody", there), (there, here)):
        assert one.create_move_task("key", source, target) == (nothing, -600)
    assert one.create_move_task("none", here, there) == (nothing, -704)
    for wrong in (there, None):
        with pytest.raises(TypeError):
            one.create_copy_task("key", wrong)
    with pytest.raises(TypeError):
        one.query_task(5)


def test_a_task_leases_nothing_and_every_store_can_ask_about_it(new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    assert one.put("key", b"x", on(one)) == 0
    task, code = one.create_copy_task("key", [two.get_hostname()])
    assert code == 0
    assert two.query_task(task)[1] == 0

    def is_over() -> bool:
        answer, _ = two.query_task(task)
        return answer is None or int(answer.status) >= int(mooncake.TaskStatus.FAILED)

    eventually("the task is over", is_over, shows=lambda: two.query_task(task))
    assert one.remove("key") == 0


def test_copies_run_in_the_background(new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    config = ReplicateConfig()
    config.preferred_segment = one.get_hostname()
    assert one.put("copied", b"x" * 1000, config) == 0
    task, code = one.create_copy_task("copied", [two.get_hostname()])
    assert code == 0

    def is_done() -> bool:
        answer, code = one.query_task(task)
        assert code == 0
        assert answer is not None
        assert answer.status != mooncake.TaskStatus.FAILED, answer.message
        return bool(answer.status == mooncake.TaskStatus.SUCCESS)

    eventually("the copy is made", is_done, shows=lambda: one.query_task(task))
    assert len(one.get_replica_desc("copied")) == 2
    assert one.query_task((1, 2)) == (None, -1400)


def test_blocks_are_written_and_read_in_sessions(store: MooncakeDistributedStore, memory: Memory) -> None:
    at = memory.at
    assert store.batch_put_session_start(["session"], [300]) == [0]
    assert store.batch_put_from_multi_buffer_ranges(["session"], [[at, at + 100]], [[100, 200]], [[0, 100]]) == [300]
    assert store.get("session") == b""
    assert store.batch_put_session_end(["session"]) == [0]
    assert store.get("session") == memory[0:300]
    assert store.batch_put_session_revoke(["session"]) == [-600]
    assert store.batch_put_session_start(["revoked", "session"], [300, 10]) == [0, -705]
    assert store.batch_put_session_revoke(["revoked"]) == [0]
    assert store.get("revoked") == b""
    assert store.batch_get_session_start(["session", "none"]) == [0, -704]
    assert store.batch_get_into_multi_buffer_ranges(["session"], [[at + 80_000]], [[100]], [[50]]) == [100]
    assert memory[80_000:80_100] == memory[50:150]
    assert store.batch_get_session_end(["session"]) == 0


def test_sessions_that_cannot_be_are_refused(store: MooncakeDistributedStore, memory: Memory) -> None:
    at = memory.at
    assert store.batch_put_session_start(["huge", "large", "empty"], [1 << 40, 1 << 30, 0]) == [-200, -200, -600]
    assert store.batch_put_session_start(["one"], [1, 2]) == [-600]
    with pytest.raises(TypeError):
        store.batch_put_session_start(["negative"], [-1])
    assert store.batch_put_session_start(["twice"], [100]) == [0]
    assert store.batch_put_session_start(["twice"], [100]) == [-600]
    assert store.batch_put_from_multi_buffer_ranges(["twice"], [[at]], [[10]], [[95]]) == [-600]
    assert store.batch_put_from_multi_buffer_ranges(["none"], [[at]], [[10]], [[0]]) == [-600]
    assert store.batch_put_from_multi_buffer_ranges(["twice"], [[at]], [[10]], [[0, 10]]) == [-600]
    for offset in (0.5, -1):
        with pytest.raises(TypeError, match=f"an offset is {offset}: allowed are whole numbers"):
            store.batch_put_from_multi_buffer_ranges(["twice"], [[at]], [[10]], [[offset]])  # type: ignore[list-item]
    assert store.batch_put_session_revoke(["twice"]) == [0]
    assert store.put("block", b"x" * 100) == 0
    assert store.batch_get_into_multi_buffer_ranges(["block"], [[at]], [[10]], [[0]]) == [-600]


def test_ranges_that_do_not_pair_are_refused_one_by_one(store: MooncakeDistributedStore, memory: Memory) -> None:
    at = memory.at
    assert store.put("block", bytes(range(100))) == 0

    def get(buffers: int, keys: list[list[str]], to: object, start: object, sizes: object) -> list[list[list[int]]]:
        return list(store.get_into_ranges([at] * buffers, keys, to, start, sizes))

    assert get(1, [["block"]], [[[0, 5]]], [[[0, 7]]], [[[0, 5]]]) == [[[0, 5]]]
    assert memory[5:10] == bytes(range(7, 12))
    assert get(2, [["block"]], [[[0]]], [[[0]]], [[[10]]]) == [[[-600]], [[-600]]]
    assert get(1, [["block", "block"]], [[[0]]], [[[0]]], [[[10]]]) == [[[-600], [-600]]]
    assert get(1, [["block"]], [[[0, 1]]], [[[0]]], [[[10]]]) == [[[-600, -600]]]
    assert get(2, [["block"], ["block"]], [[[0]], [[0]]], [[[0]], [[0]]], [[[10]], [[10, 2]]]) == [[[10]], [[-600]]]
    assert get(1, [[]], [[]], [[]], [[]]) == [[]]


def test_arguments_of_the_wrong_type_raise(store: MooncakeDistributedStore, memory: Memory, master: Master) -> None:
    for wrong in (-1, 1 << 70, 1.5, "x", None):
        with pytest.raises(TypeError):
            store.get_into("key", memory.at, wrong)
        with pytest.raises(TypeError):
            store.put_from("key", memory.at, wrong)
        with pytest.raises(TypeError):
            store.batch_put_from(["key"], [wrong], [10])
        with pytest.raises(TypeError):
            store.register_buffer(wrong, 10)
    for size in (-1, 1.5):
        with pytest.raises(TypeError):
            store.allocate_and_mount_segment(size)
    known = ["localhost", "P2PHANDSHAKE", 0, 0, "tcp", "", master.address]
    for index, value in ((0, None), (1, None), (2, -1), (2, 0.5), (4, None), (6, None)):
        with pytest.raises(TypeError):
            MooncakeDistributedStore().setup(*known[:index], value, *known[index + 1 :])


def test_answers_to_what_is_not_there(store: MooncakeDistributedStore, master: Master) -> None:
    assert store.batch_remove(["", "none"]) == [-704, -704]
    assert store.remove("") == -704
    assert store.unmount_segment(["nobody"]) == -1
    assert store.allocate_and_mount_segment(0) == {"ret": -1, "segment_ids": [], "allocated_size": 0}
    assert store.mount_segment("/nonexistent/memory", MIB) == {"ret": -1, "segment_ids": []}
    assert MooncakeDistributedStore().setup({}) == -600
    bogus = MooncakeDistributedStore()
    assert bogus.setup("localhost", "P2PHANDSHAKE", 0, 0, "bogus", "", master.address) == -1


def test_an_unreachable_master_is_a_code_and_no_hang() -> None:
    store = MooncakeDistributedStore()
    assert store.setup("localhost", "P2PHANDSHAKE", MIB, MIB, "tcp", "", "127.0.0.1:1") == -1


def test_the_admin_pages_know_segments_and_keys(master: Master, new_store: NewStore) -> None:
    store = new_store()
    store.put("paged", b"x" * 100)
    name = store.get_hostname()
    assert name in master.page("/get_all_segments")[1].split()
    assert "paged" in master.page("/get_all_keys")[1].split()
    status, text = master.page("/query_key?key=paged")
    assert status == 200
    assert json.loads(text)["success"]
    assert json.loads(text)["data"][0]["size_"] == 100
    assert master.page("/query_key?key=none")[0] == 404
    assert "Capacity(bytes)" in master.page(f"/query_segment?segment={name}")[1]
    assert "master_total_capacity_bytes" in master.page("/metrics")[1]
    assert master.page("/role")[1] == "leader"


def test_the_admin_pages_have_the_known_shapes(master: Master, store: MooncakeDistributedStore) -> None:
    def page(path: str) -> dict[str, Any]:
        status, text = master.page(path)
        assert status == 200, text
        answer: dict[str, Any] = json.loads(text)
        return answer

    assert page("/leader") == {"present": False, "leader_address": None, "view_version": None}
    assert page("/kv_events/status")["enabled"] is False
    detail = page("/get_segments_detail")
    assert detail["total_segments"] == len(detail["segments"])
    [segment] = [s for s in detail["segments"] if s["segment_name"] == store.get_hostname()]
    assert (segment["size_bytes"], segment["status"], segment["protocol"]) == (64 * MIB, "OK", "tcp")
    known = ("segment_id", "client_id", "base_address", "size_human", "te_endpoint")
    numbers = ("allocator_used_bytes", "allocator_capacity_bytes", "allocator_usage_percent")
    assert set(segment) >= {*known, *numbers}
    assert page(f"/api/v1/segments/status?segment={store.get_hostname()}")["status_name"] == "OK"
    assert master.page("/api/v1/segments/status")[0] == 400
    assert master.page("/api/v1/segments/status?segment=nobody")[0] == 404
    for key in ("none", "k" * 5000, ""):
        status, text = master.page(f"/query_key?key={key}")
        assert (status, json.loads(text)["error_code"]) == (404, -704)


def test_every_call_is_there_as_a_coroutine(master: Master) -> None:
    async def work() -> bytes:
        store = MooncakeDistributedStoreAsync()
        await store.async_setup("localhost", "P2PHANDSHAKE", 32 * MIB, 16 * MIB, "tcp", "", master.address)
        await store.async_put("awaited", b"value")
        value: bytes = await store.async_get("awaited")
        await store.async_close()
        return value

    assert asyncio.run(work()) == b"value"
