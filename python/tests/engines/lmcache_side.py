"""LMCache's own remote backend and look-up client, on its own host memory."""

import asyncio
import hashlib
import os
import threading
from concurrent.futures import Future
from typing import Any

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.lookup_client.factory import LookupClientFactory
from lmcache.v1.lookup_client.mooncake_lookup_client import MooncakeLookupClient
from lmcache.v1.memory_management import MemoryFormat, MemoryObj
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.connector.mooncakestore_connector import MooncakestoreConnector
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.remote_backend import RemoteBackend
from lmcache.v1.token_database import ChunkedTokenDatabase

CHUNK = 16
_ANSWER = 30


class Side:
    """A worker of LMCache: chunks of tokens in its local memory, and the pool behind them."""

    def __init__(
        self, url: str, settings: dict[str, Any] | None, seed: int, environment: dict[str, str] | None = None
    ) -> None:
        os.environ.update(environment or {})
        torch.set_num_threads(1)
        self.random = torch.Generator().manual_seed(seed)
        self.config = LMCacheEngineConfig.from_defaults(
            chunk_size=CHUNK,
            local_cpu=False,
            max_local_cpu_size=0.03,
            save_unfull_chunk=True,
            remote_url=url,
            extra_config=settings,
        )
        self.metadata = LMCacheMetadata(
            model_name="org/model",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.bfloat16,
            kv_shape=(3, 2, CHUNK, 2, 32),
            chunk_size=CHUNK,
        )
        self.tokens = ChunkedTokenDatabase(self.config, self.metadata)
        self.local = LocalCPUBackend(self.config, self.metadata)
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        self.loop = loop
        self.remote = RemoteBackend(self.config, self.metadata, loop, self.local, "cpu")
        assert self.remote.connection is not None
        self.connector = self.remote.connection.getWrappedConnector()
        assert type(self.connector) is MooncakestoreConnector
        # What LMCache calls "registered": puts and gets go without a copy.
        assert self.connector.registered_buffer_ptr is not None

    def _keys(self, first: int, count: int) -> list[tuple[int, CacheEngineKey]]:
        """Chunk lengths and keys of a prompt; other prompts begin with another token."""
        tokens = list(range(first, first + count))
        return [(end - start, key) for start, end, key in self.tokens.process_tokens(tokens)]

    def _chunk(self, length: int) -> MemoryObj:
        chunk = self.local.allocate(self.metadata.get_shapes(length), self.metadata.get_dtypes(), MemoryFormat.KV_2LTD)
        assert chunk is not None
        chunk.raw_tensor.view(torch.uint8).random_(0, 256, generator=self.random)
        return chunk

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(_ANSWER)

    def put(self, first: int, count: int, single: bool = False) -> list[str]:
        """Stores a prompt's chunks and says what is in them."""
        keys = self._keys(first, count)
        chunks = [self._chunk(length) for length, _ in keys]
        digests = [digest(chunk) for chunk in chunks]
        done: list[Future[None]] = [Future() for _ in keys]
        places = {key: place for (_, key), place in zip(keys, done, strict=True)}
        if single:
            for (_, key), chunk in zip(keys, chunks, strict=True):
                self.remote.submit_put_task(key, chunk, lambda key: places[key].set_result(None))
        else:
            names = [key for _, key in keys]
            self.remote.batched_submit_put_task(
                names, chunks, on_complete_callback=lambda key: places[key].set_result(None)
            )
        for place in done:
            place.result(_ANSWER)
        assert self.remote.put_failed_count == 0
        return digests

    def get(self, first: int, count: int) -> list[Any]:
        """What the pool has for a prompt: digest and shape of each chunk, or nothing."""
        chunks = self.remote.batched_get_blocking([key for _, key in self._keys(first, count)])
        found = [chunk and [digest(chunk), list(chunk.get_shape())] for chunk in chunks]
        for chunk in chunks:
            if chunk is not None:
                chunk.ref_count_down()
        return found

    def contains(self, first: int, count: int) -> dict[str, Any]:
        """The same question in every way in which LMCache asks it."""
        keys = [key for _, key in self._keys(first, count)]
        prefix = self._run(self.remote.connection.batched_async_contains("look-up", keys))
        return {
            "each": [bool(self.remote.contains(key)) for key in keys],
            "sync": [bool(self.connector.exists_sync(key)) for key in keys],
            "prefix": prefix,
            "batched": self.remote.batched_contains(keys),
        }

    def lookup(self, master: str, first: int, count: int) -> int:
        """How many tokens the scheduler's look-up client finds."""
        self.config.external_lookup_client = f"mooncakestore://{master}"
        client = LookupClientFactory.create_lookup_client(self.config, self.metadata)
        assert type(client) is MooncakeLookupClient
        try:
            return client.lookup(list(range(first, first + count)))
        finally:
            client.close()

    def close(self) -> None:
        self.remote.close()


def digest(chunk: MemoryObj) -> str:
    return hashlib.sha256(bytes(chunk.byte_array)).hexdigest()
