"""vLLM's own ``MooncakeStoreConnector``, unmodified, on a Tidepool pool."""

import os
from pathlib import Path

from .conftest import Pool, Vllm, same_output

LENGTHS = (1024, 4096)
STOCK = {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}

#: Zeroes what the connector loads, after it was loaded: what the model generates must then change.
ZEROING = """
import ctypes
from mooncake.store import MooncakeDistributedStore
load = MooncakeDistributedStore.batch_get_into_multi_buffers
def load_and_zero(self, keys, places, sizes, *rest):
    codes = load(self, keys, places, sizes, *rest)
    for of_key, lengths in zip(places, sizes):
        for place, length in zip(of_key, lengths):
            ctypes.memset(place, 0, length)
    return codes
MooncakeDistributedStore.batch_get_into_multi_buffers = load_and_zero
"""


def test_a_computes_and_b_restores_in_another_process(vllm: Vllm, pool: Pool, tmp_path: Path) -> None:
    alone = vllm.run(None, *LENGTHS)
    settings = {"MOONCAKE_CONFIG_PATH": str(pool.settings)}
    computed = vllm.run(STOCK, *LENGTHS, **settings)
    restored = vllm.run(STOCK, *LENGTHS, **settings)
    for length in LENGTHS:
        assert same_output(alone[length], computed[length])
        assert same_output(alone[length], restored[length])
        assert computed[length]["cached"] == 0
        # All but the last block: a request computes at least one token.
        assert restored[length]["cached"] == length - 128

    (tmp_path / "sitecustomize.py").write_text(ZEROING)
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    zeroed = vllm.run(STOCK, *LENGTHS, PYTHONPATH=path, **settings)
    for length in LENGTHS:
        assert zeroed[length]["cached"] == length - 128
        assert not same_output(alone[length], zeroed[length]), "the comparison would not notice wrong blocks"
