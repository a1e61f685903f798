"""Promises about where blocks lie, with vLLM's own allocation of KV caches: run by the Python of vLLM's environment.

``layouts.py MODEL``, as for ``units.py``; the model is not used.
"""

import ctypes
import sys
import unittest
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from caches import BLOCKS, Cache, caches
from simulated import full
from tidepool._native import BlockTransfers
from tidepool.errors import InvalidError, TidepoolError
from tidepool.vllm.connector import TidepoolConnector
from tidepool.vllm.groups import groups_of
from tidepool.vllm.layout import Places, lay_out, lay_out_together
from tidepool.vllm.messages import Load, Save, Step
from tidepool.vllm.worker import WorkerSide
from units import WithPool
from vllm.v1 import kv_cache_interface
from vllm.v1.kv_cache_interface import MambaSpec
from waiting import eventually


def places_of(cache: Cache) -> Places:
    if cache.together is not None:
        return lay_out_together(cache.config, cache.together)
    return lay_out(cache.config, cache.tensors, range(len(cache.config.kv_cache_groups)))


class RoundTrips(WithPool):
    """A block is saved from one cache and loaded into another block of another one."""

    def test_blocks_come_back_bit_for_bit_in_every_layout_and_nothing_else_is_touched(self) -> None:
        tried = 0
        for name, make in caches():
            with self.subTest(name):
                self.check_round_trip(name, make(), make(), make())
                tried += 1
        self.assertGreater(tried, 20)

    def test_layouts_that_are_described_alike_hold_the_same_bytes(self) -> None:
        known: dict[Any, tuple[str, Any]] = {}
        pairs = 0
        for name, make in caches():
            described = tuple(places_of(make()).descriptions)
            if described in known:
                other, make_other = known[described]
                with self.subTest(f"{other} and {name}"):
                    self.check_round_trip(f"{other}, {name}", make_other(), make(), make())
                    pairs += 1
            known[described] = (name, make)
        if hasattr(kv_cache_interface, "KVCacheLayout"):
            self.assertGreater(pairs, 5)

    def test_a_gpu_that_cannot_be_used_is_a_clear_error(self) -> None:
        if torch.cuda.is_available():
            self.skipTest("this host has a GPU, so nothing is proved about one without")
        with self.assertRaisesRegex(TidepoolError, "GPU 0 cannot be used: .*cu"):
            BlockTransfers(self.pool, [[(4096, 64, 64)]], 4, [], device=0)

    def test_a_gpu_copies_after_what_the_engines_stream_was_given(self) -> None:
        asked: list[Any] = []

        class Moves:
            def load(self, job: int, parts: Any, *, origin: Any, after: int | None) -> None:
                asked.append(("load", job, after))

            def save(self, job: int, parts: Any, *, stripe: Any, origin: Any, after: int | None) -> None:
                asked.append(("save", job, after))

        worker = WorkerSide.__new__(WorkerSide)
        worker._transfers, worker._device = Moves(), 3  # type: ignore[assignment]
        worker._step, worker._saved, worker._loading, worker._saving, worker._stripe = None, None, {}, set(), (0, 1)
        step = Step("engine", [Load(1, "request", [])], [Save(2, [])])
        with patch("torch.cuda.current_stream", lambda device: SimpleNamespace(cuda_stream=1000 + device)):
            worker.begin_loads(step)
            worker.begin_saves(step)
            worker.begin_saves(step)  # once for each step
        self.assertEqual(asked, [("load", 1, 1003), ("save", 2, 1003)])

    def check_round_trip(self, name: str, source: Cache, target: Cache, expected: Cache) -> None:
        source.fill(seed=len(name))
        for group in range(len(source.config.kv_cache_groups)):
            target.fill(seed=1)
            expected.fill(seed=1)
            pairs = [(2, 1), (0, 4), (5, 5)]
            self.move("save", source, name, group, [block for block, _ in pairs])
            self.move("load", target, name, group, [block for _, block in pairs])
            # What the engine would have copied itself.
            for one, other in zip(source.blocks(group), expected.blocks(group), strict=True):
                for block, to in pairs:
                    other[to].copy_(one[block])
            for mine, its in zip(target.raw(), expected.raw(), strict=True):
                self.assertTrue(torch.equal(mine, its), f"group {group}")

    def move(self, way: str, cache: Cache, name: str, group: int, blocks: list[int]) -> None:
        places = places_of(cache)
        moves = BlockTransfers(self.pool, places.pieces, BLOCKS, places.memory)
        try:
            hashes = b"".join(index.to_bytes(8, "big") for index in range(len(blocks)))
            part = (group, f"{name}/{group}/", 8, hashes, array("I", blocks).tobytes(), 0)
            getattr(moves, way)(1, [part])
            over = eventually("all blocks are moved", moves.poll)
            self.assertEqual(over[0][2], [], f"not all blocks could be {way}d")
        finally:
            moves.close()


