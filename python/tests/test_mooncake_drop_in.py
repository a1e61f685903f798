"""What the drop-in adds to Mooncake's own behaviour: clear errors where something is missing."""

import ctypes
import errno
import importlib.util
import itertools
import logging
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import mooncake.store as store_module
import pytest
from mooncake.drain import DrainJobs
from mooncake.store import MooncakeDistributedStore
from mooncake.tasks import TASKS, Tasks

import tidepool

from .memory import memory_taken
from .mooncake_store.conftest import MIB, Master, free_port
from .mooncake_store.test_drain import drain, on, status_of
from .waiting import PATIENCE, eventually


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    directory = Path(f"/dev/shm/tidepool-drop-in-{os.getpid()}")
    os.environ["TIDEPOOL_DIR"] = str(directory)
    master = Master()
    yield master
    assert master.stop() == 0
    assert list(directory.glob("*")) == []
    directory.rmdir()


def new_store(master: Master, size: int = 32 * MIB) -> MooncakeDistributedStore:
    store = MooncakeDistributedStore()
    assert store.setup("localhost", "P2PHANDSHAKE", size, 0, "tcp", "", master.address) == 0
    return store


def test_a_module_that_is_not_provided_names_the_alternative() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"mooncake\.engine is not part of .*TidepoolConnector"):
        importlib.import_module("mooncake.engine")
    with pytest.raises(ModuleNotFoundError, match=r"mooncake\.pg is not part of"):
        importlib.import_module("mooncake.pg")
    line = [sys.executable, "-m", "mooncake.mooncake_store_service", "--config=mooncake.json"]
    answer = subprocess.run(line, capture_output=True, text=True, check=False)
    assert answer.returncode != 0
    assert "start 'mooncake_client" in answer.stderr
    assert importlib.util.find_spec("mooncake.engine") is None
    assert importlib.util.find_spec("mooncake.store") is not None


def test_tensor_calls_say_what_to_do_instead(master: Master) -> None:
    with pytest.raises(NotImplementedError, match="store the tensor's bytes"):
        MooncakeDistributedStore().put_tensor("key", None)
    # Engines look for newer calls with hasattr, which raised.
    assert not hasattr(MooncakeDistributedStore(), "put_tensor")
    assert getattr(MooncakeDistributedStore(), "batch_get_tensor", None) is None


def test_classes_that_are_not_offered_say_so() -> None:
    for name in ("MooncakeDistributedNoFRegister", "EngramStore", "EngramStoreConfig"):
        with pytest.raises(NotImplementedError, match=f"{name} is not part of tidepool-mooncake"):
            getattr(store_module, name)()
    with pytest.raises(NotImplementedError, match="store the tensor's bytes"):
        store_module._serialize_tensor(None)


