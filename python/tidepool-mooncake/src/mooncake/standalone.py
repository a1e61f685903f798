"""``mooncake_client``: a segment of its own process, which outlives the engines that use it."""

import json
import threading
from http.server import ThreadingHTTPServer

from mooncake import flags, program
from mooncake.settings import log
from mooncake.store import MooncakeDistributedStore

_FLAGS = {
    "host": ("localhost", "the name or address under which other hosts reach the segment"),
    "global_segment_size": ("4GB", "bytes of the segment, as a number or like 32MB"),
    "master_server_address": ("127.0.0.1:50051", "the master, or several with commas between them"),
    "metadata_server": ("P2PHANDSHAKE", "not needed"),
    "protocol": ("tcp", "how blocks move between hosts"),
    "device_names": ("", "not needed"),
    "port": ("50052", "where engines on this host ask for the masters"),
    "threads": ("1", "not needed"),
}
_COMMAND = flags.Command("mooncake_client", "a segment that outlives the engines that use it", _FLAGS)


def main() -> int:
    return program.run(_COMMAND, mount)


def mount(values: dict[str, str], stop: program.Stop) -> int:
    store = MooncakeDistributedStore()
    code = store.setup(
        values["host"],
        values["metadata_server"],
        values["global_segment_size"],
        0,
        values["protocol"],
        values["device_names"],
        values["master_server_address"],
    )
    if code:
        return 1
    masters = json.dumps(values["master_server_address"].split(",")).encode()
    with _serve(masters, flags.number(values, "port", 0, 65535)) as server:
        mounted = [name for name, _ in store._segments() if name == store.get_hostname()]
        log.info("segment %s is mounted; engines ask port %d", mounted[0] if mounted else "(none)", server.server_port)
        stop.wait()
        server.shutdown()
    store.close()
    return 0


def _serve(masters: bytes, port: int) -> ThreadingHTTPServer:
    """Tells engines where the masters are: ``GET /masters``."""

    class Handler(program.Handler):
        def do_GET(self) -> None:
            found = self.path == "/masters"
            self.answer(200 if found else 404, "application/json", masters if found else b"")

    server = program.http_server("engines (--port)", "127.0.0.1", port, Handler)
    threading.Thread(target=server.serve_forever, name="masters", daemon=True).start()
    return server
