"""Promises about whose blocks are interchangeable: run by the Python of vLLM's environment.

``identities.py MODEL``, as for ``units.py``; the model is not used.
"""

import json
import shutil
import sys
import tempfile
import types
import unittest
from array import array
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from simulated import full
from tidepool.errors import InvalidError
from tidepool.vllm.fingerprint import fingerprint
from tidepool.vllm.layout import lay_out
from tidepool.vllm.weights import digest_of, drafts_identity


class Fingerprints(unittest.TestCase):
    def named(self, rope: Any = None, **model: Any) -> str:
        config = types.SimpleNamespace(to_dict=lambda: {"rope_parameters": rope})
        plain = {"hf_config": config, "dtype": "f", "quantization": None, "max_model_len": 4096}
        cache = types.SimpleNamespace(cache_dtype="auto", prefix_caching_hash_algo="sha256")
        parallel = types.SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1)
        whole = {"model_config": types.SimpleNamespace(**plain | model), "cache_config": cache}
        every = types.SimpleNamespace(**whole, parallel_config=parallel)
        return fingerprint(every, [], {}, {"weights": "these"}).namespace

    def test_engines_that_turn_positions_by_other_factors_share_nothing(self) -> None:
        """vLLM takes a model's long or short factors by the longest request that it allows, which no key told."""

        def named(longest: int, kind: str) -> str:
            return self.named({"rope_type": kind, "original_max_position_embeddings": 4096}, max_model_len=longest)

        self.assertNotEqual(named(4096, "longrope"), named(32768, "longrope"))
        self.assertEqual(named(8192, "longrope"), named(32768, "longrope"))
        self.assertEqual(named(4096, "llama3"), named(32768, "llama3"))

    def test_engines_that_quantize_or_prepare_inputs_in_other_ways_share_nothing(self) -> None:
        """Of quantization while loading, the method's name was all that keys told."""
        ways: list[dict[str, Any]] = [
            {},
            {"quantization": "online", "quantization_config": {"linear": "fp8_per_tensor"}},
            {"quantization": "online", "quantization_config": {"linear": "fp8_per_tensor", "ignore": ["re:.*0.*"]}},
            {"quantization": "online", "quantization_config": {"linear": "mxfp8"}},
            {"multimodal_config": types.SimpleNamespace(mm_processor_kwargs={"max_pixels": 1024})},
            {"multimodal_config": types.SimpleNamespace(mm_processor_kwargs={"max_pixels": 4096})},
        ]
        self.assertEqual(len({self.named(**way) for way in ways}), len(ways))
        self.assertEqual(self.named(), self.named(multimodal_config=types.SimpleNamespace(mm_processor_kwargs=None)))

    def test_processors_whose_kernels_order_a_block_differently_share_nothing(self) -> None:
        """vLLM's kernels for AMX pack the same tensor in another way: what one host had written, another misread."""
        group = types.SimpleNamespace(layer_names=["l0"], kv_cache_spec=full())
        config = types.SimpleNamespace(num_blocks=4, kv_cache_groups=[group])

        def described(amx: bool, avx512: bool, machine: str = "x86_64") -> str | None:
            with (
                patch("torch.cpu._is_amx_tile_supported", lambda: amx),
                patch("torch.cpu._is_avx512_supported", lambda: avx512),
                patch("platform.machine", lambda: machine),
            ):
                return lay_out(config, {"l0": torch.zeros(4, 2, 16, 8)}, [0]).descriptions[0]

        hosts = [(False, False), (False, True), (True, True), (False, False, "aarch64")]
        self.assertEqual(len({described(*host) for host in hosts}), len(hosts))
        self.assertEqual(described(True, True), described(True, True))


class Weights(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def write(self, name: str, tensors: dict[str, list[float]]) -> Path:
        """A folder with one safetensors file for each tensor of a name with a slash, and one for the rest."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        files: dict[str, dict[str, list[float]]] = {}
        for tensor, values in tensors.items():
            file, _, short = tensor.rpartition("/")
            files.setdefault(file or "model", {})[short] = values
        for file, content in files.items():
            header, data = {}, b""
            for tensor, values in content.items():
                start, data = len(data), data + array("f", values).tobytes()
                header[tensor] = {"dtype": "F32", "shape": [len(values)], "data_offsets": [start, len(data)]}
            text = json.dumps(header).encode()
            (folder / f"{file}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
        return folder

    def test_weights_are_what_they_hold_not_where_they_lie(self) -> None:
        one = digest_of(self.write("a/model", {"x": [1, 2], "y": [3]}))
        self.assertEqual(one, digest_of(self.write("b/other", {"first/x": [1, 2], "second/y": [3]})))
        self.assertNotEqual(one, digest_of(self.write("c/model", {"x": [1, 2], "y": [4]})))
        self.assertNotEqual(one, digest_of(self.write("d/model", {"x": [1, 2], "z": [3]})))

    def test_of_large_weights_a_part_is_read_and_all_on_demand(self) -> None:
        from tidepool.vllm import weights

        small, weights._SMALL = weights._SMALL, 0
        self.addCleanup(setattr, weights, "_SMALL", small)
        values = [float(n) for n in range(200_000)]
        changed = [*values[:-1], 0.0]
        plain, other = self.write("a", {"x": values}), self.write("b", {"x": changed})
        self.assertNotEqual(digest_of(plain), digest_of(other))
        values[1500] += 1
        hidden = self.write("c", {"x": values})
        self.assertEqual(digest_of(plain), digest_of(hidden))
        self.assertNotEqual(digest_of(plain, full=True), digest_of(hidden, full=True))

    def test_what_cannot_be_told_apart_is_named(self) -> None:
        with self.assertRaisesRegex(InvalidError, "set weights_id"):
            digest_of(self.folder)
        (self.folder / "bad.safetensors").write_bytes(b"\xff" * 64)
        with self.assertRaisesRegex(InvalidError, r"bad.safetensors is no safetensors file"):
            digest_of(self.folder)

    def test_weights_of_a_draft_model_count(self) -> None:
        """Its KV is in the blocks, too: with another one's, next to nothing that it drafts is accepted."""

        def identity(draft: Path | None, method: str = "draft_model") -> str:
            model = types.SimpleNamespace(model="main")
            speculative = types.SimpleNamespace(method=method)
            speculative.draft_model_config = draft and types.SimpleNamespace(model=str(draft))
            load = types.SimpleNamespace(load_format="auto")
            config = types.SimpleNamespace(speculative_config=speculative, model_config=model, load_config=load)
            return drafts_identity(config, check="full", name="")

        one, other = self.write("one", {"x": [1, 2]}), self.write("other", {"x": [1, 3]})
        self.assertEqual(len({identity(one), identity(other), identity(one, "eagle"), identity(None)}), 4)
        self.assertEqual(identity(Path("main")), identity(None))


if __name__ == "__main__":
    sys.argv.pop(1)
    unittest.main(verbosity=2)