def test_a_segment_goes_to_another_port_while_its_first_is_taken(
    master: Master, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # Two stores of one host that drew the same port had the same name too. Only the address was tried again: the second
    # one's setup failed with -1, once in some thousand times.
    ports = [free_port() for _ in range(3)]
    draws: list[list[int]] = [ports[:1], ports[:2], ports, ports]
    monkeypatch.setattr("mooncake.settings.random.sample", lambda _range, _count: draws.pop(0))
    one, two = new_store(master), new_store(master)
    assert [one.get_hostname(), two.get_hostname()] == [f"localhost:{port}" for port in ports[:2]]
    mounted = two.allocate_and_mount_segment(16 * MIB)
    assert (mounted["ret"], mounted["segment_ids"]) == (0, [f"localhost:{ports[2]}"])
    none_left = MooncakeDistributedStore()
    assert none_left.setup("localhost", "P2PHANDSHAKE", 16 * MIB, 0, "tcp", "", master.address) == -1
    assert f"localhost:{ports[2]} is already running" in caplog.text
    assert two.unmount_segment(mounted["segment_ids"]) == 0
    assert one.close() == two.close() == 0


def test_a_mounted_segment_takes_blocks_and_ends_with_them(master: Master, tmp_path: Path) -> None:
    store = new_store(master)
    assert store.mount_segment(str(tmp_path / "none" / "memory"), 16 * MIB) == {"ret": -1, "segment_ids": []}
    assert list(tmp_path.glob("*")) == []
    (tmp_path / "memory").touch()
    answer = store.mount_segment(str(tmp_path / "memory"), 16 * MIB)
    assert answer["ret"] == 0
    [name] = answer["segment_ids"]
    assert name in master.page("/get_all_segments")[1].split()
    config = store_module.ReplicateConfig()
    config.preferred_segment = name
    assert store.put("there", b"bytes", config) == 0
    assert [copy.segment for copy in store.get_replica_desc("there")] == [name]
    assert store.unmount_segment([name]) == 0
    assert store.unmount_segment([name]) == -1
    assert store.get("there") == b""
    assert list(tmp_path.glob("*")) == [tmp_path / "memory"]
    store.close()
    assert store.allocate_and_mount_segment(MIB)["ret"] == -600


def test_hard_pins_past_half_of_a_segment_find_no_space(master: Master) -> None:
    store = new_store(master, 8 * MIB)
    config = store_module.ReplicateConfig()
    config.with_hard_pin = True
    codes = [store.put(f"pin/{n}", b"x" * MIB, config) for n in range(6)]
    assert codes.count(0) == 3
    assert set(codes) == {0, -200}
    assert store.put("plain", b"x" * MIB) == 0
    assert store.remove_all(True) == 4
    store.close()


def test_memory_that_is_not_registered_is_refused_and_does_not_crash(master: Master) -> None:
    store = new_store(master)
    store.put("key", b"12345")
    buffer = ctypes.create_string_buffer(100)
    at = ctypes.addressof(buffer)
    assert store.get_into("key", at, 100) == -600
    assert store.put_from("other", at, 100) == -600
    assert store.get_into("key", 0, 100) == -600
    assert store.register_buffer(4096, 1 << 40) == -600
    assert store.register_buffer(at, 100) == 0
    assert store.get_into("key", at, 100) == 5
    assert store.get_into("key", at + 90, 20) == -600
    # One bad address in a batch failed all of it.
    assert store.batch_get_into(["key", "key"], [4096, at], [100, 100]) == [-600, 5]
    assert store.batch_put_from(["one", "two"], [at, 4096], [5, 5]) == [0, -600]
    assert store.batch_put_from_multi_buffers(["p", "q"], [[at, 4096], [at, at]], [[1, 1], [1, 1]]) == [-600, 0]
    assert (store.get("one"), store.get("q")) == (b"12345", b"11")
    assert store.get_into_ranges([at], [["key"] * 2], [[[0], [50]]], [[[0], [1]]], [[[5], [100]]]) == [[[5], [-600]]]
    assert store.unregister_buffer(at) == 0
    store.close()


def test_a_buffer_with_gaps_is_put_without_them(master: Master) -> None:
    store = new_store(master)
    assert store.put("gaps", memoryview(b"a.b.c.")[::2]) == 0
    assert store.get("gaps") == b"abc"
    assert store.put("numbers", memoryview(bytes(range(16))).cast("d")) == 0
    assert store.get("numbers") == bytes(range(16))
    store.close()


def test_a_buffer_pool_goes_on_when_its_store_is_set_up_again(master: Master) -> None:
    """Its free buffers were lent again, but no longer registered."""
    store = new_store(master)
    pool = store_module.BufferPool(store, MIB)
    pool.acquire(1000).release()
    store.close()
    assert store.setup("localhost", "P2PHANDSHAKE", 32 * MIB, 0, "tcp", "", master.address) == 0
    with pool.acquire(1000) as lease:
        assert store.put_from("lent", lease.ptr, 1000) == 0
    pool.close()
    store.close()


def test_what_is_no_pattern_removes_nothing(master: Master) -> None:
    """None removed every block: it is what remove_all passes on."""
    store = new_store(master)
    assert store.put("kept", b"bytes") == 0
    for pattern in (None, b"kept", 5):
        with pytest.raises(TypeError, match="regex_pattern is a str"):
            store.remove_by_regex(pattern, True)  # type: ignore[arg-type]
    assert store.get("kept") == b"bytes"
    store.close()


def test_of_a_key_that_is_twice_in_a_batch_the_first_is_stored(master: Master) -> None:
    """The last one was, by the order in which a batch is sealed."""
    store, other = new_store(master), new_store(master)
    for turn in range(20):
        keys = [f"{turn} a", f"{turn} b", f"{turn} a"]
        assert store.put_batch(keys, [b"first" * 10, b"b", b"second" * 20]) == 0
        assert other.get(keys[0]) == b"first" * 10
        assert len(store.get_replica_desc(keys[0])) == 1
    store.close()
    other.close()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_a_store_that_is_closed_while_a_segment_is_mounted_does_not_hang(master: Master, share: float) -> None:
    """The mount waited for Python's lock with the store's own in its hands, and close the other way round."""
    store = new_store(master)
    mounted: list[int] = []
    directory = Path(os.environ["TIDEPOOL_DIR"])
    size, before = 256 * MIB, memory_taken(directory)
    thread = threading.Thread(target=lambda: mounted.append(store.allocate_and_mount_segment(size)["ret"]))
    thread.start()
    eventually(
        f"{share:.0%} of its memory is taken",
        lambda: memory_taken(directory) - before >= share * size or not thread.is_alive(),
        shows=lambda: memory_taken(directory) - before,
    )
    assert store.close() == 0
    thread.join(20)
    assert not thread.is_alive()
    assert mounted[0] in (0, -1, -600)


def test_who_waits_for_a_buffer_hears_that_the_store_is_closed(master: Master) -> None:
    """It waited for good: a store that is closed tells its pools nothing."""
    store = new_store(master)
    pool = store_module.BufferPool(store, MIB)
    lease = pool.acquire(MIB)

    def close() -> None:
        eventually("somebody waits", lambda: pool._changed._waiters)  # type: ignore[attr-defined]
        store.close()

    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(RuntimeError, match="not initialized"):
        pool.acquire(MIB, timeout=20)
    closing.join()
    lease.release()


def test_a_buffer_that_cannot_be_had_is_refused_at_once(master: Master) -> None:
    """It was taken for one that others had, and waited for, for ever."""
    store = new_store(master)
    for pool in (store_module.BufferPool(store), store_module.BufferPool(store, 1 << 52)):
        with pytest.raises(RuntimeError, match="exceeds pool capacity"):
            pool.acquire(1 << 50)
        pool.close()
    store.close()


def test_of_a_key_that_is_twice_in_a_batch_both_have_the_firsts_outcome(master: Master) -> None:
    """The second was put by itself: with a first that found no room, it was stored, or another of the same key was."""
    store = new_store(master)
    large, small = b"x" * (64 * MIB), b"y" * 10
    codes = store._put(["twice", "other", "twice"], [large, small, small], store_module.ReplicateConfig().terms())
    assert codes[0] == codes[2] != 0
    assert codes[1] == 0
    assert store.is_exist("twice") == 0
    store.close()


def test_a_session_keeps_the_config_it_was_begun_with(master: Master) -> None:
    """What its caller did with the config afterwards changed the put at the end, or lost it."""
    store = new_store(master)
    source = ctypes.create_string_buffer(b"x" * 100)
    at = ctypes.addressof(source)
    assert store.register_buffer(at, 100) == 0
    config = store_module.ReplicateConfig()
    assert store.batch_put_session_start(["session"], [100], config) == [0]
    config.replica_num = 0
    assert store.batch_put_from_multi_buffer_ranges(["session"], [[at]], [[100]], [[0]]) == [100]
    assert store.batch_put_session_end(["session"]) == [0]
    assert store.get("session") == b"x" * 100
    store.close()


def test_flags_may_be_anything_that_is_true_or_false(master: Master) -> None:
    store = new_store(master)
    for force in (1, True, "yes"):
        assert store.put("flagged", b"1") == 0
        assert store.is_exist("flagged") == 1
        assert store.remove("flagged", 0) == -706  # type: ignore[arg-type]
        assert store.remove("flagged", force) == 0  # type: ignore[arg-type]
    assert store.batch_get_into_multi_buffers([], [], [], 1) == []
    assert store.remove_all(None) == 0  # type: ignore[arg-type]
    store.close()


def test_a_subclass_may_have_arguments_of_its_own(master: Master) -> None:
    class Named(MooncakeDistributedStore):
        def __init__(self, name: str, *, size: int) -> None:
            super().__init__()
            self.name, self.size = name, size

    assert Named("mine", size=3).health_check() == 1


@pytest.mark.parametrize("host", ["a-pod." + "name." * 12 + "svc.cluster.local", "::1", "[::1]"])
def test_a_host_with_a_long_name_or_an_ipv6_address_brings_a_segment(master: Master, host: str) -> None:
    """Each was refused, because segments are named after their hosts."""
    if ":" in host and not has_ipv6():
        pytest.skip("this host has no IPv6, so nothing is proved about it")
    store = MooncakeDistributedStore()
    assert store.setup(host, "P2PHANDSHAKE", 32 * MIB, 0, "tcp", "", master.address) == 0
    config = store_module.ReplicateConfig()
    config.preferred_segment = store.get_hostname()
    assert store.put("named", b"bytes", config) == 0
    assert store.get("named") == b"bytes"
    assert store.get_hostname() in master.page("/get_all_segments")[1].splitlines()
    # A further segment is where the first one is: its host was taken from the first one's name.
    [mounted] = store.allocate_and_mount_segment(16 * MIB)["segment_ids"]
    with tidepool.Pool.connect([master.address], dir=os.environ["TIDEPOOL_DIR"]) as pool:
        addresses = {node.name: node.address for node in pool.nodes()}
    hosts = {str(addresses[name]).rpartition(":")[0].strip("[]") for name in (store.get_hostname(), mounted)}
    assert hosts == {host.strip("[]")}
    store.close()


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        return probe.connect_ex(("::1", 1)) == errno.ECONNREFUSED


def run_a_task() -> None:
    task_id, _ = TASKS.start(store_module.TaskType.REPLICA_COPY, [lambda: 0])
    task, _ = TASKS.query(task_id)
    assert task
    eventually("it is done", lambda: task.status == store_module.TaskStatus.SUCCESS, shows=lambda: task)
    os._exit(7)


def test_tasks_of_a_forked_child_are_done() -> None:
    """They waited for ever, for threads that only the parent has."""
    task_id, _ = TASKS.start(store_module.TaskType.REPLICA_COPY, [lambda: 0])
    child = multiprocessing.get_context("fork").Process(target=run_a_task)
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 7
    assert TASKS.query(task_id)[1] == 0


def test_a_drained_segment_that_seems_dead_for_a_while_stays_drained() -> None:
    """One look at a moment when it, or its master, had been stopped reopened it."""

    def node(state: str | None, epoch: int = 1) -> SimpleNamespace:
        return SimpleNamespace(name="segment", epoch=epoch, state=state)

    nodes: list[SimpleNamespace] = []
    jobs = DrainJobs(SimpleNamespace(nodes=lambda: nodes))  # type: ignore[arg-type]
    jobs._closed["segment"] = 1
    for seen, told in (
        ([node("alive")], ["segment"]),
        ([node("dead")], []),
        ([node(None)], []),
        ([], []),
        ([node("suspect")], ["segment"]),
    ):
        nodes[:] = seen
        assert (jobs._still_closed(), jobs.status_of("segment")) == (told, (3, "DRAINED"))
    nodes[:] = [node("alive", epoch=2)]
    assert (jobs._still_closed(), jobs.status_of("segment")) == ([], (1, "OK"))


def test_tasks_are_bounded() -> None:
    tasks, gate = Tasks(), threading.Event()

    def wait() -> int:
        return 0 if gate.wait(20) else -1

    started = [tasks.start(store_module.TaskType.REPLICA_COPY, [wait]) for _ in range(1001)]
    assert [code for _, code in started] == [0] * 1000 + [-1401]
    gate.set()
    first, *_ = known = [task_id for task_id, code in started if code == 0]

    def undone() -> list[store_module.QueryTaskResponse | None]:
        answers = [tasks.query(task_id)[0] for task_id in known]
        return [task for task in answers if not task or task.status != store_module.TaskStatus.SUCCESS]

    eventually("all are done", lambda: not undone(), shows=lambda: undone()[:3])
    assert tasks.start(store_module.TaskType.REPLICA_COPY, [])[1] == 0
    assert tasks.query(first)[1] == -1400


def test_settings_that_cannot_be_are_named(master: Master, caplog: pytest.LogCaptureFixture) -> None:
    def setup(**changes: object) -> int:
        settings = {"master_server_addr": master.address, "global_segment_size": 0, **changes}
        return MooncakeDistributedStore().setup(settings)

    assert setup(global_segment_size="10%") == -600
    assert "global_segment_size is '10%'" in caplog.text
    assert setup(master_server_addr="etcd://host:2379") == -600
    assert setup(tenant_id="other") == -600
    with caplog.at_level(logging.WARNING):
        assert setup(protocol="rdma") == 0
        assert setup(protocol="rdma") == 0
    assert caplog.text.count("protocol 'rdma'") == 1
    for name in ("localhost:99999", "localhost:x", "[::1]:65536", "127.0.0.1:\xb2"):
        # What was named was the address to listen on, which nobody had given, and the last of these raised.
        assert setup(local_hostname=name, global_segment_size="16MB") == -600
        assert f"local_hostname is {name!r}: allowed is a host, or host:port with a port" in caplog.text
    assert setup(protocol="bogus") == -1
    assert "protocol is 'bogus'" in caplog.text
    assert setup(master_server_addr="") == -600
    assert setup(master_server_addr=",") == -600
    assert setup(local_buffer_size="10%") == -600
    assert setup(global_segment_size="99999999T") == -600
    assert setup(master_server_addr="127.0.0.1:99999") == -1
    assert "port from 0 to 65535, is missing" in caplog.text
    for address in ("127.0.0.1:abc", "a b:1", ""):
        assert MooncakeDistributedStore().setup_dummy(0, 0, address) == -1
    store = MooncakeDistributedStore()
    assert store.setup(config={"master_server_addr": master.address, "global_segment_size": 0}) == 0
    assert store.allocate_and_mount_segment(MIB, "bogus")["ret"] == -1
    for wrong in (-1, 1 << 64):
        with pytest.raises(TypeError, match=rf"is {wrong}: allowed are whole numbers from 0 to"):
            store.register_buffer(0, wrong)
    store.close()
    assert MooncakeDistributedStore().setup({}) == -600
    with pytest.raises(TypeError, match="unknown"):
        MooncakeDistributedStore().setup("localhost", "", 0, 0, "tcp", "", master.address, nonsense=True)


def test_a_dict_may_have_the_names_that_engines_use(master: Master, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"local_hostname": "localhost", "global_segment_size": "0", "device_name": "", "wonders": "true"}
    store = MooncakeDistributedStore()
    with caplog.at_level(logging.WARNING):
        assert store.setup({**settings, "master_server_address": master.address}) == 0
    assert store.health_check() == 0
    store.close()
    assert "'wonders' is not a setting" in caplog.text
    assert "device_name" not in caplog.text
    # Mooncake's own name is the one that counts.
    both = {"master_server_address": "127.0.0.1:1", "master_server_addr": master.address}
    assert MooncakeDistributedStore().setup({**settings, **both}) == 0


@pytest.mark.parametrize("program", ["mooncake_master", "mooncake_client"])
def test_programs_say_how_they_are_used(program: str) -> None:
    def answer(*words: str) -> tuple[int, str]:
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=20)
        return done.returncode, done.stdout + done.stderr

    code, text = answer("--help")
    assert code == 0
    assert text.startswith(f"{program}: ")
    assert "--global_segment_size=4GB" in text or "--rpc_port=50051" in text
    assert answer("--version")[1].startswith(f"{program} of tidepool-mooncake")
    code, text = answer("stray")
    assert code == 1
    assert "'stray' is not a flag: allowed are flags like --" in text


