"""Mooncake's settings as Tidepool's."""

import errno
import hashlib
import logging
import operator
import os
import random
import reprlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

log = logging.getLogger("mooncake")

#: Where clients of Mooncake advertise themselves.
_PORTS = range(12300, 14300)
_DEFAULT_SIZE = 16 << 20
#: A segment's name has at most 64 characters: it is also the name of files and of a socket.
_LONGEST_HOST = 64 - len(":65535")
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
#: Names that engines give settings in a dict, beside Mooncake's own.
_OTHER_NAMES = {"master_server_address": "master_server_addr", "device_name": "rdma_devices"}
_PROTOCOLS = (
    "",
    "tcp",
    "rdma",
    "ascend",
    "barex",
    "cxl",
    "efa",
    "hip",
    "maca",
    "nvlink",
    "nvlink_intra",
    "ub",
    "ubshmem",
)
#: The arguments of ``setup``, in order, and the number of required ones.
_SETUP = (
    "local_hostname",
    "metadata_server",
    "global_segment_size",
    "local_buffer_size",
    "protocol",
    "rdma_devices",
    "master_server_addr",
    "engine",
    "enable_ssd_offload",
    "ssd_offload_path",
    "tenant_id",
    "enable_client_http_server",
    "client_http_port",
)
_NEEDED = 7
_warned: set[str] = set()
_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 100


class SettingError(ValueError):
    """An invalid setting; the message names it and what is allowed."""


class ProtocolError(ValueError):
    """A protocol that Mooncake does not have, either."""


