"""SGLang's own storage backend on its own host pools, all in host memory."""

import ctypes
import hashlib
import os
from typing import Any

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig, PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool
from sglang.srt.mem_cache.pool_host.base import HostKVCache, host_memory_budget_scope
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.pool_host.mla import MLATokenToKVPoolHost
from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory
from sglang.srt.mem_cache.storage.mooncake_store.mooncake_embedding_store import MooncakeEmbeddingStore
from sglang.srt.mem_cache.storage.mooncake_store.mooncake_store import MooncakeStore

PAGE, TOKENS, LAYERS = 16, 512, 3


def host_pool(kind: str, layout: str, allocator: str, seed: int) -> HostKVCache:
    """A pool with bytes that differ from seed to seed."""
    common = {"size": 64, "page_size": PAGE, "dtype": torch.bfloat16, "layer_num": LAYERS, "device": "cpu"}
    host = {"host_size": 0, "page_size": PAGE, "layout": layout, "pin_memory": False, "allocator_type": allocator}
    host |= {"device_capacity_tokens": 64, "start_layer": 0, "end_layer": LAYERS, "host_to_device_ratio": TOKENS / 64}
    # SGLang leaves 10 GiB of the host's memory alone unless it is told what there is.
    with host_memory_budget_scope(1 << 28):
        if kind == "mla":
            device = MLATokenToKVPool(kv_lora_rank=64, qk_rope_head_dim=16, enable_memory_saver=False, **common)
            pool = MLATokenToKVPoolHost(device.get_device_pool_infos()[0].buffer_info, target_layer_num=LAYERS, **host)
        else:
            device = MHATokenToKVPool(head_num=2, head_dim=32, enable_memory_saver=False, **common)
            pool = MHATokenToKVPoolHost(device.get_device_pool_infos()[0].buffer_info, **host)
    fill(pool.kv_buffer, seed)
    return pool