def test_an_unknown_flag_is_named_and_the_master_starts(master: Master) -> None:
    ports = [f"--rpc_port={free_port()}", "--metrics_port", str(free_port())]
    line = ["mooncake_master", *ports, "--enable_wonders=true", "-v", "1"]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    text = ""
    while "master serves at" not in text:
        text += process.stderr.readline()
    process.terminate()
    assert process.wait(20) == 0
    assert "--enable_wonders is not known" in text
    for words, value in ((["--rpc_port=many"], "many"), (["--rpc_port", "-1"], "-1")):
        bad = subprocess.run(["mooncake_master", *words], capture_output=True, text=True, check=False)
        assert bad.returncode == 1
        assert f"--rpc_port is {value!r}: allowed are numbers" in bad.stderr


def test_a_standalone_client_serves_engines_without_memory(master: Master) -> None:
    port = free_port()
    line = [
        "mooncake_client",
        f"--master_server_address={master.address}",
        "--global_segment_size=32MB",
        f"--port={port}",
    ]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "is mounted" not in process.stderr.readline():
        assert process.poll() is None
    store = MooncakeDistributedStore()
    # A proxy that the environment names was asked instead.
    with patch.dict(os.environ, {"http_proxy": "http://127.0.0.1:9"}):
        assert store.setup_dummy(MIB, MIB, f"127.0.0.1:{port}") == 0
    assert store.put("kept", b"by the standalone client") == 0
    taken = subprocess.run(line, capture_output=True, text=True, timeout=30, check=False)
    assert taken.returncode == 1
    assert f"engines (--port) cannot be served at 127.0.0.1, port {port}: Address already in use" in taken.stderr
    store.close()
    other = MooncakeDistributedStore()
    assert other.setup_dummy(MIB, MIB, f"127.0.0.1:{port}") == 0
    assert other.get("kept") == b"by the standalone client"
    other.close()
    process.terminate()
    assert process.wait(20) == 0
    assert MooncakeDistributedStore().setup_dummy(MIB, MIB, f"127.0.0.1:{port}") == -1


