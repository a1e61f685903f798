"""What the drop-in adds to Mooncake's own behaviour: clear errors where something is missing."""

import ctypes
import importlib.util
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import mooncake.store as store_module
import pytest
from mooncake.store import MooncakeDistributedStore
from mooncake.tasks import Tasks

import tidepool

from .mooncake_store.conftest import MIB, Master, free_port
from .mooncake_store.test_drain import drain, on, status_of


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
    assert store.unregister_buffer(at) == 0
    store.close()


def test_a_buffer_with_gaps_is_put_without_them(master: Master) -> None:
    store = new_store(master)
    assert store.put("gaps", memoryview(b"a.b.c.")[::2]) == 0
    assert store.get("gaps") == b"abc"
    assert store.put("numbers", memoryview(bytes(range(16))).cast("d")) == 0
    assert store.get("numbers") == bytes(range(16))
    store.close()


def test_tasks_are_bounded() -> None:
    tasks, gate = Tasks(), threading.Event()

    def wait() -> int:
        return 0 if gate.wait(20) else -1

    started = [tasks.start(store_module.TaskType.REPLICA_COPY, [wait]) for _ in range(1001)]
    assert [code for _, code in started] == [0] * 1000 + [-1401]
    gate.set()
    until = time.monotonic() + 20
    first, last = started[0][0], started[999][0]
    while (task := tasks.query(last)[0]) and task.status != store_module.TaskStatus.SUCCESS:
        assert time.monotonic() < until
        time.sleep(0.01)
    assert tasks.query(first)[1] == 0
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
    assert setup(protocol="bogus") == -1
    assert "protocol is 'bogus'" in caplog.text
    assert setup(master_server_addr="") == -600
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
    bad = subprocess.run(["mooncake_master", "--rpc_port=many"], capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert "--rpc_port is 'many': allowed are numbers" in bad.stderr


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
    assert store.setup_dummy(MIB, MIB, f"127.0.0.1:{port}") == 0
    assert store.put("kept", b"by the standalone client") == 0
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
        time.sleep(0.25)
        assert one.put("later", b"bytes", on(one)) == 0
        assert [copy.segment for copy in one.get_replica_desc("later")] == [one.get_hostname()]
        pool.drain(one.get_hostname(), 1000)
        pool.drain(one.get_hostname(), 0)
        assert one.put("open", b"bytes", on(one)) == 0
        assert [copy.segment for copy in one.get_replica_desc("open")] == [one.get_hostname()]
    one.close()
    two.close()
