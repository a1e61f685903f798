"""vLLM's own scheduler, KV cache manager and connector classes, with a model that only writes numbers.

What the model writes into the KV cache for a token depends on all tokens before it, on layer and rank; before every
step everything that attention would read is compared with what should be there. So a wrong, missing or early
overwritten block fails the test, without a vLLM being started.
"""

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from tidepool.vllm import TidepoolConnector
from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash, resolve_kv_cache_block_sizes
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, SlidingWindowSpec
from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager
from waiting import eventually

HEADS, SIZE = 2, 4
#: Not before 0.32.
TELLS_FAILED_REQUESTS = hasattr(KVConnectorBase_V1, "get_transfer_results")


def full(block_size: int = 16) -> Any:
    return FullAttentionSpec(block_size=block_size, num_kv_heads=HEADS, head_size=SIZE, dtype=torch.float32)


def sliding(window: int, block_size: int = 16) -> Any:
    return SlidingWindowSpec(
        block_size=block_size, num_kv_heads=HEADS, head_size=SIZE, dtype=torch.float32, sliding_window=window
    )


class Worker:
    """One rank: its KV cache and its connector."""

    def __init__(self, config: Any, specs: Sequence[Any], blocks: int, rank: int, replicas: int) -> None:
        parallel = config.parallel_config
        parallel.rank = rank
        #: Ranks of one share hold the same bytes.
        self.share = rank % parallel.tensor_parallel_size // replicas
        self.is_last_stage = rank // parallel.tensor_parallel_size == parallel.pipeline_parallel_size - 1
        kv_cache_config = cache_config_of(config, specs, blocks, rank // parallel.tensor_parallel_size, replicas)
        self.layers = [group.layer_names for group in kv_cache_config.kv_cache_groups]
        self.connector = TidepoolConnector(config, KVConnectorRole.WORKER, kv_cache_config)
        self.caches = {
            name: torch.zeros(kv_cache_config.num_blocks, HEADS, group.kv_cache_spec.block_size, 2 * SIZE)
            for group in kv_cache_config.kv_cache_groups
            for name in group.layer_names
        }
        self.connector.register_kv_caches(self.caches)

    def after_forward(self, output: Any, draft: Callable[[], None] | None) -> KVConnectorOutput:
        """What vLLM's model runner does around the connector, in its order.

        A draft model comes last, and the first stages of an engine that has one are never told to save.
        """
        connector = self.connector
        connector.bind_connector_metadata(output.kv_connector_metadata)
        connector.start_load_kv(None)
        if output.num_scheduled_tokens and draft is None:
            connector.wait_for_save()
        if TELLS_FAILED_REQUESTS:
            results = connector.get_transfer_results(output.finished_req_ids)
            transfers = {"finished_recving": results.finished_recving, "failed_recving": results.failed_recving}
        else:
            transfers = {"finished_recving": connector.get_finished(output.finished_req_ids)[1]}
        reported = KVConnectorOutput(
            **transfers,
            invalid_block_ids=connector.get_block_ids_with_load_errors(),
            kv_connector_stats=connector.get_kv_connector_stats(),
            kv_connector_worker_meta=connector.build_connector_worker_meta(),
        )
        if output.num_scheduled_tokens and draft is not None and self.is_last_stage:
            assert connector._worker._saved is not output.kv_connector_metadata, "saved before all of it was written"
            draft()
            connector.wait_for_save()
        connector.clear_connector_metadata()
        return reported


class Simulated:
    """An engine without a model."""

    def __init__(
        self,
        model: str,
        connector: dict[str, Any],
        *,
        specs: Sequence[Any] = (full(),),
        blocks: int = 128,
        ranks: int = 1,
        stages: int = 1,
        replicas: int = 1,
        batch: int = 256,
        drafts: bool = False,
        **options: Any,
    ) -> None:
        arguments = EngineArgs(
            model=model,
            skip_tokenizer_init=True,
            dtype="float32",
            block_size=16,
            max_model_len=1024,
            max_num_batched_tokens=batch,
            max_num_seqs=8,
            enable_prefix_caching=True,
            tensor_parallel_size=ranks,
            pipeline_parallel_size=stages,
            kv_transfer_config=connector,
            async_scheduling=False,
            **options,
        )
        self.config = arguments.create_engine_config()
        self.config.cache_config.num_gpu_blocks = blocks
        kv_cache_config = cache_config_of(self.config, specs, blocks, 0, replicas)
        block_size, hashed = resolve_kv_cache_block_sizes(kv_cache_config, self.config)
        self.specs = specs
        self.workers = [Worker(self.config, specs, blocks, rank, replicas) for rank in range(ranks * stages)]
        self.scheduler = Scheduler(
            self.config, kv_cache_config, StructuredOutputManager(self.config), block_size, hashed, log_stats=True
        )
        self.connector: Any = self.scheduler.connector
        hash_function = get_hash_fn_by_name(self.config.cache_config.prefix_caching_hash_algo)
        init_none_hash(hash_function)
        self.hasher = get_request_block_hasher(hashed, hash_function)
        self.aggregator = KVOutputAggregator(ranks * stages)
        self.requests: dict[str, Request] = {}
        self.counted: dict[str, int] = {}
        self.events: list[Any] = []
        self.scheduler.kv_event_publisher.publish = lambda batch: self.events.extend(batch.events)
        #: What the draft model, whose layer is the last one, has still to write in this step; None without one.
        self.drafts: list[Callable[[], None]] | None = [] if drafts else None
        #: How many tokens each request had when it first ran.
        self.restored: dict[str, int] = {}

    def add(self, name: str, tokens: list[int], *, generate: int = 4, params: Any = None) -> Request:
        how = SamplingParams(
            max_tokens=generate, ignore_eos=True, extra_args={"kv_transfer_params": params} if params else None
        )
        request = Request(name, tokens, how, None, block_hasher=self.hasher)
        self.requests[name] = request
        self.scheduler.add_request(request)
        return request

    def abort(self, name: str) -> None:
        self.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)

    def step(self) -> Any:
        output = self.scheduler.schedule()
        sampled = {name: self._forward(name, count) for name, count in output.num_scheduled_tokens.items()}
        names = list(output.num_scheduled_tokens)
        runs = [
            ModelRunnerOutput(
                req_ids=names,
                req_id_to_index={name: index for index, name in enumerate(names)},
                sampled_token_ids=[sampled[name] for name in names],
                kv_connector_output=worker.after_forward(output, None if self.drafts is None else self._draft),
            )
            for worker in self.workers
        ]
        for reported in self.scheduler.update_from_output(output, self.aggregator.aggregate(runs)).values():
            self._count(reported.scheduler_stats)
        return output

    def step_until(self, what: str, is_so: Callable[[], Any]) -> None:
        """Steps until an event, with a rest after steps that compute nothing."""

        def comes_to_it() -> bool:
            for _ in range(100):
                if is_so():
                    return True
                if not self.step().num_scheduled_tokens:
                    break
            return bool(is_so())

        eventually(what, comes_to_it)

    def run(self) -> None:
        """Until nothing is left to do."""
        self.step_until("the engine comes to an end", lambda: not self.scheduler.has_requests())

    def free_blocks(self) -> int:
        free: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return free

    def close(self) -> None:
        self.scheduler.shutdown()
        for worker in self.workers:
            worker.connector.shutdown()

    def _count(self, stats: Any) -> None:
        for name, number in ((stats and stats.kv_connector_stats) or {}).items():
            assert number >= 0, f"{name} went down by {-number}, which vLLM's counters refuse"
            self.counted[name] = self.counted.get(name, 0) + number

    def _draft(self) -> None:
        while self.drafts:
            self.drafts.pop()()

    def fill(self, tables: Sequence[Sequence[int]], tokens: Sequence[int]) -> None:
        """Puts into blocks what computing these tokens would have."""
        code = 0
        for position, token in enumerate(tokens):
            code = zlib.crc32(token.to_bytes(4, "little"), code)
            for index, (spec, table) in enumerate(zip(self.specs, tables, strict=True)):
                for worker in self.workers:
                    for layer in worker.layers[index]:
                        place = worker.caches[layer][table[position // spec.block_size], :, position % spec.block_size]
                        place.fill_(value(code, layer, worker.share))

    def _forward(self, name: str, count: int) -> list[int]:
        """Checks what attention reads, then writes what it computes; the answer is the sampled token, if any."""
        request = self.requests[name]
        tokens = list(request.all_token_ids)
        start = request.num_computed_tokens - count
        self.restored.setdefault(name, start)
        tables = self.scheduler.kv_cache_manager.get_block_ids(name)
        codes = [0]
        for token in tokens:
            codes.append(zlib.crc32(token.to_bytes(4, "little"), codes[-1]))
        for index, (spec, table) in enumerate(zip(self.specs, tables, strict=True)):
            size = spec.block_size
            window = getattr(spec, "sliding_window", None) or len(tokens)
            for worker in self.workers:
                for layer in worker.layers[index]:
                    cache = worker.caches[layer]
                    for position in range(max(0, start - window + 1), start):
                        found = cache[table[position // size], :, position % size]
                        expected = value(codes[position + 1], layer, worker.share)
                        assert bool((found == expected).all()), f"{name}: wrong KV at {position} of {layer}"
                    for position in range(start, start + count):
                        expected = value(codes[position + 1], layer, worker.share)
                        place = cache[table[position // size], :, position % size]
                        if self.drafts is not None and worker.is_last_stage and layer == worker.layers[-1][-1]:
                            self.drafts.append(partial(place.fill_, expected))
                        else:
                            place.fill_(expected)
        return [codes[-1] % 1000] if start + count == len(tokens) else []


def cache_config_of(config: Any, specs: Sequence[Any], blocks: int, stage: int, replicas: int) -> Any:
    """The KV cache of one pipeline stage: two layers for each group."""
    names = [[f"layer{stage}.{2 * group + layer}" for layer in range(2)] for group in range(len(specs))]
    groups = [KVCacheGroupSpec(layers, spec) for layers, spec in zip(names, specs, strict=True)]
    made = KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=groups)
    made.cache_hit_alignment_tokens, made.hash_block_size = resolve_kv_cache_block_sizes(made, config)
    made.kv_tp_replicas = replicas
    return made


def value(code: int, layer: str, share: int) -> float:
    return float(zlib.crc32(f"{layer}/{share}".encode(), code) % 65521)
