"""LMCache's own remote backend and look-up client, unmodified, over the drop-in."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import Engine, Pool, started

#: Three whole chunks of 16 tokens and one of 5.
TOKENS, LENGTHS = 53, [16, 16, 16, 5]


@pytest.fixture(scope="module")
def lmcache(tmp_path_factory: pytest.TempPathFactory, pool: Pool) -> Iterator[Engine]:
    with started("lmcache", tmp_path_factory.mktemp("lmcache")) as engine:
        yield engine


def settings(pool: Pool, **more: Any) -> dict[str, Any]:
    """What ``extra_config`` has in LMCache's own documentation."""
    return {
        "local_hostname": "localhost",
        "metadata_server": "P2PHANDSHAKE",
        "protocol": "tcp",
        "device_name": "",
        "global_segment_size": 16 << 20,
        "master_server_address": pool.master.address,
        "local_buffer_size": 0,
        "transfer_timeout": 30,
        **more,
    }


@pytest.mark.parametrize("single", [False, True], ids=["batched", "single"])
@pytest.mark.parametrize("chunk_meta", [False, True], ids=["zero-copy", "with-metadata"])
def test_chunks_that_one_process_stores_another_retrieves(
    lmcache: Engine, pool: Pool, chunk_meta: bool, single: bool
) -> None:
    common = {"url": f"mooncakestore://{pool.master.address}", "settings": settings(pool, save_chunk_meta=chunk_meta)}
    first = 1_000 + 200 * chunk_meta + 100 * single
    with lmcache(seed=1, **common) as one, lmcache(seed=2, **common) as two:
        assert two.get(first=first, count=TOKENS) == [None] * 4
        nothing = {"each": [False] * 4, "sync": [False] * 4, "prefix": 0, "batched": 0}
        assert two.contains(first=first, count=TOKENS) == nothing
        stored = one.put(first=first, count=TOKENS, single=single)
        assert len(set(stored)) == 4
        found = two.get(first=first, count=TOKENS)
        assert found == [[text, [2, 3, length, 64]] for text, length in zip(stored, LENGTHS, strict=True)]
        everything = {"each": [True] * 4, "sync": [True] * 4, "prefix": 4, "batched": 4}
        assert two.contains(first=first, count=TOKENS) == everything
        # The same prefix with another end: its last chunk is a miss.
        assert [bool(chunk) for chunk in two.get(first=first, count=TOKENS + 1)] == [True, True, True, False]
        assert two.contains(first=first, count=TOKENS + 1)["prefix"] == 3
        # Stored again under the same key, the first bytes stay.
        two.put(first=first, count=TOKENS, single=single)
        assert one.get(first=first, count=TOKENS) == found


def test_the_look_up_client_counts_the_tokens_that_are_stored(lmcache: Engine, pool: Pool) -> None:
    common = {"url": f"mooncakestore://{pool.master.address}", "settings": settings(pool)}
    with lmcache(seed=1, **common) as one, lmcache(seed=2, **common) as two:
        assert two.lookup(master=pool.master.address, first=5_000, count=TOKENS) == 0
        one.put(first=5_000, count=TOKENS)
        assert two.lookup(master=pool.master.address, first=5_000, count=TOKENS) == TOKENS
        assert two.lookup(master=pool.master.address, first=5_000, count=TOKENS + 11) == 48
        assert two.lookup(master=pool.master.address, first=5_001, count=TOKENS) == 0


def test_settings_come_from_a_file_and_chunks_outlive_their_writer(lmcache: Engine, pool: Pool, tmp_path: Path) -> None:
    file = tmp_path / "mooncake.json"
    file.write_text(json.dumps(settings(pool, global_segment_size=0)))
    common = {
        "url": f"mooncakestore://{pool.master.address}",
        "settings": {"save_chunk_meta": False},
        "environment": {"MOONCAKE_CONFIG_PATH": str(file)},
    }
    with lmcache(seed=1, **common) as one:
        stored = one.put(first=6_000, count=TOKENS)
    with lmcache(seed=2, **common) as two:
        assert [chunk[0] for chunk in two.get(first=6_000, count=TOKENS)] == stored


def test_settings_with_the_prefix_of_mooncake_and_a_preferred_segment(lmcache: Engine, pool: Pool) -> None:
    prefixed = {f"mooncake_{name}": value for name, value in settings(pool).items() if name != "transfer_timeout"}
    prefixed |= {"mooncake_prefer_local_alloc": True, "save_chunk_meta": False, "transfer_timeout": 30}
    common = {"url": "mooncakestore://", "settings": prefixed}
    with lmcache(seed=2, **common) as two:
        with lmcache(seed=1, **common) as one:
            stored = one.put(first=7_000, count=TOKENS)
            assert [chunk[0] for chunk in two.get(first=7_000, count=TOKENS)] == stored
            one.close()
        # They were in the writer's own segment, which is gone.
        assert two.get(first=7_000, count=TOKENS) == [None] * 4