@dataclass
class Settings:
    """The settings of a store."""

    host: str
    port: int | None
    masters: list[str]
    segment_bytes: int

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> "Settings":
        host, port = _host_and_port(str(arguments["local_hostname"] or "localhost"))
        warn_of_protocol(str(arguments.get("protocol") or "tcp"))
        for field in ("enable_ssd_offload", "enable_client_http_server"):
            if _is_set(arguments.get(field)):
                warn_once(f"{field} is set, which Tidepool does not offer: going on without it")
        tenant = str(arguments.get("tenant_id") or "default")
        if tenant != "default":
            raise SettingError(f"tenant_id is {tenant!r}: allowed is 'default' until Tidepool has tenants")
        # This store needs no local buffer, but refuses invalid sizes all the same.
        size("local_buffer_size", arguments.get("local_buffer_size", _DEFAULT_SIZE))
        return cls(
            host=host,
            port=port,
            masters=_masters(str(arguments.get("master_server_addr") or "127.0.0.1:50051")),
            segment_bytes=size("global_segment_size", arguments.get("global_segment_size", _DEFAULT_SIZE)),
        )

    def at_a_free_port(self, start: Callable[[str, str, str | None], None]) -> str:
        """Calls ``start`` with a name and its addresses, at another port while one is taken. Returns the name."""
        for port in [self.port] if self.port else random.sample(_PORTS, 20):
            name = _segment_name(self.host, port)
            try:
                start(name, *self._addresses(port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                taken = error
            else:
                return name
        raise taken

    def _addresses(self, port: int) -> tuple[str, str | None]:
        """The address of a segment at ``port``, and the advertised one if it differs."""
        if self.is_loopback():
            return resolve(self.host, port), None
        return ("[::]" if ":" in self.host else "0.0.0.0") + f":{port}", _joined(self.host, port)

    def is_loopback(self) -> bool:
        return self.host in ("localhost", "127.0.0.1", "::1")


def with_known_names(settings: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Settings under the names of the arguments of ``setup``. A warning names unknown settings."""
    named = {_OTHER_NAMES[name]: value for name, value in settings.items() if name in _OTHER_NAMES}
    for name, value in settings.items():
        if name in known:
            named[name] = value
        elif name not in _OTHER_NAMES:
            warn_once(f"setup(): {name!r} is not a setting that tidepool-mooncake knows: going on without it")
    return named


def directory() -> str:
    """The directory of the memory and sockets of this host's segments."""
    return os.environ.get("TIDEPOOL_DIR", "/dev/shm/tidepool")


def uses_shared_memory() -> bool:
    """Whether segments on this host are read through shared memory; TCP is for comparing."""
    return os.environ.get("TIDEPOOL_SHARED_MEMORY", "1") != "0"


def smallest_block() -> int:
    """A segment's size divided by this is how many blocks it can hold: 80 bytes of memory each, taken at the start."""
    return size("TIDEPOOL_SMALLEST_BLOCK", os.environ.get("TIDEPOOL_SMALLEST_BLOCK", "4K"))


def size(field: str, value: Any) -> int:
    """Bytes, given as a number or with a suffix like ``32MB``."""
    text = str(value).strip().upper()
    number = text.rstrip("IBKMGT ")
    unit = text[len(number) :].strip().removesuffix("B").removesuffix("I")
    try:
        bytes_ = int(float(number) * _UNITS[unit]) if "." in number else int(number) * _UNITS[unit]
    except (KeyError, ValueError, OverflowError):
        bytes_ = -1
    if not 0 <= bytes_ < 1 << 64:
        raise SettingError(f"{field} is {value!r}: allowed are bytes from 0 to 2^64 - 1, as a number or like 32MB")
    return bytes_


def check_number(field: str, value: Any) -> int:
    """The number, if it is a non-negative whole number; raises ``TypeError`` otherwise."""
    number = operator.index(value) if hasattr(type(value), "__index__") else -1
    if not 0 <= number < 1 << 64:
        raise TypeError(f"{field} is {shown(value)}: allowed are whole numbers from 0 on")
    return number


def shown(value: Any) -> str:
    """A value as an error shows it: its beginning. Python makes no text of numbers with thousands of digits."""
    try:
        return _SHORT.repr(value)
    except ValueError:
        return f"a much too long {type(value).__name__}"


def warn_of_protocol(protocol: str) -> None:
    if protocol not in _PROTOCOLS:
        raise ProtocolError(f"protocol is {protocol!r}: allowed is 'tcp', and Mooncake's others are taken for it")
    if protocol not in ("tcp", ""):
        warn_once(f"protocol {protocol!r} is not available in Tidepool yet: blocks move through shared memory and TCP")


def warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        log.warning(message)


def _is_set(value: Any) -> bool:
    return str(value).lower() in ("true", "1") if value is not None else False


def _masters(address: str) -> list[str]:
    masters = [part.strip() for part in address.split(",") if part.strip()]
    if not masters or any("://" in master or ":" not in master for master in masters):
        raise SettingError(
            f"master_server_addr is {address!r}: allowed are masters as host:port, with commas between several"
        )
    return masters


def _host_and_port(name: str) -> tuple[str, int | None]:
    host, behind = name, ""
    if name.startswith("["):
        host, _, behind = name[1:].partition("]")
    elif name.count(":") == 1:
        host, _, behind = name.partition(":")
        behind = f":{behind}"
    digits = behind[1:]
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 5
    is_port = behind.startswith(":") and is_number and int(digits) < 1 << 16
    if not host or (behind and not is_port):
        raise SettingError(
            f"local_hostname is {shown(name)}: allowed is a host, or host:port with a port from 0 to 65535"
        )
    return host, int(digits) if behind else None


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _segment_name(host: str, port: int) -> str:
    """Host and port. A host that is too long for a name is cut, with a digest of all of it in place of its end."""
    if len(host) > _LONGEST_HOST:
        host = f"{host[: _LONGEST_HOST - 9]}-{hashlib.sha256(host.encode()).hexdigest()[:8]}"
    # Names start with a letter or digit; a leading zero does not change an IPv6 address that starts with colons.
    return f"0{host}:{port}" if host.startswith(":") else f"{host}:{port}"


def resolve(host: str, port: int) -> str:
    """An address that a socket can listen on. Of a name with several addresses, IPv4 is preferred to IPv6."""
    try:
        found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except OSError as error:
        raise OSError(error.errno, f"there is no address for {host!r}: {error.strerror}") from error
    return _joined(min(found, key=lambda address: ":" in address), port)


def setup_arguments(arguments: Sequence[Any], settings: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``setup`` by name, whether given in one dict or one by one."""
    if not arguments and isinstance(settings.get("config"), dict):
        arguments, settings = [settings["config"]], {name: settings[name] for name in settings if name != "config"}
    if len(arguments) == 1 and isinstance(arguments[0], dict):
        named = with_known_names(arguments[0] | settings, (*_SETUP, "ipc_socket_path"))
        if not named.get("master_server_addr"):
            raise SettingError("master_server_addr is missing: allowed are masters as host:port")
        return {"local_hostname": "localhost", **named}
    unknown = set(settings) - set(_SETUP)
    given = dict(zip(_SETUP, arguments, strict=False)) | settings
    missing = [name for name in _SETUP[:_NEEDED] if name not in given]
    if len(arguments) > len(_SETUP) or unknown or missing:
        # A caller that tries newer arguments first expects exactly this refusal.
        what = f"missing {missing}" if missing else f"unknown {sorted(unknown)}" if unknown else "too many"
        raise TypeError(f"setup(): incompatible function arguments: {what}")
    for name in ("local_hostname", "metadata_server", "protocol", "rdma_devices", "master_server_addr"):
        if not isinstance(given[name], str):
            raise TypeError(f"setup(): incompatible function arguments: {name} is a str, not {given[name]!r}")
    for name in ("global_segment_size", "local_buffer_size"):
        if not isinstance(given[name], str):
            check_number(name, given[name])
    return given
