"""A model whose layers all read a window, in real vLLM: nothing behind it is loaded, so a load that fails leaves the
request nothing to go on from.
"""

import pytest

from .conftest import Vllm, same_output
from .engines import TidePool, running

WINDOW = 512
PROMPT = (40, 2000)
BLOCK = 128


def test_a_failed_load_of_a_model_with_windows_costs_time_only(
    vllm: Vllm, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """vLLM went on from the first block that was missing, with a window of blocks that nobody had filled: wrong tokens,
    and wrong blocks in the pool for every other engine.
    """
    model = vllm.make_model(tmp_path_factory.mktemp("windows") / "model", 0, 4, 64, WINDOW)
    tide = TidePool()
    tide.add_node()
    for engine in running(vllm.engine(tide.connector(), model, VLLM_ENABLE_V1_MULTIPROCESSING="0")):
        [computed] = engine.ask(PROMPT)
        assert computed["cached"] == 0
        engine.tell("forget")
        [restored] = engine.ask(PROMPT)
        assert same_output(computed, restored)
        assert restored["cached"] == PROMPT[1] // BLOCK * BLOCK
        assert engine.number("tidepool_blocks_loaded") == WINDOW // BLOCK
        engine.tell("forget")
        engine.tell("lose_next_load")
        [failed] = engine.ask(PROMPT)
        assert same_output(computed, failed)
        assert engine.number("tidepool_blocks_not_loaded") == WINDOW // BLOCK
        # What it computed instead is in the pool, and right.
        engine.tell("forget")
        [again] = engine.ask(PROMPT)
        assert same_output(computed, again)
        assert again["cached"] == restored["cached"]
    tide.close()
