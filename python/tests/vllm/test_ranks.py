"""Real engines of two ranks: tensor parallel, each with a share of every block, and data parallel, each with all."""

from collections.abc import Iterator

import pytest

from .conftest import Vllm, same_output
from .engines import TidePool

LENGTH = 700
#: Whole blocks of it; the last token is always computed.
RESTORED = 640
TWO_RANKS = {"ENGINE_OPTIONS": '{"tensor_parallel_size": 2}', "OMP_NUM_THREADS": "1"}


@pytest.fixture
def pool() -> Iterator[TidePool]:
    pool = TidePool()
    pool.add_node()
    yield pool
    pool.close()


def test_engines_of_two_ranks_restore_what_others_of_two_ranks_computed(vllm: Vllm, pool: TidePool) -> None:
    computed = vllm.run(pool.connector(), LENGTH, **TWO_RANKS)[LENGTH]
    assert computed["cached"] == 0
    restored = vllm.run(pool.connector(), LENGTH, **TWO_RANKS)[LENGTH]
    assert restored["cached"] == RESTORED
    assert same_output(computed, restored)


def test_a_data_parallel_rank_restores_what_another_computed(vllm: Vllm, pool: TidePool) -> None:
    computed, restored = vllm.reports("replicas.py", pool.connector(), LENGTH, 0, 1, OMP_NUM_THREADS="1")
    assert (computed["rank"], computed["cached"]) == (0, 0)
    assert (restored["rank"], restored["cached"]) == (1, RESTORED)
    assert same_output(computed, restored)
