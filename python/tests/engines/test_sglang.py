"""SGLang's own backend class, unmodified, over the drop-in."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidepool

from ..waiting import eventually
from .conftest import Engine, Pool, started


@pytest.fixture(scope="module")
def sglang(tmp_path_factory: pytest.TempPathFactory, pool: Pool) -> Iterator[Engine]:
    with started("sglang", tmp_path_factory.mktemp("sglang")) as engine:
        yield engine


def settings(pool: Pool, **more: Any) -> dict[str, Any]:
    """What ``--hicache-storage-backend-extra-config`` has."""
    return {
        "master_server_address": pool.master.address,
        "metadata_server": "P2PHANDSHAKE",
        "global_segment_size": 16 << 20,
        "protocol": "tcp",
        "device_name": "",
        **more,
    }


def names(of: str, count: int = 5) -> list[str]:
    return [f"{of}-{n}" for n in range(count)]


@pytest.mark.parametrize(
    ("kind", "layout"),
    [("mha", "page_first"), ("mha", "page_first_direct"), ("mla", "page_first"), ("mla", "layer_first")],
)
@pytest.mark.parametrize("groups", [False, True])
def test_pages_that_one_process_saves_another_loads(
    sglang: Engine, pool: Pool, kind: str, layout: str, groups: bool
) -> None:
    keys = names(f"pages-{kind}-{layout}-{groups}")
    common = {"settings": settings(pool, enable_group_semantics=groups), "kind": kind, "layout": layout}
    with sglang(seed=1, **common) as one, sglang(seed=2, **common) as two:
        assert two.exists(keys=keys) == 0
        saved = one.set_pages(keys=keys)
        assert saved["results"] == [True] * 5
        assert len(set(saved["pages"])) == 5
        loaded = two.get_pages(keys=[*keys, "absent"])
        assert loaded["results"] == [True] * 5 + [False]
        assert loaded["pages"][:5] == saved["pages"]
        assert loaded["before"][:5] != saved["pages"]
        assert two.exists(keys=[*keys[:3], "absent", *keys[3:]]) == 3
        # A page that is there already is not written again, and keeps its bytes.
        assert two.set_pages(keys=keys)["results"] == [True] * 5
        assert one.get_pages(keys=keys)["pages"] == saved["pages"]
        assert two.stats() == [0, 6]


def test_pages_of_another_model_are_not_found(sglang: Engine, pool: Pool) -> None:
    keys = names("models")
    common = {"settings": settings(pool)}
    with sglang(seed=1, model="one", **common) as one, sglang(seed=2, model="other", **common) as other:
        assert one.set_pages(keys=keys)["results"] == [True] * 5
        assert other.exists(keys=keys) == 0
        assert other.get_pages(keys=keys)["results"] == [False] * 5


def test_a_side_pool_is_saved_and_loaded_beside_the_pages(sglang: Engine, pool: Pool) -> None:
    keys = names("draft")
    with sglang(seed=1, settings=settings(pool)) as one, sglang(seed=3, settings=settings(pool)) as two:
        assert one.set_pages(keys=keys)["results"] == [True] * 5
        saved = one.set_draft(keys=keys[:3])
        assert saved["results"] == [True] * 3
        assert two.exists_with_draft(keys=keys) == [3, 3]
        loaded = two.get_draft(keys=keys[:4])
        assert loaded["results"] == [True, True, True, False]
        assert loaded["pages"][:3] == saved["pages"]


def test_the_older_interface_moves_single_places(sglang: Engine, pool: Pool) -> None:
    keys = names("places", 7)
    with sglang(seed=1, settings=settings(pool)) as one, sglang(seed=2, settings=settings(pool)) as two:
        saved = one.set_places(keys=keys)
        assert saved["results"] == [True, True]
        loaded = two.get_places(keys=keys)
        assert (loaded["single"], loaded["count"], loaded["exists"]) == (True, 3, [True] * 7)
        assert loaded["pages"] == saved["pages"]
        missing = two.get_places(keys=names("absent", 7))
        assert (missing["single"], missing["count"], missing["exists"]) == (False, 0, [False] * 7)


def test_settings_come_from_a_file_or_the_environment(sglang: Engine, pool: Pool, tmp_path: Path) -> None:
    file = tmp_path / "mooncake.json"
    file.write_text(json.dumps(settings(pool, check_server=True, master_metrics_port=pool.master.admin_port)))
    by_file = {"SGLANG_HICACHE_MOONCAKE_CONFIG_PATH": str(file)}
    by_name = {
        "MOONCAKE_MASTER": pool.master.address,
        "MOONCAKE_MASTER_METRICS_PORT": str(pool.master.admin_port),
        "MOONCAKE_CHECK_SERVER": "1",
        "MOONCAKE_PROTOCOL": "tcp",
        "MOONCAKE_GLOBAL_SEGMENT_SIZE": str(16 << 20),
    }
    with (
        sglang(seed=1, settings=None, environment=by_file) as one,
        sglang(seed=2, settings=None, environment=by_name) as two,
    ):
        saved = one.set_pages(keys=names("settings"))
        loaded = two.get_pages(keys=names("settings"))
        assert loaded["results"] == [True] * 5
        assert loaded["pages"] == saved["pages"]


def test_pages_outlive_engines_that_use_a_standalone_client(sglang: Engine, pool: Pool) -> None:
    standalone = {"standalone_storage": True, "client_server_address": pool.client}
    with sglang(seed=1, settings=standalone) as one:
        saved = one.set_pages(keys=names("standalone"))
        assert saved["results"] == [True] * 5
    with sglang(seed=2, settings=standalone) as two:
        loaded = two.get_pages(keys=names("standalone"))
        assert loaded["results"] == [True] * 5
        assert loaded["pages"] == saved["pages"]


def test_a_cleared_pool_is_empty(sglang: Engine, pool: Pool) -> None:
    with sglang(seed=1, settings=settings(pool)) as one, sglang(seed=2, settings=settings(pool)) as two:
        one.set_pages(keys=names("cleared"))
        assert two.exists(keys=names("cleared")) == 5
        one.clear()
        assert two.exists(keys=names("cleared")) == 5, "what was found a moment ago is leased, and stays"
        with tidepool.Pool.connect([pool.master.address], dir=os.environ["TIDEPOOL_DIR"]) as native:

            def is_clear() -> bool:
                one.clear()
                # A list, unlike an engine's question, leases nothing.
                return not native.list_blocks()

            eventually("the leases end", is_clear, shows=native.list_blocks)
        assert two.exists(keys=names("cleared")) == 0
        assert two.get_pages(keys=names("cleared"))["results"] == [False] * 5


def test_embeddings_are_shared_whole_and_in_pieces(sglang: Engine, pool: Pool) -> None:
    arguments = {"settings": settings(pool), "hashes": names("embedding", 3)}
    with sglang(seed=1, settings=settings(pool)) as one, sglang(seed=2, settings=settings(pool)) as two:
        # The store is gone with the call: its blocks are kept by the others.
        assert two.embeddings(**arguments, put=False)["moved"] == [[False] * 3] * 2
        saved = one.embeddings(**arguments, put=True)
        assert saved["moved"] == [[True] * 3] * 2
        loaded = two.embeddings(**arguments, put=False)
        assert loaded["before"] == [True] * 6
        assert loaded["moved"] == [[True] * 3] * 2
        assert loaded["pages"] == loaded["split"] == saved["pages"]
