"""``TidepoolConnector`` in real vLLM: what one engine has computed, another one loads, and the output stays what it
was.

Engines take long to start, so the tests here share them: A, B (another process, the same weights under another path,
over TCP) and X (other weights in a folder of the same name, two pools).
"""

import json
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import tidepool

from ..waiting import eventually
from .conftest import Vllm, same_output
from .engines import LIMIT, Engine, TidePool, running

BLOCK = 128
#: Whole blocks, and more and less than that.
PROMPTS = [(1, 300), (2, 1024), (3, 4000), (4, 8192)]
AT_ONCE = [(seed, 700 + 130 * seed) for seed in range(10, 20)]
LOST = (30, 8192)
WITHOUT_A_POOL = (31, 1000)
AFTERWARDS = (32, 2000)
IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


@pytest.fixture(scope="module")
def tide() -> Iterator[TidePool]:
    tide = TidePool()
    tide.add_node()
    yield tide
    tide.close()


@pytest.fixture(scope="module")
def alone(vllm: Vllm) -> dict[Any, Any]:
    """What vLLM generates without a connector, by prompt."""
    prompts = [*PROMPTS, *AT_ONCE, LOST, WITHOUT_A_POOL, AFTERWARDS]
    [engine] = engines = list(running_until_done(vllm.engine(None), prompts))
    assert len(engines) == 1
    return engine


def running_until_done(engine: Engine, prompts: list[Any]) -> Iterator[dict[Any, Any]]:
    for ready in running(engine):
        yield {prompt: ready.ask(prompt)[0] for prompt in prompts}


@pytest.fixture(scope="module")
def a(vllm: Vllm, tide: TidePool, alone: Any) -> Iterator[Engine]:
    yield from running(vllm.engine(tide.connector()))


