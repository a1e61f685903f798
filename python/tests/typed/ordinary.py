"""Ordinary typed code: a strict type checker takes it, and it runs."""

import collections
import types
from collections.abc import Mapping

import tidepool


async def use_async(pool: tidepool.AsyncPool) -> None:
    texts: dict[str, bytes] = {"text": b"3"}
    await pool.put_many(texts)
    await pool.put_many({"literal": b"4", "pieces": [b"5", b"6"]})
    await pool.put_many([(b"raw", b"7")])


def use(pool: tidepool.Pool) -> list[bytes | None]:
    parts: list[bytes] = [b"1", b"2"]
    pool.put("parts", parts)
    pool.put("tuple", tuple(parts))
    pool.put("deque", collections.deque(parts))
    texts: dict[str, bytes] = {"text": b"3"}
    pool.put_many(texts)
    pool.put_many({"literal": b"4", "pieces": [b"5", b"6"]})
    raw: dict[bytes, bytearray] = {b"raw": bytearray(b"7")}
    pool.put_many(raw)
    either: Mapping[str | bytes, list[bytes]] = types.MappingProxyType({"either": parts})
    pool.put_many(either)
    pairs: list[tuple[str, memoryview]] = [("pair", memoryview(b"8"))]
    pool.put_many(pairs)
    buffers: list[bytearray] = [bytearray(1), bytearray(1)]
    pool.get_into("parts", buffers)
    pool.get_many_into(["text", "pair"], buffers)
    keys: list[str] = ["parts", "tuple", "deque", "text", "literal", "pieces", "raw", "either", "pair"]
    chains: list[list[str]] = [keys]
    assert pool.match_prefix(chains).runs == [len(keys)]
    return pool.get_many(keys)