def test_a_drain_onto_a_segment_that_is_too_small_fails_and_loses_nothing(master: Master) -> None:
    one, small = new_store(master), new_store(master, 2 * MIB)
    blocks = {f"drained/{n}": os.urandom(100_000) for n in range(100)}
    assert all(one.put(key, block, on(one)) == 0 for key, block in blocks.items())
    assert small.put("at home", b"x" * 100_000, on(small)) == 0
    answer = drain(master, one.get_hostname(), small.get_hostname())
    assert answer["status_name"] == "FAILED"
    assert answer["succeeded_units"] > 5
    assert answer["failed_units"] == 100 - answer["succeeded_units"]
    assert all(one.get(key) == block for key, block in blocks.items())
    assert one.get("at home") == b"x" * 100_000
    # It is as it was before.
    assert status_of(master, one.get_hostname()) == "OK"
    assert one.put("again", b"here", on(one)) == 0
    assert [copy.segment for copy in one.get_replica_desc("again")] == [one.get_hostname()]
    one.close()
    small.close()


def test_native_clients_put_nothing_on_a_drained_segment(master: Master) -> None:
    one, two = new_store(master), new_store(master)
    assert drain(master, one.get_hostname())["status_name"] == "SUCCEEDED"
    for local in (True, False):
        with tidepool.Pool.connect([master.address], dir=os.environ["TIDEPOOL_DIR"], local=local) as pool:
            key = f"native/{local}"
            pool.put(key, b"bytes", prefer=one.get_hostname())
            assert [copy.node for copy in pool.describe(key)] == [two.get_hostname()]
            with pytest.raises(tidepool.NoSpaceError):
                pool.copy_to(key, one.get_hostname())
    one.close()
    two.close()