@pytest.fixture(scope="module")
def b(vllm: Vllm, tide: TidePool, alone: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "another-name"
    shutil.copytree(vllm.model, elsewhere)
    connector = tide.connector(local=False, load_deadline=3)
    yield from running(vllm.engine(connector, elsewhere, **IN_PROCESS))


def test_b_restores_what_a_computed_in_another_process_and_under_another_path(
    a: Engine, b: Engine, alone: dict[Any, Any]
) -> None:
    for prompt in PROMPTS:
        [computed] = a.ask(prompt)
        assert same_output(alone[prompt], computed)
        assert computed["cached"] == 0
    a.tell("forget")
    for prompt in PROMPTS:
        [restored] = b.ask(prompt)
        assert same_output(alone[prompt], restored)
        assert restored["cached"] == prompt[1] // BLOCK * BLOCK
    blocks = sum(length // BLOCK for _, length in PROMPTS)
    assert b.number("external_prefix_cache_hits") == blocks * BLOCK
    assert b.number("external_prefix_cache_queries") == sum(length for _, length in PROMPTS)
    assert b.number("tidepool_blocks_loaded") == blocks
    assert b.number("tidepool_blocks_not_loaded") == 0
    assert a.number("tidepool_blocks_saved") == blocks
    assert a.number("tidepool_fingerprint_mismatches") == b.number("tidepool_fingerprint_mismatches") == 0


def test_a_restores_its_own_blocks_through_shared_memory(a: Engine, alone: dict[Any, Any]) -> None:
    a.tell("forget")
    for prompt in PROMPTS:
        [restored] = a.ask(prompt)
        assert same_output(alone[prompt], restored)
        assert restored["cached"] == prompt[1] // BLOCK * BLOCK


def test_zeroed_loads_change_the_output(b: Engine, alone: dict[Any, Any]) -> None:
    b.tell("forget")
    b.tell("zero_loads", on=True)
    for prompt in PROMPTS:
        [zeroed] = b.ask(prompt)
        assert zeroed["cached"] == prompt[1] // BLOCK * BLOCK
        assert not same_output(alone[prompt], zeroed), "the comparison would not notice wrong blocks"
    b.tell("zero_loads", on=False)
    b.tell("forget")


def test_blocks_of_generated_tokens_are_saved_too(a: Engine, b: Engine) -> None:
    [generated] = a.ask((5, 200), tokens=300)
    a.tell("forget")
    # The last token was sampled, but its keys and values were never computed.
    [again] = b.ask([*a.tell("prompt", seed=5, length=200), *generated["tokens"]])
    assert again["cached"] == 499 // BLOCK * BLOCK


def test_a_and_b_at_the_same_time_under_concurrent_requests(a: Engine, b: Engine, alone: dict[Any, Any]) -> None:
    pairs = ((a, AT_ONCE), (b, AT_ONCE[::-1]))
    asked = [(prompts, engine.order("ask", prompts=prompts, tokens=8)) for engine, prompts in pairs]
    for prompts, answers in asked:
        for prompt, answer in zip(prompts, answers.result(LIMIT), strict=True):
            assert same_output(alone[prompt], answer)
    a.tell("forget")
    b.tell("forget")
    for engine in (a, b):
        for prompt, answer in zip(AT_ONCE, engine.ask(*AT_ONCE), strict=True):
            assert same_output(alone[prompt], answer)
            assert answer["cached"] == prompt[1] // BLOCK * BLOCK


def test_what_a_request_says_of_its_session_is_kept_in_the_pool(a: Engine, tide: TidePool) -> None:
    a.ask((6, 300), params={"tidepool": {"session": "agent-7", "parent": "agent-1", "hints": {"pause": 3}}})
    a.tell("forget")
    with tidepool.Pool.connect([tide.address], dir=tide.dir) as pool:
        [(key, _, _)] = pool.list_blocks("/session/agent-7/")
        record = json.loads(pool.get(key) or b"")
    assert record["session"] == "agent-7"
    assert record["parent"] == "agent-1"
    assert record["hints"] == {"pause": 3}
    assert record["blocks"] == 2


def test_other_weights_in_a_folder_of_the_same_name_share_nothing_and_say_why(
    a: Engine, vllm: Vllm, tide: TidePool, tmp_path: Path
) -> None:
    """It has two pools, in a MultiConnector: both are saved to, and the second loads what the first lacks."""
    other = vllm.make_model(tmp_path / "model", seed=1)
    assert other.name == vllm.model.name
    second = TidePool()
    second.add_node()
    children = {"connectors": [tide.connector(), second.connector()]}
    multi = {
        "kv_connector": "MultiConnector",
        "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute",
        "kv_connector_extra_config": children,
    }
    try:
        for x in running(vllm.engine(multi, other)):
            prompt = (40, 2048)
            a.ask(prompt)
            a.tell("forget")
            [computed] = x.ask(prompt)
            assert computed["cached"] == 0, "blocks of other weights were taken"
            assert x.number("tidepool_fingerprint_mismatches") >= 1
            assert "because they differ: weights: here" in x.log()

            x.tell("forget")
            [restored] = x.ask(prompt)
            assert restored["cached"] == prompt[1]
            assert same_output(computed, restored)

            with tidepool.Pool.connect([tide.address], dir=tide.dir) as pool:
                # The engine remembers for a second what the first held, and asks it in vain.
                load = partial(restores_without, pool, x, prompt, computed)
                eventually("the second pool loads what the first lacks", load)
    finally:
        second.close()


def restores_without(pool: tidepool.Pool, engine: Engine, prompt: tuple[int, int], computed: Any) -> bool:
    """Whether an engine restores all of a prompt, at the first try, when one of its pools is empty."""
    engine.tell("forget")
    pool.remove_all()
    before = engine.number("tidepool_blocks_not_loaded")
    [answer] = engine.ask(prompt)
    assert same_output(computed, answer)
    return bool(answer["cached"] == prompt[1] and engine.number("tidepool_blocks_not_loaded") == before)


def test_a_node_killed_in_the_middle_of_a_load_costs_time_only(
    a: Engine, b: Engine, tide: TidePool, alone: dict[Any, Any]
) -> None:
    assert same_output(alone[LOST], a.ask(LOST)[0])
    a.tell("forget")
    b.tell("kill_during_load", pid=tide.nodes[0].pid, port=tide.data_ports[0])
    [answer] = b.ask(LOST)
    assert same_output(alone[LOST], answer)
    assert b.number("tidepool_blocks_not_loaded") > 0
    assert tide.nodes[0].wait(20) == -signal.SIGKILL

    # Without any node, both serve on; with a new one, they share again.
    for engine in (a, b):
        assert same_output(alone[WITHOUT_A_POOL], engine.ask(WITHOUT_A_POOL)[0])
    tide.add_node()
    # What they noted of the pool's absence is forgotten soon.
    eventually("the engines share again", partial(share_again, a, b, alone[AFTERWARDS]))


def share_again(a: Engine, b: Engine, expected: Any) -> bool:
    """Whether one engine restores all of a prompt that the other was asked for."""
    assert same_output(expected, a.ask(AFTERWARDS)[0])
    [restored] = b.ask(AFTERWARDS)
    assert same_output(expected, restored)
    if restored["cached"] == AFTERWARDS[1] // BLOCK * BLOCK:
        return True
    a.tell("forget")
    b.tell("forget")
    return False
