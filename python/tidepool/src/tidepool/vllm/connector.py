"""vLLM's interface, versions 0.32 and 0.26: passes every call on to the side that this connector is for."""

import contextlib
import logging
from collections.abc import Iterable
from typing import Any

import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import base
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorRole, SupportsHMA
from vllm.v1 import kv_cache_interface

from .groups import groups_of, tells_failed_blocks
from .messages import Report, Step
from .metrics import TidepoolPromMetrics, TidepoolStats
from .scheduler import SchedulerSide
from .settings import Settings
from .weights import drafts_identity, weights_identity
from .worker import WorkerSide

logger = logging.getLogger("vllm.tidepool")  # under vLLM's own, so that its settings apply

#: Since 0.28 or so; before, only failed blocks can be reported.
TransferResults = getattr(base, "KVConnectorTransferResults", None)


class TidepoolConnector(KVConnectorBase_V1, SupportsHMA):
    """Saves and loads KV blocks in a Tidepool pool."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        settings = Settings.read(vllm_config.kv_transfer_config.kv_connector_extra_config)
        # vLLM's own default fails a request whose load failed. It reads this after the connector is made.
        vllm_config.kv_transfer_config.kv_load_failure_policy = settings.load_failure_policy
        groups, hashed = groups_of(vllm_config, kv_cache_config)
        self._scheduler: SchedulerSide | None = None
        self._worker: WorkerSide | None = None
        if role == KVConnectorRole.WORKER:
            self._worker = WorkerSide(vllm_config, kv_cache_config, groups, settings)
            return
        how = {"check": settings.weights_check, "name": settings.weights_id}
        weights = {
            "weights": weights_identity(vllm_config.model_config, vllm_config.load_config, **how),
            "weights of the draft model": drafts_identity(vllm_config, **how),
        }
        self._scheduler = SchedulerSide(vllm_config, groups, hashed, settings, weights)
        if TransferResults is None and not tells_failed_blocks(kv_cache_config, groups):
            self._scheduler.refuse_loads(
                "this vLLM cannot be told of a failed load of a model with several KV groups, or with windows"
            )

    @property
    def prefer_cross_layer_blocks(self) -> bool:
        """Large pieces are copied faster, so the layers of a block should lie together on a GPU."""
        return True

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> str | None:
        """The same wish for later versions: blocks outside of layers. vLLM ignores a layout that no kernel has.

        Every kernel that takes blocks outside of layers takes heads before tokens; not all take the other order.
        """
        is_gpu = vllm_config.device_config.device_type == "cuda"
        return "BLHNC" if is_gpu and hasattr(kv_cache_interface, "KVCacheLayout") else None

    @property
    def requires_kv_delivery(self) -> bool:
        """Not required: a lost save is a later miss."""
        return False

    # The scheduler's side

    @property
    def _plans(self) -> SchedulerSide:
        assert self._scheduler is not None
        return self._scheduler

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        self._plans.bind_block_pool(gpu_block_pool)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self._plans.matched_tokens(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._plans.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> Step:
        return self._plans.build_step(scheduler_output)

    def update_connector_output(self, connector_output: Any) -> None:
        if connector_output.invalid_block_ids:
            self._plans.take_invalid(connector_output.invalid_block_ids)
        report = connector_output.kv_connector_worker_meta
        if isinstance(report, Report):
            self._plans.take_report(report)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, dict[str, Any] | None]:
        self._plans.finished(request, block_ids)
        # Blocks that are being saved are held one by one, so the request's own hold may end.
        return False, None

    def take_events(self) -> Iterable[Any]:
        return self._plans.take_events()

    def has_pending_block_frees(self) -> bool:
        return self._plans.gives_back_soon()

    def has_pending_push_work(self) -> bool:
        return self._plans.is_saving()

    # A worker's side

    @property
    def _moves(self) -> WorkerSide:
        assert self._worker is not None
        return self._worker

    @property
    def _step(self) -> Step:
        step = self._get_connector_metadata()
        assert isinstance(step, Step)
        return step

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        self._moves.register(kv_caches)

    def register_cross_layers_kv_cache(self, kv_cache: torch.Tensor, attn_backend: Any) -> None:
        self._moves.register_together(kv_cache)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        self._moves.begin_loads(self._step)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Does nothing: a request is scheduled after its load."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Does nothing: blocks are saved whole, after the step."""

    def wait_for_save(self) -> None:
        self._moves.begin_saves(self._step)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        # vLLM does not wait for saves in a step without computation, but such a step saves an ended request's blocks.
        self._moves.begin_idle_saves(self._step)
        return None, self._moves.take_received() or None

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        assert TransferResults is not None
        self._moves.begin_idle_saves(self._step)
        received = self._moves.take_received()
        return TransferResults(finished_recving=received, failed_recving=self._moves.take_failed_requests())

    def get_block_ids_with_load_errors(self) -> set[int]:
        return self._moves.take_failed_blocks()

    def build_connector_worker_meta(self) -> Report | None:
        return self._moves.take_report()

    # Both sides

    def get_kv_connector_stats(self) -> TidepoolStats | None:
        return (self._scheduler or self._moves).stats()

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> TidepoolStats:
        return TidepoolStats(data or {})

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: Any
    ) -> TidepoolPromMetrics:
        return TidepoolPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def reset_cache(self) -> bool | None:
        """Forgets all caches, as before other weights: this engine's blocks get another name from here on."""
        if self._scheduler is not None:
            self._scheduler.reset()
        return True

    def shutdown(self) -> None:
        (self._scheduler or self._moves).close()


# Inside a MultiConnector, vLLM finds a child's class by its name alone when it logs the child's numbers.
with contextlib.suppress(ValueError):
    KVConnectorFactory.register_connector("TidepoolConnector", "tidepool.vllm", "TidepoolConnector")
