"""KV events: tell routers which blocks are in the pool."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from vllm.distributed.kv_events import BlockStored
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

from .groups import Group

#: The pool's name in events.
MEDIUM = "tidepool"


def stored_events(request: Any, group: Group, places: Sequence[int]) -> list[Any]:
    """One event for each run of neighbouring blocks, to be published once the pool has them."""
    runs = groupby(enumerate(places), key=lambda numbered: numbered[1] - numbered[0])
    return [_event(request, group, [place for _, place in run]) for _, run in runs]


def _event(request: Any, group: Group, run: list[int]) -> Any:
    def name(place: int) -> Any:
        return maybe_convert_block_hash(request.block_hashes[(place + 1) * group.step - 1])

    lora = request.lora_request
    return BlockStored(
        block_hashes=[name(place) for place in run],
        parent_block_hash=name(run[0] - 1) if run[0] else None,
        token_ids=list(request.all_token_ids[run[0] * group.block_size : (run[-1] + 1) * group.block_size]),
        block_size=group.block_size,
        lora_id=lora.adapter_id if lora else None,
        medium=MEDIUM,
        lora_name=lora.name if lora else None,
        group_idx=group.id,
    )