class Layouts(unittest.TestCase):
    def groups(self, *specs: Any, blocks: int = 4) -> Any:
        named = [SimpleNamespace(layer_names=[f"l{n}"], kv_cache_spec=spec) for n, spec in enumerate(specs)]
        return SimpleNamespace(num_blocks=blocks, kv_cache_groups=named)

    def pieces(self, tensor: torch.Tensor) -> list[Any]:
        [pieces] = lay_out(self.groups(full()), {"l0": tensor}, [0]).pieces
        return [(base - tensor.data_ptr(), stride, length) for base, stride, length in pieces]

    def test_every_layout_of_a_block_is_found(self) -> None:
        self.assertEqual(self.pieces(torch.zeros(4, 2, 16, 8)), [(0, 1024, 1024)])
        # Tokens outside, heads inside.
        self.assertEqual(self.pieces(torch.zeros(4, 16, 2, 8).transpose(1, 2)), [(0, 1024, 1024)])
        # Keys and values apart.
        self.assertEqual(self.pieces(torch.zeros(2, 4, 16, 8)), [(0, 512, 512), (2048, 512, 512)])
        # A block of two of the kernel's.
        self.assertEqual(self.pieces(torch.zeros(8, 2, 8, 8)), [(0, 1024, 1024)])
        # All layers of a block together: this layer has every other piece.
        self.assertEqual(self.pieces(torch.zeros(4, 3, 2, 16, 8)[:, 1]), [(0, 3072, 1024)])
        # Heads outside of blocks.
        self.assertEqual(self.pieces(torch.zeros(2, 4, 16, 8).transpose(0, 1)), [(0, 512, 512), (2048, 512, 512)])

    def test_layouts_that_differ_are_described_differently(self) -> None:
        def described(tensor: torch.Tensor) -> Any:
            return lay_out(self.groups(full()), {"l0": tensor}, [0]).descriptions

        plain = described(torch.zeros(4, 2, 16, 8))
        self.assertEqual(plain, described(torch.ones(4, 2, 16, 8)))
        self.assertNotEqual(plain, described(torch.zeros(4, 16, 2, 8).transpose(1, 2)))
        self.assertNotEqual(plain, described(torch.zeros(4, 2, 16, 8, dtype=torch.int32)))

    def test_layers_of_a_block_that_lie_together_are_one_piece(self) -> None:
        together = torch.zeros(8, 3, 8, 2, 8)  # blocks of two of the kernel's, layers, tokens, heads, values
        places = lay_out_together(self.groups(full()), together)
        self.assertEqual(places.pieces, [[(together.data_ptr(), 2 * 3 * 512, 2 * 3 * 512)]])
        self.assertIsNone(places.device)
        # Layer by layer the same bytes are in another order: nobody may take one for the other.
        apart = lay_out(self.groups(full()), {"l0": torch.zeros(4, 16, 2, 8)}, [0])
        self.assertNotEqual(places.descriptions, apart.descriptions)

    def test_a_gpu_is_asked_for_blocks_that_keep_their_layers_together(self) -> None:
        def wish(device: str) -> str | None:
            config: Any = SimpleNamespace(device_config=SimpleNamespace(device_type=device))
            return TidepoolConnector.get_required_kvcache_layout(config)

        # 0.26 has no names for layouts that do, and asks the connector otherwise.
        self.assertEqual(wish("cuda"), "BLHNC" if hasattr(kv_cache_interface, "KVCacheLayout") else None)
        self.assertIsNone(wish("cpu"))
        self.assertTrue(TidepoolConnector.prefer_cross_layer_blocks.fget(None))  # type: ignore[attr-defined]

    def test_memory_that_is_neither_the_hosts_nor_one_gpus_is_refused(self) -> None:
        meta = torch.zeros(4, 2, 16, 8, device="meta")
        with self.assertRaisesRegex(InvalidError, "on meta: .* host memory and on NVIDIA GPUs"):
            lay_out(self.groups(full()), {"l0": meta}, [0])
        with self.assertRaisesRegex(InvalidError, "several devices .*l0 on cpu.*l1 on meta"):
            lay_out(self.groups(full(), full()), {"l0": torch.zeros(4, 2, 16, 8), "l1": meta}, [0, 1])

    def test_states_that_are_no_attention_are_refused(self) -> None:
        state = MambaSpec(block_size=16, shapes=((4,),), dtypes=(torch.float32,))
        parallel = SimpleNamespace(decode_context_parallel_size=1)
        cache = SimpleNamespace()
        config = SimpleNamespace(parallel_config=parallel, cache_config=cache)
        groups = self.groups(state)
        groups.hash_block_size = 16
        with self.assertRaisesRegex(InvalidError, "KV group 0 .MambaSpec: l0, .*is not attention"):
            groups_of(config, groups)
        cache.calculate_kv_scales = True
        with self.assertRaisesRegex(InvalidError, "scales of its own"):
            groups_of(config, groups)
        parallel.decode_context_parallel_size = 2
        with self.assertRaisesRegex(InvalidError, "decode_context_parallel_size is 2"):
            groups_of(config, groups)

    def test_a_tensor_that_does_not_show_all_of_a_block_is_refused(self) -> None:
        with self.assertRaisesRegex(InvalidError, "l0 shows 896 bytes of a block, but FullAttentionSpec has 1024"):
            lay_out(self.groups(full()), {"l0": torch.zeros(4, 2, 16, 7)}, [0])

    def test_groups_that_are_not_moved_may_lie_as_they_like(self) -> None:
        tensors = {"l0": torch.zeros(4, 2, 16, 8), "l1": torch.zeros(7, dtype=torch.int8, device="meta")}
        places = lay_out(self.groups(full(), full()), tensors, [0])
        self.assertEqual([len(pieces) for pieces in places.pieces], [1, 0])
        self.assertIsNone(places.descriptions[1])


class Bench(unittest.TestCase):
    """What is measured on a GPU is verified."""

    def test_table_a_notices_copies_that_bring_nothing(self) -> None:
        sys.path.append(str(Path(__file__).parents[3] / "bench" / "gpu"))
        from copies import KIB, measured

        class Gpu:
            def __init__(self, *ways: bool) -> None:
                self._ways = ways

            def takes_kernel(self, length: int) -> tuple[bool, bool]:
                return length < 64 << 10, True

            def copy(self, places: list[tuple[int, int, int]], to_gpu: bool, by_kernel: bool | None) -> float:
                for host, device, length in places if to_gpu in self._ways else ():
                    ctypes.memmove(*((device, host) if to_gpu else (host, device)), length)
                return 1.0

        host, device = (torch.zeros(16 << 20, dtype=torch.uint8) for _ in range(2))
        self.assertEqual(len(measured(Gpu(True, False), host, device, 0)), len(KIB) + 1)
        for only in (True, False):
            with self.assertRaisesRegex(AssertionError, "pieces of 4194304 bytes differ"):
                measured(Gpu(only), host, device, 0)


if __name__ == "__main__":
    sys.argv.pop(1)
    unittest.main(verbosity=2)