def fill(tensor: torch.Tensor, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    tensor.view(torch.uint8).random_(0, 256, generator=random)


def digest(addresses: list[int], sizes: list[int]) -> str:
    parts = [ctypes.string_at(address, size) for address, size in zip(addresses, sizes, strict=True)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


class Side:
    """A process of SGLang, as far as its storage backend can tell."""

    def __init__(
        self,
        settings: dict[str, Any] | None,
        seed: int,
        kind: str = "mha",
        layout: str = "page_first",
        allocator: str = "mooncake",
        environment: dict[str, str] | None = None,
        model: str = "org/model",
    ) -> None:
        os.environ.update(environment or {})
        torch.set_num_threads(1)
        self.pool = host_pool(kind, layout, allocator, seed)
        self.draft = host_pool(kind, layout, allocator, seed + 1)
        config = HiCacheStorageConfig(
            tp_rank=0,
            tp_size=1,
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
            attn_cp_size=1,
            is_mla_model=kind == "mla",
            enable_storage_metrics=True,
            is_page_first_layout=layout != "layer_first",
            model_name=model,
            extra_config=settings,
        )
        self.store = StorageBackendFactory.create_backend("mooncake", config, self.pool)
        assert type(self.store) is MooncakeStore
        self.store.register_mem_pool_host(self.pool)
        self.store.register_mem_host_pool_v2(self.draft, PoolName.DRAFT)

    def _pages(self, pool: HostKVCache, count: int) -> tuple[torch.Tensor, list[str]]:
        """Pages of the pool, and what is in them now."""
        indices = pool.alloc(count * PAGE)
        assert indices is not None
        return indices, self._digests(pool, indices)

    def _digests(self, pool: HostKVCache, indices: torch.Tensor) -> list[str]:
        return [digest(*pool.get_page_buffer_meta(page)) for page in indices.split(PAGE)]

    def set_pages(self, keys: list[str]) -> dict[str, Any]:
        indices, pages = self._pages(self.pool, len(keys))
        return {"results": self.store.batch_set_v1(keys, indices), "pages": pages}

    def get_pages(self, keys: list[str]) -> dict[str, Any]:
        indices, before = self._pages(self.pool, len(keys))
        results = self.store.batch_get_v1(keys, indices)
        return {"results": results, "before": before, "pages": self._digests(self.pool, indices)}

    def exists(self, keys: list[str]) -> int:
        return self.store.batch_exists(keys)

    def set_draft(self, keys: list[str]) -> dict[str, Any]:
        indices, pages = self._pages(self.draft, len(keys))
        results = self.store.batch_set_v2([PoolTransfer(name=PoolName.DRAFT, host_indices=indices, keys=keys)])
        return {"results": results[PoolName.DRAFT], "pages": pages}

    def get_draft(self, keys: list[str]) -> dict[str, Any]:
        indices, _ = self._pages(self.draft, len(keys))
        results = self.store.batch_get_v2([PoolTransfer(name=PoolName.DRAFT, host_indices=indices, keys=keys)])
        return {"results": results[PoolName.DRAFT], "pages": self._digests(self.draft, indices)}

    def exists_with_draft(self, keys: list[str]) -> list[int]:
        transfer = PoolTransfer(name=PoolName.DRAFT, hit_policy=PoolHitPolicy.ALL_PAGES)
        result = self.store.batch_exists_v2(keys, [transfer])
        return [result.kv_hit_pages, result.extra_pool_hit_pages.get(PoolName.DRAFT, 0)]

    # The older interface: addresses and sizes.

    def set_places(self, keys: list[str]) -> dict[str, Any]:
        indices, _ = self._pages(self.pool, len(keys))
        addresses, sizes = self.pool.get_page_buffer_meta(indices)
        addresses, sizes = addresses[: len(keys)], sizes[: len(keys)]
        stored = self.store.batch_set(keys[1:], target_locations=addresses[1:], target_sizes=sizes[1:])
        single = self.store.set(keys[0], target_location=addresses[0], target_sizes=sizes[0])
        return {"results": [single, stored], "pages": [digest([a], [s]) for a, s in zip(addresses, sizes, strict=True)]}

    def get_places(self, keys: list[str]) -> dict[str, Any]:
        indices, _ = self._pages(self.pool, len(keys))
        addresses, sizes = self.pool.get_page_buffer_meta(indices)
        addresses, sizes = addresses[: len(keys)], sizes[: len(keys)]
        count = self.store.batch_get(keys[1:], target_locations=addresses[1:], target_sizes=sizes[1:])
        single = self.store.get(keys[0], target_location=addresses[0], target_sizes=sizes[0])
        there = [self.store.exists(key) for key in keys]
        pages = [digest([a], [s]) for a, s in zip(addresses, sizes, strict=True)]
        return {"single": single, "count": count, "exists": there, "pages": pages}

    def clear(self) -> None:
        self.store.clear()

    def stats(self) -> list[int]:
        """How many pages SGLang's metrics say were saved and loaded."""
        stats = self.store.get_stats()
        return [sum(stats.backup_pgs), sum(stats.prefetch_pgs)]

    def embeddings(self, settings: dict[str, Any], hashes: list[str], put: bool) -> dict[str, Any]:
        """The store of multimodal embeddings, each in one piece and each in two."""
        store = MooncakeEmbeddingStore(type("Settings", (), {"extra_config": settings}))
        buffer = torch.empty(len(hashes) * 8192, dtype=torch.uint8)
        fill(buffer, 5 if put else 6)
        store.register_buffer(buffer)
        at = [buffer.data_ptr() + 8192 * n for n in range(len(hashes))]
        half = [[address, address + 4096] for address in at]
        whole, halves = [8192] * len(hashes), [[4096, 4096]] * len(hashes)
        split = [f"{name}-split" for name in hashes]
        before = store.batch_is_exist(hashes + split)
        if put:
            moved = store.batch_put(hashes, at, whole), store.batch_put_from_multi_buffers(split, half, halves)
            return {"before": before, "moved": moved, "pages": [digest([a], [8192]) for a in at]}
        one = store.batch_get(hashes, at, whole)
        pages = [digest([a], [8192]) for a in at]
        fill(buffer, 7)
        two = store.batch_get_into_multi_buffers(split, half, halves)
        pages_split = [digest([a], [8192]) for a in at]
        return {"before": before, "moved": (one, two), "pages": pages, "split": pages_split}
