"""The admin pages of a master, with Mooncake's paths and shapes."""

import json
import threading
from collections.abc import Callable
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from mooncake import program
from mooncake.drain import DrainJobs
from tidepool import Catalog, Copy, InvalidError, NodeInfo, Pool, TidepoolError

_NOT_FOUND = {"success": False, "error_code": -704, "error_message": "OBJECT_NOT_FOUND"}
_NO_EVENTS = {
    "enabled": False,
    "published_batches": 0,
    "published_events": 0,
    "dropped_events": 0,
    "skipped_unparsed_keys": 0,
}
_TEXT = "text/plain; version=0.0.4"
#: The largest request body that is read.
_MAX_BODY = 1 << 20

Query = dict[str, str]
Answer = tuple[int, str | dict[str, Any]]


class Admin:
    """Serves the pages until it is closed."""

    def __init__(self, catalog: Catalog, pool: Pool, remove_all: Callable[[bool], int], host: str, port: int) -> None:
        """``remove_all`` removes unleased blocks, or with True all, and returns their number or a code."""
        self._catalog, self._pool, self._remover = catalog, pool, remove_all
        self._jobs = DrainJobs(pool)
        pages: dict[tuple[str, str], Callable[[Query, Any], Answer]] = {
            ("GET", "/health"): self._health,
            ("GET", "/role"): lambda *_: (200, "leader"),
            ("GET", "/ha_status"): lambda *_: (200, "serving"),
            ("GET", "/leader"): lambda *_: (200, {"present": False, "leader_address": None, "view_version": None}),
            ("GET", "/kv_events/status"): lambda *_: (200, _NO_EVENTS),
            ("GET", "/metrics"): lambda *_: (200, self._metrics()),
            ("GET", "/metrics/summary"): lambda *_: (200, self._summary()),
            ("GET", "/get_all_segments"): lambda *_: (200, "".join(f"{name}\n" for name in self._names())),
            ("GET", "/get_segments_detail"): self._segments_detail,
            ("GET", "/get_all_keys"): lambda *_: (200, "".join(f"{_text(key)}\n" for key, _, _ in pool.list_blocks())),
            ("GET", "/query_key"): self._query_key,
            ("GET", "/batch_query_keys"): self._batch_query_keys,
            ("GET", "/query_segment"): self._query_segment,
            ("GET", "/api/v1/segments/status"): self._segment_status,
            ("POST", "/api/v1/remove_all"): self._remove_all,
            ("POST", "/api/v1/drain_jobs"): self._drain,
            ("GET", "/api/v1/drain_jobs/query"): lambda query, _: self._jobs.query(query.get("job_id", "")),
            ("POST", "/api/v1/drain_jobs/cancel"): self._cancel,
        }
        handler = type("Handler", (_Handler,), {"pages": pages})
        self._server = program.http_server("admin pages (--metrics_port)", host, port, handler)
        self.address = f"{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="admin", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._jobs.close()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _segments(self) -> list[NodeInfo]:
        return [node for node in self._pool.nodes() if node.state in ("alive", "suspect")]

    def _names(self) -> list[str]:
        """The segments that take new blocks."""
        return [node.name for node in self._segments() if self._jobs.status_of(node.name)[1] == "OK"]

    def _health(self, query: Query, body: Any) -> Answer:
        ready = bool(self._segments())
        return 200, {
            "status": "ok",
            "role": "leader",
            "ha_state": "serving",
            "service_ready": ready,
            "leader_address": None,
            "view_version": None,
        }

    def _metrics(self) -> str:
        segments = self._segments()
        numbers: list[tuple[str, str, int]] = [
            ("master_allocated_bytes", "", sum(node.used for node in segments)),
            ("master_total_capacity_bytes", "", sum(node.capacity for node in segments)),
            ("master_active_clients", "", len(segments)),
        ]
        labelled = [(f'{{segment="{node.name}"}}', node) for node in segments]
        # All lines of a metric stand together, as the format wants it.
        numbers += [("segment_allocated_bytes", label, node.used) for label, node in labelled]
        numbers += [("segment_total_capacity_bytes", label, node.capacity) for label, node in labelled]
        numbers += [(*_split(name), value) for name, value in sorted(self._catalog.metrics().items())]
        lines, named = [], set()
        for name, label, value in numbers:
            if name not in named:
                named.add(name)
                lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
            lines.append(f"{name}{label} {value}")
        return "\n".join(lines) + "\n"

    def _summary(self) -> str:
        segments = self._segments()
        used, capacity = sum(node.used for node in segments), sum(node.capacity for node in segments)
        return (
            f"role=leader, state=serving, master={{Mem Storage: {used} B / {capacity} B | Clients: {len(segments)}}}\n"
        )

    def _segments_detail(self, query: Query, body: Any) -> Answer:
        segments = [self._detail(node) for node in self._segments()]
        return 200, {"total_segments": len(segments), "segments": segments}

    def _detail(self, node: NodeInfo) -> dict[str, Any]:
        return {
            "segment_name": node.name,
            "segment_id": node.name,
            "client_id": node.name,
            "base_address": "0x0",
            "size_bytes": node.capacity,
            "size_human": f"{node.capacity / (1 << 30):g} GiB",
            "te_endpoint": node.address or "",
            "protocol": "tcp",
            "status": self._jobs.status_of(node.name)[1],
            "allocator_used_bytes": node.used,
            "allocator_capacity_bytes": node.capacity,
            "allocator_usage_percent": 100 * node.used / max(node.capacity, 1),
        }

    def _replicas(self, key: str) -> list[dict[str, Any]]:
        addresses = {node.name: node.address for node in self._pool.nodes()}
        return [
            {
                "size_": copy.size,
                "buffer_address_": 0,
                "protocol_": "tcp",
                "transport_endpoint_": addresses.get(copy.node) or "",
            }
            for copy in self._copies(key)
        ]

    def _copies(self, key: str) -> list[Copy]:
        try:
            return self._pool.describe(key) if key else []
        except InvalidError:
            # An invalid key is not there.
            return []

    def _query_key(self, query: Query, body: Any) -> Answer:
        replicas = self._replicas(query.get("key", ""))
        return (200, {"success": True, "data": replicas}) if replicas else (404, _NOT_FOUND)

    def _batch_query_keys(self, query: Query, body: Any) -> Answer:
        data = {}
        keys = list(filter(None, query.get("keys", "").split(",")))
        if not keys:
            return 400, _refused("Missing keys query parameter")
        for key in keys:
            replicas = self._replicas(key)
            data[key] = {
                "ok": bool(replicas),
                "error": None if replicas else "OBJECT_NOT_FOUND",
                "values": replicas or None,
                "disk_values": None,
                "local_disk_values": None,
                "nof_values": None,
            }
        return 200, {"success": True, "data": data}

    def _query_segment(self, query: Query, body: Any) -> Answer:
        for node in self._segments():
            if node.name == query.get("segment"):
                return 200, f"{node.name}\nUsed(bytes): {node.used}\nCapacity(bytes) : {node.capacity}\n"
        return 500, "Failed to query segment"

    def _segment_status(self, query: Query, body: Any) -> Answer:
        name = query.get("segment", "")
        if not name:
            return 400, _refused("Missing segment query parameter")
        if all(node.name != name for node in self._segments()):
            return 404, {"success": False, "error_code": -101, "error_message": "SEGMENT_NOT_FOUND"}
        status, word = self._jobs.status_of(name)
        answer = {"success": True, "segment": name, "status": status, "status_name": word}
        return 200, {**answer, "error_code": 0, "error_message": ""}

    def _remove_all(self, query: Query, body: Any) -> Answer:
        removed = self._remover(query.get("force", "").lower() in ("true", "1"))
        if removed < 0:
            return 503, {"success": False, "error_code": removed, "error_message": "not every segment could be asked"}
        return 200, {"success": True, "removed_count": removed}

    def _drain(self, query: Query, body: Any) -> Answer:
        return self._jobs.start(body if isinstance(body, dict) else {})

    def _cancel(self, query: Query, body: Any) -> Answer:
        job = query.get("job_id") or (body.get("job_id", "") if isinstance(body, dict) else "")
        return self._jobs.cancel(str(job))


