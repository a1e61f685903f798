"""``mooncake_master``: a Tidepool catalog under the name, the flags and the admin pages that Mooncake's users know."""

from mooncake import flags, program
from mooncake.admin import Admin
from mooncake.settings import directory, log, resolve
from mooncake.store import MooncakeDistributedStore
from tidepool import Catalog, Pool

_FLAGS = {
    "rpc_port": ("50051", "where clients and segments reach the master"),
    "rpc_address": ("0.0.0.0", "the address to listen on"),
    "metrics_port": ("9003", "where the admin pages are"),
    "metrics_host": ("", "the address of the admin pages; where the master itself listens if it is empty"),
    "default_kv_lease_ttl": ("10000", "milliseconds for which a block that was read is not removed"),
    "client_ttl": ("10", "seconds of silence after which a segment counts as gone"),
}
#: Accepted flags: Tidepool meets their purpose in another way, or tunes it by itself.
_ACCEPTED = (
    "port",
    "max_threads",
    "rpc_thread_num",
    "enable_gc",
    "enable_metric_reporting",
    "enable_http_metadata_server",
    "http_metadata_server_port",
    "http_metadata_server_host",
    "eviction_ratio",
    "eviction_high_watermark_ratio",
    "memory_allocator",
    "logtostderr",
    "v",
    "rpc_conn_timeout_seconds",
    "rpc_enable_tcp_no_delay",
    "cluster_id",
)
_COMMAND = flags.Command("mooncake_master", "a master for stores of mooncake.store", _FLAGS, _ACCEPTED)


def main() -> int:
    return program.run(_COMMAND, serve)


def serve(values: dict[str, str], stop: program.Stop) -> int:
    port = flags.number(values, "rpc_port", 0, 65535)
    admin_port = flags.number(values, "metrics_port", 0, 65535)
    dead_after = flags.number(values, "client_ttl", 1, 3600)
    lease_ms = flags.number(values, "default_kv_lease_ttl", 0, 3_600_000)
    with Catalog(
        resolve(values["rpc_address"], port),
        suspect_after=min(2.0, dead_after / 2),
        dead_after=float(dead_after),
        lease=lease_ms / 1000,
    ) as catalog:
        own = _own(catalog.address)

        def remove_all(force: bool) -> int:
            store = MooncakeDistributedStore()
            code = store.setup("localhost", "P2PHANDSHAKE", 0, 0, "tcp", "", own)
            try:
                return code or store.remove_all(force)
            finally:
                store.close()

        admin_host = values["metrics_host"] or catalog.address.rpartition(":")[0].strip("[]")
        with (
            Pool.connect([own], dir=directory(), wait=None, local=False) as pool,
            Admin(catalog, pool, remove_all, admin_host, admin_port) as admin,
        ):
            log.info("master serves at %s, admin pages at %s", catalog.address, admin.address)
            stop.wait()
    return 0


def _own(address: str) -> str:
    """The address by which a process of this host reaches a listener, also one on all interfaces."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host == "0.0.0.0" else f"[::1]:{port}" if host == "[::]" else address