def test_a_segment_takes_blocks_again_when_its_master_is_gone_for_a_while(master: Master) -> None:
    one, two = new_store(master), new_store(master)
    with tidepool.Pool.connect([master.address], dir=os.environ["TIDEPOOL_DIR"]) as pool:
        assert pool.drain(one.get_hostname(), 0.2) == 0
        assert one.put("at once", b"bytes", on(one)) == 0
        assert [copy.segment for copy in one.get_replica_desc("at once")] == [two.get_hostname()]
        later = (f"later/{n}" for n in itertools.count())

        def takes_blocks() -> bool:
            key = next(later)
            assert one.put(key, b"bytes", on(one)) == 0
            return [copy.segment for copy in one.get_replica_desc(key)] == [one.get_hostname()]

        eventually("the segment takes blocks again", takes_blocks)
        pool.drain(one.get_hostname(), 1000)
        pool.drain(one.get_hostname(), 0)
        assert one.put("open", b"bytes", on(one)) == 0
        assert [copy.segment for copy in one.get_replica_desc("open")] == [one.get_hostname()]
    one.close()
    two.close()


def test_a_range_never_leads_into_another_buffer(master: Master) -> None:
    """Whatever was registered where a range led to was written."""
    store = new_store(master)
    assert store.put("block", b"x" * 100) == 0
    memory = (ctypes.c_char * (64 << 10)).from_buffer(bytearray(64 << 10))
    one, two = ctypes.addressof(memory), ctypes.addressof(memory) + 4096
    assert store.register_buffer(one, 4096) == 0
    assert store.register_buffer(two, 4096) == 0
    for to in (4096, 4087, -1, -one - 1, 1 << 63, 1 << 64, 1 << 70):
        assert store.get_into_ranges([one], [["block", "block"]], [[[to], [0]]], [[[0], [0]]], [[[10], [10]]]) == [
            [[-600], [10]]
        ]
    assert bytes(memory[:8192]) == b"x" * 10 + bytes(8182)
    assert store.get_into_ranges([one + 4000], [["block"]], [[[86]]], [[[0]]], [[[10]]]) == [[[10]]]
    assert store.get_into_ranges([one + 4000], [["block"]], [[[87]]], [[[0]]], [[[10]]]) == [[[-600]]]
    assert store.close() == 0


