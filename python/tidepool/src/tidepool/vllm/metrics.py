"""The connector's numbers in vLLM's own log and metrics."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorPromMetrics, KVConnectorStats

#: Every number, with what vLLM's /metrics says about it. All count up.
NUMBERS = {
    "blocks_loaded": "KV blocks loaded from the pool.",
    "bytes_loaded": "Bytes loaded from the pool.",
    "blocks_not_loaded": "KV blocks that could not be loaded, and were computed instead.",
    "load_micros": "Time that threads spent in loads, in microseconds.",
    "blocks_saved": "KV blocks stored in the pool.",
    "bytes_saved": "Bytes stored in the pool.",
    "blocks_held": "KV blocks offered that the pool held already.",
    "blocks_not_saved": "KV blocks that could not be stored.",
    "save_micros": "Time that threads spent in saves, in microseconds.",
    "checksum_micros": "Of the time spent in saves from a GPU, what checksums took, in microseconds.",
    "blocks_replicated": "KV blocks of other hosts that a node of this host has copied after they were loaded.",
    "saves_delayed": "How often a save was put off, or left out, because too many blocks were being saved.",
    "lookups": "Look-ups of prefixes in the pool.",
    "lookup_blocks_asked": "Blocks that look-ups asked about.",
    "lookup_blocks_found": "Of these, blocks of prefixes that could be loaded.",
    "lookups_remembered": "Look-ups answered from memory.",
    "lookups_refused": "Look-ups refused because too many were waiting.",
    "lookup_micros": "Time that threads spent in look-ups, in microseconds.",
    "fingerprint_mismatches": "Starts with blocks that another engine of the same model name cannot use.",
    "notes_refused": "Sessions and hints that could not be stored.",
}


class TidepoolStats(KVConnectorStats):
    """The counts since the last report."""

    def reset(self) -> None:
        self.data: dict[str, int] = {}

    def is_empty(self) -> bool:
        return not any(self.data.values())

    def aggregate(self, other: KVConnectorStats) -> "TidepoolStats":
        for name, number in other.data.items():
            self.data[name] = self.data.get(name, 0) + number
        return self

    def reduce(self) -> dict[str, int | float]:
        return {name: number for name, number in sorted(self.data.items()) if number}


class Since:
    """Turns numbers that count from the start into numbers since the last report."""

    def __init__(self) -> None:
        self._before: dict[str, int] = {}

    def take(self, numbers: dict[str, int]) -> TidepoolStats | None:
        """The counts since the last call, or None if there are none."""
        grown = {name: number - self._before.get(name, 0) for name, number in numbers.items()}
        self._before = dict(numbers)
        stats = TidepoolStats({name: number for name, number in grown.items() if number})
        return None if stats.is_empty() else stats


class TidepoolPromMetrics(KVConnectorPromMetrics):
    """A counter for each number, ``vllm:tidepool_NAME_total``."""

    def __init__(self, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._counters = {
            name: self._counter_cls(name=f"vllm:tidepool_{name}", documentation=text, labelnames=labelnames)
            for name, text in NUMBERS.items()
        }

    def observe(self, transfer_stats_data: dict[str, Any] | None, engine_idx: int = 0) -> None:
        for name, number in (transfer_stats_data or {}).items():
            if number and name in self._counters:
                self._counters[name].labels(*self.per_engine_labelvalues[engine_idx]).inc(number)
