"""``mooncake.store``: the names, arguments and return codes that engines know, on a Tidepool pool.

Zero or a count is success, a negative number one of Mooncake's error codes. Frequent calls are in the extension module
(:class:`tidepool._native.MooncakeStore`); this file adds set-up, configurations and rare calls. The module is a
directory because Python finds that before Mooncake's own ``store.so``: see :mod:`mooncake.others`.
"""

import functools
import http.client
import json
import os
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

from tidepool._native import BufferHandle, MooncakeStore, listed

from mooncake import others
from mooncake.absent import (
    EngramStore,
    EngramStoreConfig,
    MooncakeDistributedNoFRegister,
    absent_call,
    no_tensors,
)
from mooncake.bounded import within
from mooncake.buffers import BufferLease, BufferPool, RegisteredBufferLease, RegisteredBufferPool
from mooncake.kinds import (
    Descriptor,
    DiskDescriptor,
    MemoryDescriptor,
    ObjectDataType,
    ParallelAxis,
    QueryTaskResponse,
    ReadTarget,
    ReplicaDescriptor,
    ReplicaStatus,
    ReplicateConfig,
    SoftPinAction,
    TaskStatus,
    TaskType,
    TensorParallelism,
    refusal,
)
from mooncake.memory import (
    HostMemory,
    MooncakeHostMemAllocator,
    bind_to_numa_node,
    get_alloc_func_addr,
    get_free_func_addr,
)
from mooncake.ranges import RangeReads
from mooncake.sessions import GetSessions, PutSessions
from mooncake.settings import (
    ProtocolError,
    SettingError,
    Settings,
    check_number,
    directory,
    log,
    setup_arguments,
    shown,
    smallest_block,
    uses_shared_memory,
    warn_of_protocol,
)
from mooncake.tasks import TASKS
from tidepool import InvalidError, TidepoolError

__all__ = [
    "BufferHandle",
    "BufferLease",
    "BufferPool",
    "Descriptor",
    "DiskDescriptor",
    "EngramStore",
    "EngramStoreConfig",
    "MemoryDescriptor",
    "MooncakeDistributedNoFRegister",
    "MooncakeDistributedStore",
    "MooncakeHostMemAllocator",
    "ObjectDataType",
    "ParallelAxis",
    "QueryTaskResponse",
    "ReadTarget",
    "RegisteredBufferLease",
    "RegisteredBufferPool",
    "ReplicaDescriptor",
    "ReplicaStatus",
    "ReplicateConfig",
    "SoftPinAction",
    "TaskStatus",
    "TaskType",
    "TensorParallelism",
    "bind_to_numa_node",
    "get_alloc_func_addr",
    "get_free_func_addr",
]

_INTERNAL = -1
_INVALID_PARAMS = -600
_NOT_FOUND = -704
_RPC_FAIL = -900
#: How long set-up waits for a master.
_WAIT = 5.0
#: How long a call may take.
_DEADLINE = 10.0
_DEFAULT = ReplicateConfig()

Addresses = Sequence[int]