def test_keys_of_sessions_may_be_bytes_and_parts_may_have_gaps(master: Master) -> None:
    store = new_store(master)
    memory = (ctypes.c_char * 4096).from_buffer(bytearray(b"abcd" * 1024))
    at = ctypes.addressof(memory)
    assert store.register_buffer(at, 4096) == 0
    key: str = b"session"  # type: ignore[assignment]
    assert store.batch_put_session_start([key], [10]) == [0]
    assert store.batch_put_from_multi_buffer_ranges(["session"], [[at]], [[10]], [[0]]) == [10]
    assert store.batch_put_session_end([key]) == [0]
    assert store.get("session") == b"abcdabcdab"
    assert store.batch_get_session_start([key]) == [0]
    assert store.batch_get_into_multi_buffer_ranges(["session"], [[at + 100]], [[4]], [[2]]) == [4]
    assert store.batch_get_session_end([key]) == 0
    assert bytes(memory[100:104]) == b"cdab"
    assert store.put_parts("gaps", memoryview(b"a.b.c.")[::2], b"d") == 0
    assert store.get("gaps") == b"abcd"
    assert store.close() == 0


def test_ranges_of_one_call_are_of_one_version_also_over_tcp(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was a read of its own: beside an upsert, one call in thirty brought a half of each version."""
    size = 1 << 20
    writer = new_store(master)
    monkeypatch.setenv("TIDEPOOL_SHARED_MEMORY", "0")
    reader = new_store(master, size=0)
    memory = (ctypes.c_char * size).from_buffer(bytearray(size))
    at, half = ctypes.addressof(memory), size // 2
    assert reader.register_buffer(at, size) == 0
    over = threading.Event()

    def write() -> None:
        version = 0
        while not over.is_set():
            version = (version + 1) % 251
            assert writer.upsert("versions", bytes([version]) * size) == 0

    thread = threading.Thread(target=write)
    thread.start()
    whole = 0
    try:
        for _ in range(1500):
            [[codes]] = reader.get_into_ranges([at], [["versions"]], [[[0, half]]], [[[0, half]]], [[[half, half]]])
            if codes == [half, half]:
                whole += 1
                assert memory[0] == memory[half - 1] == memory[half] == memory[size - 1]
    finally:
        over.set()
        thread.join()
    assert whole > 100
    assert reader.close() == writer.close() == 0


def test_a_client_that_answers_a_byte_at_a_time_does_not_hold_up_setup_dummy() -> None:
    """Each byte began the time-out anew."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            taken, _ = listener.accept()
            with taken:
                while not over.wait(0.1):
                    taken.send(b"H")

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with patch.object(store_module, "_WAIT", 0.5):
                address = f"127.0.0.1:{listener.getsockname()[1]}"
                assert MooncakeDistributedStore().setup_dummy(0, 0, address) == -1
        finally:
            over.set()
            thread.join()
