"""Segments that are emptied: what they hold moves, and nobody puts anything new there."""

import json
from collections.abc import Callable
from typing import Any

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

from ..waiting import eventually
from .conftest import Master

NewStore = Callable[..., MooncakeDistributedStore]
RUNNING = ("CREATED", "PLANNING", "RUNNING")


def on(store: MooncakeDistributedStore) -> ReplicateConfig:
    config = ReplicateConfig()
    config.preferred_segment = store.get_hostname()
    return config


def drain(master: Master, segment: str, *targets: str) -> dict[str, Any]:
    """Starts a job and waits for its end."""
    body = json.dumps({"segments": [segment], "target_segments": list(targets)}).encode()
    status, text = master.page("/api/v1/drain_jobs", body)
    assert status == 200, text
    job = json.loads(text)["job_id"]

    def asked() -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(master.page(f"/api/v1/drain_jobs/query?job_id={job}")[1])
        return answer

    def ended() -> dict[str, Any]:
        answer = asked()
        return {} if answer["status_name"] in RUNNING else answer

    return eventually("the job ends", ended, shows=asked)


def status_of(master: Master, segment: str) -> str:
    return str(json.loads(master.page(f"/api/v1/segments/status?segment={segment}")[1])["status_name"])


def test_a_drained_segment_has_given_its_blocks_away_and_gets_no_new_ones(master: Master, new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    blocks = {f"drained/{n}": bytes([n]) * 1000 for n in range(4)}
    assert all(one.put(key, block, on(one)) == 0 for key, block in blocks.items())
    answer = drain(master, one.get_hostname(), two.get_hostname())
    assert (answer["status"], answer["status_name"], answer["type_name"]) == (3, "SUCCEEDED", "DRAIN")
    counts = ("succeeded_units", "failed_units", "blocked_units", "active_units", "migrated_bytes")
    assert [answer[count] for count in counts] == [4, 0, 0, 0, 4000]
    assert answer["created_at_ms_epoch"] <= answer["last_updated_at_ms_epoch"]
    assert status_of(master, one.get_hostname()) == "DRAINED"
    segments = master.page("/get_all_segments")[1].split()
    assert one.get_hostname() not in segments
    assert two.get_hostname() in segments
    # Whoever puts, and wherever he would like it to be.
    for n, store in enumerate((one, two) * 5):
        assert store.put(f"late/{n}", b"late", on(one)) == 0
    assert one.upsert("late/0", b"newer", on(one)) == 0
    one.close()
    assert all(two.get(key) == block for key, block in blocks.items())
    assert all(two.get(f"late/{n}") for n in range(10))


def test_drain_jobs_that_cannot_be_are_refused(master: Master, new_store: NewStore) -> None:
    one, two = new_store(), new_store()
    drain(master, one.get_hostname())

    def code(segments: list[str], targets: list[str]) -> int:
        body = {"segments": segments, "target_segments": targets}
        return master.page("/api/v1/drain_jobs", json.dumps(body).encode())[0]

    assert code([], []) == 400
    assert code(["nobody"], []) == 404
    assert code([two.get_hostname()], ["nobody"]) in (400, 404)
    assert code([two.get_hostname()], [two.get_hostname()]) == 400
    assert code([one.get_hostname()], []) == 409
    assert master.page("/api/v1/drain_jobs/query?job_id=1-2")[0] == 404
    assert master.page("/api/v1/drain_jobs/cancel?job_id=1-2", b"")[0] == 404
    assert master.page("/api/v1/drain_jobs/query")[0] == 400


def test_a_finished_job_cannot_be_cancelled(master: Master, new_store: NewStore) -> None:
    one, _two = new_store(), new_store()
    job = drain(master, one.get_hostname())["job_id"]
    assert master.page(f"/api/v1/drain_jobs/cancel?job_id={job}", b"")[0] == 409