class MooncakeDistributedStore(MooncakeStore):
    """A store: a client of the pool, and the memory that this process brings to it."""

    def __init__(self) -> None:
        self._hostname = self._host = ""
        self._memory = HostMemory()
        self._put_sessions = PutSessions()
        self._get_sessions = GetSessions()

    # Lifecycle

    def setup(self, *arguments: Any, **settings: Any) -> int:
        """Connects to a master and mounts a segment: Mooncake's arguments in order or by name, or one dict."""
        try:
            return self._set_up(Settings.of(setup_arguments(arguments, settings)))
        except ProtocolError as error:
            log.error("setup: %s", error)
            return _INTERNAL
        except (SettingError, TidepoolError, OSError) as error:
            log.error("setup: %s", error)
            return _INVALID_PARAMS if isinstance(error, SettingError) else _INTERNAL

    def _set_up(self, settings: Settings) -> int:
        def connect(name: str, listen: str, advertise: str | None) -> None:
            self._connect(
                name=name,
                catalogs=settings.masters,
                dir=directory(),
                listen=listen,
                advertise=advertise,
                segment_bytes=settings.segment_bytes,
                smallest_block=smallest_block(),
                local=uses_shared_memory(),
                tcp_streams=2,
                deadline=_DEADLINE,
                wait=_WAIT,
            )

        self._hostname = settings.at_a_free_port(connect)
        self._host = settings.host
        return 0

    def init_all(self, protocol: str, device_name: str, mount_segment_size: int = 16 << 20) -> int:
        """As :meth:`setup` with the environment's addresses."""
        return self.setup("localhost", "P2PHANDSHAKE", mount_segment_size, 16 << 20, protocol, device_name, "")

    def setup_dummy(self, mem_pool_size: int, local_buffer_size: int, server_address: str) -> int:
        """Uses the segment of a ``mooncake_client`` process instead of bringing one."""
        try:
            masters = within(_WAIT, functools.partial(_masters_of, server_address))
        except (OSError, ValueError, http.client.HTTPException) as error:
            log.error("setup_dummy: no mooncake_client answers at %s: %s", server_address, error)
            return _INTERNAL
        return self.setup("localhost", "P2PHANDSHAKE", 0, local_buffer_size, "tcp", "", masters)

    def close(self) -> int:
        self._put_sessions.clear()
        self._get_sessions.clear()
        return super().close()

    def health_check(self) -> int:
        """0: well; 1: not set up; 2: the master does not answer."""
        if not self._is_set_up():
            return 1
        return 0 if self._master_answers() else 2

    def get_hostname(self) -> str:
        return self._hostname

    # Segments

    def allocate_and_mount_segment(self, size: int, protocol: str = "tcp", location: str = "") -> dict[str, Any]:
        """Brings a further segment of ``size`` bytes to the pool."""
        answer = self._mount_in(directory(), size, protocol)
        return {**answer, "allocated_size": size if answer["ret"] == 0 else 0}

    def mount_segment(
        self, path: str, size: int, offset: int = 0, protocol: str = "tcp", location: str = ""
    ) -> dict[str, Any]:
        """As :meth:`allocate_and_mount_segment`, with memory beside the file ``path``, which stays unchanged."""
        if not os.path.isfile(path):
            log.error("mount_segment: there is no file %s", path)
            return {"ret": _INTERNAL, "segment_ids": []}
        return self._mount_in(os.path.dirname(os.path.abspath(path)), size, protocol)

    def unmount_segment(self, segment_ids: list[str], grace_period_seconds: int = 0) -> int:
        """Ends segments that were mounted by this store, and their blocks."""
        found = [self._unmount(name) for name in listed(segment_ids, "segment ids")]
        return 0 if all(found) else _INTERNAL

    unmount_and_free_segment = unmount_segment

    def unmount_local_disk_segment(self, grace_period_seconds: int = 0) -> int:
        """Does nothing: there is no such segment."""
        return 0

    def _mount_in(self, path: str, size: int, protocol: str) -> dict[str, Any]:
        failed = {"ret": _INTERNAL, "segment_ids": []}
        check_number("size", size)
        if not self._is_set_up():
            return {**failed, "ret": _INVALID_PARAMS}
        if size == 0:
            return failed
        settings = Settings(host=self._host, port=None, masters=[], segment_bytes=size)

        def mount(name: str, listen: str, advertise: str | None) -> None:
            self._mount(
                name=name,
                dir=path,
                listen=listen,
                advertise=advertise,
                segment_bytes=size,
                smallest_block=smallest_block(),
            )

        try:
            warn_of_protocol(protocol)
            return {"ret": 0, "segment_ids": [settings.at_a_free_port(mount)]}
        except (ProtocolError, TidepoolError, OSError) as error:
            log.error("mounting %d bytes in %s: %s", size, path, error)
            return failed

    # Bytes

    def put(self, key: str, value: Any, config: ReplicateConfig = _DEFAULT) -> int:
        return self._put_bytes([key], [value], config)[0]

    def put_parts(self, key: str, *parts: Any, config: ReplicateConfig = _DEFAULT) -> int:
        return self._put_bytes([key], [parts], config)[0]

    def put_batch(self, keys: Sequence[str], values: Sequence[Any], config: ReplicateConfig = _DEFAULT) -> int:
        return _first_failure(self._put_bytes(keys, values, config))

    def upsert(self, key: str, value: Any, config: ReplicateConfig = _DEFAULT) -> int:
        """As :meth:`put`, but replaces a block that is held under the key."""
        return self._put_bytes([key], [value], config, upsert=True)[0]

    def upsert_parts(self, key: str, *parts: Any, config: ReplicateConfig = _DEFAULT) -> int:
        return self._put_bytes([key], [parts], config, upsert=True)[0]

    def upsert_batch(self, keys: Sequence[str], values: Sequence[Any], config: ReplicateConfig = _DEFAULT) -> int:
        return _first_failure(self._put_bytes(keys, values, config, upsert=True))

    def _put_bytes(
        self, keys: Sequence[str | bytes], values: Sequence[Any], config: ReplicateConfig, upsert: bool = False
    ) -> list[int]:
        names = self._counted(keys)
        if code := refusal(config, len(names)):
            return [code] * len(names)
        return self._put(names, values, config.terms(upsert))

    def _counted(self, keys: Sequence[str | bytes]) -> Sequence[str | bytes]:
        """The keys, as a list with a trustworthy length."""
        return keys if type(keys) in (list, tuple) else self._names(keys)

    # Zero-copy

    def put_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig = _DEFAULT) -> int:
        return self.batch_put_from([key], [buffer_ptr], [size], config)[0]

    def batch_put_from(
        self, keys: Sequence[str], buffer_ptrs: Addresses, sizes: Sequence[int], config: ReplicateConfig = _DEFAULT
    ) -> list[int]:
        return self._put_pieces(keys, buffer_ptrs, sizes, config, upsert=False)

    def upsert_from(self, key: str, buffer_ptr: int, size: int, config: ReplicateConfig = _DEFAULT) -> int:
        return self.batch_upsert_from([key], [buffer_ptr], [size], config)[0]

    def batch_upsert_from(
        self, keys: Sequence[str], buffer_ptrs: Addresses, sizes: Sequence[int], config: ReplicateConfig = _DEFAULT
    ) -> list[int]:
        return self._put_pieces(keys, buffer_ptrs, sizes, config, upsert=True)

    def _put_pieces(
        self, keys: Sequence[str], buffer_ptrs: Addresses, sizes: Sequence[int], config: ReplicateConfig, upsert: bool
    ) -> list[int]:
        names = self._counted(keys)
        if code := refusal(config, len(names)):
            return [code] * len(names)
        return self._put_from_one(names, buffer_ptrs, sizes, config.terms(upsert))

    def put_from_with_metadata(
        self,
        key: str,
        buffer_ptr: int,
        metadata_buffer_ptr: int,
        size: int,
        metadata_size: int,
        config: ReplicateConfig = _DEFAULT,
    ) -> int:
        """Stores the metadata and then the data as one block."""
        pieces, sizes = [metadata_buffer_ptr, buffer_ptr], [metadata_size, size]
        return self.batch_put_from_multi_buffers([key], [pieces], [sizes], config)[0]

    def batch_put_from_multi_buffers(
        self,
        keys: Sequence[str],
        all_buffer_ptrs: Sequence[Addresses],
        all_sizes: Sequence[Sequence[int]],
        config: ReplicateConfig = _DEFAULT,
    ) -> list[int]:
        names = self._counted(keys)
        if code := refusal(config, len(names)):
            return [code] * len(names)
        return self._put_from(names, all_buffer_ptrs, all_sizes, config.terms())

    def get_into_ranges(
        self,
        buffer_ptrs: Addresses,
        all_keys: Sequence[Sequence[str]],
        all_dst_offsets: Sequence[Sequence[Sequence[int]]],
        all_src_offsets: Sequence[Sequence[Sequence[int]]],
        all_sizes: Sequence[Sequence[Sequence[int]]],
    ) -> list[list[list[int]]]:
        """Reads fragments of blocks into places in buffers. The answer has the shape of ``all_sizes``."""
        reads = RangeReads(buffer_ptrs, all_keys, all_dst_offsets, all_src_offsets, all_sizes)
        return reads.answers(self._get_ranges(reads.ranges))

    # Removal

    def remove(self, key: str, force: bool = False) -> int:
        return self._remove([key], bool(force))[0]

    def batch_remove(self, keys: Sequence[str], force: bool = False) -> list[int]:
        return self._remove(keys, bool(force))

    def remove_by_regex(self, regex_pattern: str, force: bool = False) -> int:
        if not isinstance(regex_pattern, str):
            raise TypeError(f"regex_pattern is a str, not {shown(regex_pattern)}; remove_all removes everything")
        try:
            return self._remove_matching(regex_pattern, bool(force))
        except InvalidError as error:
            log.error("remove_by_regex: %s", error)
            return _INVALID_PARAMS

    def remove_all(self, force: bool = False) -> int:
        return self._remove_matching(None, bool(force))

    # Replicas and tasks

    def get_replica_desc(self, key: str) -> list[ReplicaDescriptor]:
        return self.batch_get_replica_desc([key]).get(key, [])

    def batch_get_replica_desc(self, keys: Sequence[str]) -> dict[str, list[ReplicaDescriptor]]:
        found = self._describe(keys)
        each = zip(listed(keys, "keys"), found, strict=True)
        return {key: [_replica(*copy) for copy in copies] for key, copies in each if copies}

    def batch_replica_clear(self, keys: Sequence[str], segment_name: str = "") -> list[str]:
        """Removes the copies of this store's own blocks, on one segment or all; those that are leased stay."""
        cleared = self._clear_replicas(keys, segment_name or None)
        return [key for key, gone in zip(listed(keys, "keys"), cleared, strict=True) if gone]

    def create_copy_task(self, key: str, targets: Sequence[str]) -> tuple[tuple[int, int], int]:
        """Makes segments copy a block, in the background; :meth:`query_task` tells the state."""
        if not isinstance(targets, list | tuple) or not all(isinstance(target, str) for target in targets):
            raise TypeError(f"targets is a list of segments, not {shown(targets)}")
        if code := self._task_refusal(key, targets):
            return (0, 0), code
        return TASKS.start(TaskType.REPLICA_COPY, [functools.partial(self._copy, key, target) for target in targets])

    def create_move_task(self, key: str, source: str, target: str) -> tuple[tuple[int, int], int]:
        """Makes ``target`` take a block over from ``source``."""
        if not isinstance(source, str) or not isinstance(target, str):
            raise TypeError(f"source and target are names of segments, not {shown(source)} and {shown(target)}")
        if code := self._task_refusal(key, [target], source):
            return (0, 0), code
        return TASKS.start(TaskType.REPLICA_MOVE, [functools.partial(self._copy, key, target, source)])

    def _task_refusal(self, key: str, targets: Sequence[str], source: str | None = None) -> int:
        """The code why a task cannot begin; zero if it can. The check is no use of the block: it leases none."""
        if not self._is_set_up():
            return _INVALID_PARAMS
        holders, known = self._holders(key), {name for name, _ in self._segments()}
        if not (holders and known) and not self._master_answers():
            return _RPC_FAIL
        if not holders:
            return _NOT_FOUND
        is_source_wrong = source is not None and (source not in holders or source in targets)
        return _INVALID_PARAMS if not targets or not known.issuperset(targets) or is_source_wrong else 0

    def query_task(self, task_id: tuple[int, int]) -> tuple[QueryTaskResponse | None, int]:
        return TASKS.query(task_id)

    def get_offload_rpc_read_count(self) -> int:
        """Reads from disks of other hosts; there are none."""
        return 0

    # Sessions

    def batch_get_session_start(self, keys: Sequence[str]) -> list[int]:
        return self._get_sessions.start(self, keys)

    def batch_get_into_multi_buffer_ranges(
        self,
        keys: Sequence[str],
        all_buffer_ptrs: Sequence[Addresses],
        all_sizes: Sequence[Sequence[int]],
        all_src_offsets: Sequence[Sequence[int]],
    ) -> list[int]:
        return self._get_sessions.read(self, keys, all_buffer_ptrs, all_sizes, all_src_offsets)

    def batch_get_session_end(self, keys: Sequence[str]) -> int:
        return self._get_sessions.end(self, keys)

    def batch_put_session_start(
        self, keys: Sequence[str], sizes: Sequence[int], config: ReplicateConfig = _DEFAULT
    ) -> list[int]:
        return self._put_sessions.start(self, keys, sizes, config)

    def batch_put_from_multi_buffer_ranges(
        self,
        keys: Sequence[str],
        all_buffer_ptrs: Sequence[Addresses],
        all_sizes: Sequence[Sequence[int]],
        all_dst_offsets: Sequence[Sequence[int]],
    ) -> list[int]:
        return self._put_sessions.write(self, keys, all_buffer_ptrs, all_sizes, all_dst_offsets)

    def batch_put_session_end(self, keys: Sequence[str]) -> list[int]:
        return self._put_sessions.end(self, keys)

    def batch_put_session_revoke(self, keys: Sequence[str]) -> list[int]:
        return self._put_sessions.revoke(self, keys)

    # Memory of the host

    def alloc_from_mem_pool(self, size: int) -> int:
        return self._memory.alloc(size)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise absent_call(self, name)


_serialize_tensor = _deserialize_tensor = _tensor_metadata_size = no_tensors


def _masters_of(server_address: str) -> str:
    """The masters that a ``mooncake_client`` uses."""
    # Not through a proxy that the environment may name: it is a process of this host.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(f"http://{server_address}/masters", timeout=_WAIT) as answer:
        return ",".join(json.loads(answer.read(1 << 16)))


def _first_failure(codes: Sequence[int]) -> int:
    return next((code for code in codes if code), 0)


def _replica(segment: str, size: int, endpoint: str) -> ReplicaDescriptor:
    memory = MemoryDescriptor(Descriptor(size=size, transport_endpoint=endpoint))
    return ReplicaDescriptor(ReplicaStatus.COMPLETE, memory, segment)


for _kinds in (ObjectDataType, ReplicaStatus, TaskStatus, TaskType):
    globals().update(_kinds.__members__)

others.warn()
