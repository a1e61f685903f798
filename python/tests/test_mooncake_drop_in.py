"""What the drop-in adds to Mooncake's own behaviour: clear errors where something is missing."""

import ctypes
import importlib
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import mooncake.store as store_module
import pytest
from mooncake.store import MooncakeDistributedStore

from .mooncake_store.conftest import MIB, Master, free_port


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


def test_tensor_calls_say_what_to_do_instead(master: Master) -> None:
    with pytest.raises(NotImplementedError, match="store the tensor's bytes"):
        MooncakeDistributedStore().put_tensor("key", None)


def test_classes_that_are_not_offered_say_so() -> None:
    for name in ("MooncakeDistributedNoFRegister", "EngramStore", "EngramStoreConfig"):
        with pytest.raises(NotImplementedError, match=f"{name} is not part of tidepool-mooncake"):
            getattr(store_module, name)()
    with pytest.raises(NotImplementedError, match="store the tensor's bytes"):
        store_module._serialize_tensor(None)


def test_a_mounted_segment_takes_blocks_and_ends_with_them(master: Master, tmp_path: Path) -> None:
    store = new_store(master)
    answer = store.mount_segment(str(tmp_path / "memory"), 16 * MIB)
    assert answer["ret"] == 0
    [name] = answer["segment_ids"]
    assert name in master.page("/get_all_segments")[1].split()
    config = store_module.ReplicateConfig()
    config.preferred_segment = name
    assert store.put("there", b"bytes", config) == 0
    assert [copy.segment for copy in store.get_replica_desc("there")] == [name]
    assert store.unmount_segment([name]) == 0
    assert store.unmount_segment([name]) == -101
    assert store.get("there") == b""
    assert list(tmp_path.glob("*")) == []
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


def test_a_drained_segment_loses_no_block(master: Master) -> None:
    one, two = new_store(master), new_store(master)
    for n in range(20):
        assert one.put(f"drained/{n}", bytes([n]) * 1000) == 0
    body = json.dumps({"segments": [one.get_hostname()]}).encode()
    status, text = master.page("/api/v1/drain_jobs", body)
    assert status == 200, text
    job = json.loads(text)["job_id"]
    until = time.monotonic() + 20
    while (answer := json.loads(master.page(f"/api/v1/drain_jobs/query?job_id={job}")[1]))["status"] != "SUCCEEDED":
        assert answer["status"] in ("CREATED", "RUNNING"), answer
        assert time.monotonic() < until
        time.sleep(0.05)
    assert answer["succeeded_units"] == 20
    one.close()
    assert all(two.get(f"drained/{n}") == bytes([n]) * 1000 for n in range(20))
    two.close()
    assert master.page("/api/v1/drain_jobs", b"{}")[0] == 400
    assert master.page("/api/v1/drain_jobs/query?job_id=none")[0] == 404
