"""The shared part of the drop-in's programs: flags in, a log out, and work until a signal."""

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mooncake.flags import Command, FlagError
from mooncake.settings import log
from tidepool import TidepoolError

#: Connections that are served at a time.
MOST_THREADS = 128
#: The longest time in which a wait does not notice its end.
_SLICE = 0.5


class Stop:
    """Set by SIGTERM and SIGINT."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._asked.set())

    def wait(self) -> None:
        # In slices: a signal that comes just before a wait does not end it.
        while not self._asked.wait(_SLICE):
            pass


class Handler(BaseHTTPRequestHandler):
    """Answers one request a connection: a connection kept open would keep a thread."""

    timeout = 10
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, kind: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not logged: probes would fill the log."""


class _Server(ThreadingHTTPServer):
    """A thread for each connection. While all threads have one, further connections wait in the listener's queue."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], handler: type[Handler]) -> None:
        self._free = threading.BoundedSemaphore(MOST_THREADS)
        super().__init__(address, handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        # In slices: the server may be told to stop meanwhile. An OSError has it look again.
        if not self._free.acquire(timeout=_SLICE):
            raise TimeoutError
        try:
            return super().get_request()
        except OSError:
            self._free.release()
            raise

    def shutdown_request(self, request: Any) -> None:
        """Ends a connection, in any case."""
        super().shutdown_request(request)
        self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Server6(_Server):
    address_family = socket.AF_INET6


def http_server(what: str, host: str, port: int, handler: type[Handler]) -> ThreadingHTTPServer:
    """A server whose threads end with the process. An error names ``what`` and the address."""
    kind = _Server6 if ":" in host else _Server
    try:
        return kind((host, port), handler)
    except OSError as error:
        raise OSError(error.errno, f"{what} cannot be served at {host}, port {port}: {error.strerror}") from error


def run(command: Command, work: Callable[[dict[str, str], Stop], int]) -> int:
    """Does ``work`` with the values of the command's flags; the answer is an exit status."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    arguments = sys.argv[1:]
    answer = command.answer(arguments)
    if answer is not None:
        print(answer)
        return 0
    try:
        values, unknown = command.parse(arguments)
        for name in unknown:
            log.warning("flag --%s is not known to tidepool-mooncake: going on without it", name)
        return work(values, Stop())
    except (FlagError, TidepoolError, OSError) as error:
        log.error("%s", error)
        return 1
