"""What the drop-in's programs have in common: flags in, a log out, and work until a signal."""

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from mooncake.flags import Command, FlagError
from mooncake.settings import log
from tidepool import TidepoolError


class Stop:
    """Set by SIGTERM and SIGINT."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._asked.set())

    def wait(self) -> None:
        # In slices: a signal that comes just before a wait does not end it.
        while not self._asked.wait(0.5):
            pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Server6(_Server):
    address_family = socket.AF_INET6


def http_server(what: str, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    """A server whose threads end with the process; an error says what could not be served where."""
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
