"""The proof beside the tables: a small model whose output depends on its KV cache, in two vLLMs.

One saves, the other restores, and saves what it has restored to a pool of its own: both pools must hold the same bytes
under the same keys.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from parts import Engine, Pool, end_all

MODEL = Path(__file__).parents[2] / "python" / "tests" / "vllm" / "model.py"
#: Of the longest, blocks of a MiB are two flights.
LENGTHS = [512, 4096, 16_320]
#: Heads, their width, and tokens of a block: pieces that the kernel copies, and pieces as in the other tables, which
#: the copy engines bring and the kernel takes away.
SHAPES = [(4, 64, 16), (8, 128, 64)]


def prove() -> dict[str, Any]:
    # That none differs is asserted block by block.
    proof: dict[str, Any] = {"rows": {}, "blocks compared, all the same": 0, "bytes compared, all the same": 0}
    for shape in SHAPES:
        rows, blocks, size = prove_of(*shape)
        proof["rows"] |= rows
        proof["blocks compared, all the same"] += blocks
        proof["bytes compared, all the same"] += size
    return proof


def prove_of(heads: int, width: int, block: int) -> tuple[dict[str, Any], int, int]:
    with tempfile.TemporaryDirectory() as folder, Pool("4GiB") as pool, Pool("4GiB") as copy:
        path = Path(folder) / "model"
        made = [sys.executable, str(MODEL), str(path), "0", str(heads), str(width)]
        subprocess.run(made, check=True, capture_output=True)
        options: dict[str, Any] = {
            "block_size": block,
            "enable_sleep_mode": True,
            "load_format": "auto",
            "gpu_memory_utilization": 0.2,
            "kv_cache_memory_bytes": 2 << 30,
            "max_model_len": 16_384,
        }
        both = {
            "kv_connector": "MultiConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"connectors": [pool.connector(), copy.connector()]},
        }
        # Before it sleeps vLLM resets all caches, as it does before it has other weights; these stay.
        writer = Engine(path, pool.connector(after_reset="keep"), **options)
        reader = Engine(path, both, **options)
        rows: dict[str, Any] = {}

        def note(length: int, restored: int, where: str = "") -> None:
            name = f"{length} tokens in blocks of {block}{where}"
            print(f"{name}: {restored} restored, the same tokens", file=sys.stderr, flush=True)
            rows[name] = {"restored": restored, "same tokens": True}

        try:
            pool.ready()
            copy.ready()
            writer.ready()
            reader.ready()
            for seed, length in enumerate(LENGTHS):
                # The last token is always computed. It is in no whole block, so that whole blocks are all restored.
                prompt = [[seed, length + 1]]
                writer.ask(prompt, tokens=1)
                kept = writer.ask(prompt, tokens=8)  # its prefix is still on the GPU
                restored = reader.ask(prompt, tokens=8)
                assert kept["cached"] == restored["cached"] == length, (kept, restored)
                assert kept["tokens"] == restored["tokens"], f"{length} tokens: other tokens after a restore"
                note(length, restored["cached"])
            # What an engine saved before it slept, it restores into the memory that it has after waking.
            prompt = [[len(LENGTHS), LENGTHS[-1] + 1]]
            before = writer.ask(prompt, tokens=8)
            writer.nap()
            after = writer.ask(prompt, tokens=8)
            assert before["tokens"] == after["tokens"], "other tokens after a sleep"
            assert after["cached"] == LENGTHS[-1], f"only {after['cached']} tokens were restored after a sleep"
            note(LENGTHS[-1], after["cached"], ", after a sleep")
        finally:
            end_all([writer, reader])
        blocks, size = compare(pool, copy)
    assert blocks >= sum(LENGTHS) // block, f"only {blocks} blocks were there to compare"
    return rows, blocks, size


def compare(pool: Pool, copy: Pool) -> tuple[int, int]:
    """All blocks that the second engine saved again; no byte may differ."""
    blocks, size = 0, 0
    with pool.client() as first, copy.client() as second:
        for key, length, _ in second.list_blocks():
            copied, saved = second.get(key), first.get(key)
            if copied is None or saved is None or length < 4096:  # notes about sessions and engines are small
                continue
            assert copied == saved, f"{key!r} differs from what was saved"
            blocks, size = blocks + 1, size + len(copied)
    return blocks, size