class _Handler(program.Handler):
    pages: dict[tuple[str, str], Callable[[Query, Any], Answer]]

    def do_GET(self) -> None:
        self._serve("GET", None)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if not (length.isascii() and length.isdigit()) or int(length) > _MAX_BODY:
            return self._send(413, f"a body has at most {_MAX_BODY} bytes")
        text = self.rfile.read(int(length))
        try:
            body = json.loads(text) if text.strip() else None
        except (ValueError, RecursionError) as error:
            return self._send(400, _refused(f"the body is not JSON: {error}"))
        return self._serve("POST", body)

    def _serve(self, method: str, body: Any) -> None:
        try:
            parts = urlsplit(self.path)
        except ValueError as error:
            return self._send(400, _refused(f"the path cannot be read: {error}"))
        page = self.pages.get((method, parts.path))
        if page is None:
            return self._send(404, "404 Not Found")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        try:
            return self._send(*page(query, body))
        except TidepoolError as error:
            return self._send(503, {"success": False, "error_code": -900, "error_message": str(error)})

    def _send(self, status: int, answer: str | dict[str, Any]) -> None:
        text = answer if isinstance(answer, str) else json.dumps(answer)
        kind = _TEXT if isinstance(answer, str) else "application/json; charset=utf-8"
        self.answer(status, kind, text.encode())


def _refused(why: str) -> dict[str, Any]:
    return {"success": False, "error_code": -600, "error_message": why}


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode(errors="backslashreplace")


def _split(name: str) -> tuple[str, str]:
    bare, brace, labels = name.partition("{")
    return bare, brace + labels
