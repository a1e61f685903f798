"""A worker's side: gives jobs to the threads that move blocks, and reports those that have ended."""

import logging
import weakref
from typing import Any

import torch

from .. import InvalidError, Pool
from .._native import BlockTransfers
from .fingerprint import chain_prefix
from .groups import Group, tells_failed_blocks
from .layout import Places, lay_out, lay_out_together
from .messages import Load, Part, RankLayout, Report, Step
from .metrics import Since, TidepoolStats
from .settings import Settings

logger = logging.getLogger("vllm.tidepool")  # under vLLM's own, so that its settings apply

PackedPart = tuple[int, str, int, bytes, bytes, int]


class WorkerSide:
    """The connector in a worker's process."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, groups: list[Group], settings: Settings) -> None:
        self._kv_cache_config = kv_cache_config
        self._moved = [group.id for group in groups]
        self._settings = settings
        parallel = vllm_config.parallel_config
        self._rank = parallel.rank % parallel.world_size
        self._replicas = _replicas(vllm_config, kv_cache_config)
        tensor_rank = self._rank % parallel.tensor_parallel_size
        pipeline_rank = self._rank // parallel.tensor_parallel_size
        self._label = f"p{pipeline_rank}t{tensor_rank // self._replicas}"
        #: Ranks with the same bytes each save every n-th block.
        self._stripe = (tensor_rank % self._replicas, self._replicas)
        self._tells_blocks = tells_failed_blocks(kv_cache_config, groups)
        self._pool: Pool = settings.connect()
        self._transfers: BlockTransfers | None = None
        self._device: int | None = None
        #: The step under way, and the last one whose saves were begun.
        self._step: Step | None = None
        self._saved: Step | None = None
        self._layouts: list[str | None] = []
        self._namespace: str | None = None
        #: Jobs under way.
        self._loading: dict[int, Load] = {}
        self._saving: set[int] = set()
        #: Requests whose loads have ended, with or without success.
        self._received: set[str] = set()
        self._report = Report()
        self._failed_blocks: set[int] = set()
        self._failed_requests: set[str] = set()
        self._since = Since()

    def register(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Learns where the KV cache lies."""
        self._begin(lay_out(self._kv_cache_config, kv_caches, self._moved))

    def register_together(self, kv_cache: torch.Tensor) -> None:
        """As :meth:`register`, for a cache that keeps the layers of a block together."""
        self._begin(lay_out_together(self._kv_cache_config, kv_cache))

    def _begin(self, places: Places) -> None:
        settings = self._settings
        if self._transfers:
            if places.descriptions != self._layouts:
                # The blocks' keys depend on the layout, and the scheduler's side never changes them.
                raise InvalidError("the KV cache was registered anew in another layout: allowed is the first one")
            # Registered anew: no thread may use the old cache.
            self._transfers.close()
            self._give_up()
            # The new threads count from zero.
            self._since = Since()
        self._layouts = places.descriptions
        self._device = places.device
        self._transfers = BlockTransfers(
            self._pool,
            places.pieces,
            self._kv_cache_config.num_blocks,
            places.memory,
            load_threads=settings.load_threads,
            save_threads=settings.save_threads,
            load_deadline=settings.load_deadline,
            save_deadline=settings.save_deadline,
            replicas=settings.replicas,
            replica_rate=settings.replica_rate << 20,
            device=places.device,
        )
        # For an engine that is never shut down: its memory must outlive the threads that move it.
        weakref.finalize(self, self._transfers.close)

    def _give_up(self) -> None:
        """Ends all jobs as failed: the blocks that they moved are not in the present cache."""
        for job, load in list(self._loading.items()):
            self._end_load(job, [(part.group, block) for part in load.parts for block in part.block_ids()])
        for job in list(self._saving):
            self._end_save(job, complete=False)
        if self._step is not None and self._step is not self._saved:
            # Saves of the old cache that have not begun.
            self._saved = self._step
            for save in self._step.saves:
                self._end_save(save.job, complete=False)

    def begin_loads(self, step: Step) -> None:
        """Starts the loads that requests wait for."""
        if self._step is not None:
            # With a draft model, vLLM does not tell the first pipeline stages when a step is over. It is now.
            self.begin_saves(self._step)
        self._step = step
        self._namespace = step.namespace
        for load in step.loads:
            self._loading[load.job] = load
            self._moves.load(load.job, self._packed(load.parts), origin=load.origin, after=self._stream())

    def begin_saves(self, step: Step) -> None:
        """Starts the saves of a step's computed blocks, once for each step."""
        if step is self._saved:
            return
        self._saved = step
        for save in step.saves:
            self._saving.add(save.job)
            self._moves.save(
                save.job, self._packed(save.parts), stripe=self._stripe, origin=save.origin, after=self._stream()
            )

    def begin_idle_saves(self, step: Step) -> None:
        """As :meth:`begin_saves`, for a step that computes no tokens, whose end vLLM may not announce.

        In a step that computes, a draft model may still follow and write to the same blocks.
        """
        if not step.computes:
            self.begin_saves(step)

    def _stream(self) -> int | None:
        """The stream whose work so far uses the blocks of a job that begins now."""
        return None if self._device is None else torch.cuda.current_stream(self._device).cuda_stream

    def take_received(self) -> set[str]:
        """Requests whose loads have ended since the last call, with or without success."""
        for warning in BlockTransfers.warnings():
            logger.warning("%s", warning)
        for job, is_load, failed in self._moves.poll() if self._transfers else ():
            if is_load:
                self._end_load(job, failed)
            else:
                self._end_save(job, complete=not failed)
        received, self._received = self._received, set()
        return received

    def _end_load(self, job: int, failed: list[tuple[int, int]]) -> None:
        request = self._loading.pop(job).request
        self._received.add(request)
        if failed:
            self._note_failure(request, failed)

    def _end_save(self, job: int, *, complete: bool) -> None:
        self._saving.discard(job)
        self._report.saved[job] = self._report.saved.get(job, 0) + 1
        if not complete:
            self._report.incomplete.add(job)

    def _note_failure(self, request: str, failed: list[tuple[int, int]]) -> None:
        logger.warning("%d blocks of request %s were not loaded, and will be computed", len(failed), request)
        self._report.failed.add(request)
        if self._tells_blocks:
            self._failed_blocks.update(block for _, block in failed)
        else:
            self._failed_requests.add(request)

    def take_failed_blocks(self) -> set[int]:
        failed, self._failed_blocks = self._failed_blocks, set()
        return failed

    def take_failed_requests(self) -> set[str]:
        failed, self._failed_requests = self._failed_requests, set()
        return failed

    def take_report(self) -> Report | None:
        """The report on this step for the scheduler's side, if there is any."""
        report, self._report = self._report, Report()
        if self._namespace is None and self._layouts:
            labels = [self._label] * len(self._layouts)
            report.ranks[self._rank] = RankLayout(labels, self._layouts)
        return report if report != Report() else None

    def stats(self) -> TidepoolStats | None:
        return self._since.take(self._moves.stats()) if self._transfers else None

    def close(self) -> None:
        """Releases the KV cache: no thread uses it when this returns."""
        if self._transfers:
            self._transfers.close()
            self._transfers = None
        self._pool.close()

    @property
    def _moves(self) -> BlockTransfers:
        assert self._transfers is not None, "the KV cache was not registered"
        return self._transfers

    def _packed(self, parts: list[Part]) -> list[PackedPart]:
        assert self._namespace is not None
        prefixes = {part.group: chain_prefix(self._namespace, part.group, self._label) for part in parts}
        return [
            (part.group, prefixes[part.group], part.width, part.hashes, part.blocks, part.depth)
            for part in parts
            if self._layouts[part.group] is not None
        ]


def _replicas(vllm_config: Any, kv_cache_config: Any) -> int:
    """Number of neighbouring tensor-parallel ranks that hold the same bytes."""
    known = getattr(kv_cache_config, "kv_tp_replicas", None)
    if known is not None:
        return int(known)
    return int(vllm_config.parallel_config.tensor_parallel_size) if vllm_config.model_config.use_mla else 1
