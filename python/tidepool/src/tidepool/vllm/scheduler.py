"""The scheduler's side: decides which blocks are loaded and saved, and holds them meanwhile."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

from .. import Pool
from .._native import BlockLookup
from .events import stored_events
from .fingerprint import (
    Fingerprint,
    chain_prefix,
    descriptor,
    fingerprint,
    publish,
    warn_of_random_hashes,
)
from .groups import Group
from .messages import Load, Part, RankLayout, Report, Save, Step
from .metrics import Since, TidepoolStats
from .pins import Pins
from .sessions import Sessions, record_of
from .settings import Settings
from .siblings import Unproven, spoiled
from .tracked import NULL_BLOCK, Tracked

logger = logging.getLogger("vllm.tidepool")  # under vLLM's own, so that its settings apply

#: Seconds after which requests no longer wait for the workers to describe their memory.
_PATIENCE_AT_START = 10.0
#: Seconds after which this engine's ingredients are offered to the pool again: it may have lost or evicted them.
_OFFERED_AGAIN = 60.0
#: The ends of requests whose blocks are worth saving.
_ENDED_WELL = ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")


class SchedulerSide:
    """The connector in the scheduler's process."""

    def __init__(
        self, vllm_config: Any, groups: list[Group], hashed: int, settings: Settings, weights: dict[str, str]
    ) -> None:
        self._config = vllm_config
        self._groups = groups
        self._hashed = hashed
        self._settings = settings
        self._weights = weights
        self._pool: Pool = settings.connect()
        self._pins: Pins | None = None
        self._lookup: BlockLookup | None = None
        self._fingerprint: Fingerprint | None = None
        self._was_reset = False
        self._ranks: dict[int, RankLayout] = {}
        parallel = vllm_config.parallel_config
        self._workers = parallel.world_size
        #: Since when requests wait for the workers to describe their memory.
        self._waiting_since: float | None = None
        self._described = time.monotonic()
        #: By request: tokens that the engine had when it last asked for a prefix, and the number of steps then.
        self._asked: dict[str, tuple[int, int]] = {}
        self._steps = 0
        #: Number of steps after which vLLM has handled the outcome of a step.
        steps_at_once = max(2, getattr(vllm_config, "max_concurrent_batches", 1), parallel.pipeline_parallel_size)
        self._unproven = Unproven(steps_at_once)
        self._requests: dict[str, Tracked] = {}
        self._sessions = Sessions()
        #: Requests whose load failed: they compute, and do not ask again.
        self._failed: set[str] = set()
        self._loads: list[Load] = []
        self._last_saves: list[Save] = []
        self._next_job = 0
        self._events: list[Any] = []
        self._since = Since()
        self._counted = {"fingerprint_mismatches": 0, "saves_delayed": 0, "notes_refused": 0}
        transfer = vllm_config.kv_transfer_config
        self._loads_allowed = transfer.is_kv_consumer
        self._saves_allowed = transfer.is_kv_producer
        events = getattr(vllm_config, "kv_events_config", None)
        self._wants_events = bool(events and events.enable_kv_cache_events)
        speculative = vllm_config.speculative_config
        self._has_windows = any(group.window for group in groups)
        self._lets_go = any(group.reach is not None for group in groups)
        #: A drafter that reads the model's hidden states needs the last block computed, not loaded.
        self._left_over = max(g.block_size for g in groups) if speculative and speculative.use_eagle() else 0

    def refuse_loads(self, why: str) -> None:
        """Loads no blocks from now on, only saves them."""
        if self._loads_allowed:
            logger.warning("nothing is loaded from the pool: %s", why)
        self._loads_allowed = False

    def bind_block_pool(self, block_pool: Any) -> None:
        self._pins = Pins(block_pool, self._workers)

    # What can be loaded

    def matched_tokens(self, request: Any, computed: int) -> tuple[int | None, bool]:
        """The number of tokens after the first ``computed`` that the pool has, or None: ask again."""
        self._asked[request.request_id] = computed, self._steps
        if not self._loads_allowed or request.request_id in self._failed or request.skip_reading_prefix_cache:
            return 0, False
        if self._lookup is None:
            return self._not_begun()
        # With sliding windows, the window of the last token must reach one token further back.
        tokens = request.num_tokens - (1 if self._has_windows else 0)
        found = self._lookup.ask(
            request.block_hashes,
            computed // self._hashed,
            tokens // self._hashed,
            patience=self._settings.lookup_wait,
        )
        if found is None:
            return None, False
        new = found * self._hashed - self._left_over
        return (new, True) if new > 0 else (0, False)

    def _not_begun(self) -> tuple[int | None, bool]:
        """The next step brings the workers' descriptions; without them, requests go on after a while."""
        now = time.monotonic()
        self._waiting_since = self._waiting_since or now
        if now - self._waiting_since < _PATIENCE_AT_START:
            return None, False
        self.refuse_loads(f"only {len(self._ranks)} of {self._workers} workers have described their memory")
        return 0, False

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        """Notes a request's blocks, into which the last ``external`` of its computed tokens must be loaded."""
        local, asked_after = self._asked.get(request.request_id, (0, -1))
        tracked = self._requests.get(request.request_id)
        # vLLM asks for a request's prefix just before it allocates. Another call for the same blocks ends a load.
        if tracked is None or asked_after == self._steps:
            origin = tracked.origin if tracked else self._sessions.origin_of(request)
            tracked = Tracked(request, given_after=self._steps, origin=origin)
            self._requests[request.request_id] = tracked
        tracked.load = None
        if not external:
            return
        block_ids = blocks.get_block_ids()
        tracked.tables = list(block_ids)
        tracked.loaded = range(local // self._hashed, (local + external) // self._hashed)
        places = [(group, self._places(group, block_ids[group.id], tracked.loaded)) for group in self._groups]
        parts = [part for group, where in places for part in self._parts(request, group, block_ids[group.id], where)]
        tracked.load = Load(self._job(), request.request_id, parts, tracked.origin)
        self._loads.append(tracked.load)

    # What is saved

    def build_step(self, output: Any) -> Step:
        """The workers' work in this step."""
        self._steps += 1
        for request_id in output.finished_req_ids:
            self._requests.pop(request_id, None)
            self._asked.pop(request_id, None)
            self._failed.discard(request_id)
        for request_id in output.preempted_req_ids or ():
            tracked = self._requests.get(request_id)
            # The request may have new blocks by now.
            if tracked and tracked.given_after != self._steps - 1:
                self._requests[request_id] = Tracked(tracked.request, origin=tracked.origin)
        loads, self._loads = self._loads, []
        saves, self._last_saves = self._last_saves, []
        computed = _computed_before(output)
        self._note_tables(output)
        self._note_windows(computed)
        self._note_begun(output, computed)
        if self._fingerprint is None:
            return Step(None)
        if self._saves_allowed:
            saves += self._saves(output, computed)
        if saves:
            self._describe_again()
        return Step(self._fingerprint.namespace, loads, saves, computes=bool(output.num_scheduled_tokens))

    def _note_tables(self, output: Any) -> None:
        for new in output.scheduled_new_reqs:
            if tracked := self._requests.get(new.req_id):
                tracked.tables = [list(blocks) for blocks in new.block_ids]
        cached = output.scheduled_cached_reqs
        for request_id, new_blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            tracked = self._requests.get(request_id)
            if tracked is None or new_blocks is None:
                continue
            if request_id in cached.resumed_req_ids or not tracked.tables:
                tracked.tables = [list(blocks) for blocks in new_blocks]
            else:
                for table, blocks in zip(tracked.tables, new_blocks, strict=True):
                    table.extend(blocks)

    def _note_windows(self, computed: dict[str, int]) -> None:
        """Drops blocks behind windows: vLLM reuses them, which older versions do not announce."""
        for request_id, tokens in computed.items() if self._lets_go else ():
            tracked = self._requests.get(request_id)
            if tracked is None or not tracked.tables:
                continue
            for group in self._groups:
                table = tracked.tables[group.id]
                for place in range(group.gone(tracked.passed), min(group.gone(tokens), len(table))):
                    table[place] = NULL_BLOCK
            tracked.passed = max(tracked.passed, tokens)

    def _saves(self, output: Any, computed: dict[str, int]) -> Iterator[Save]:
        state = getattr(output, "kv_connector_block_state", None)
        for request_id, before in computed.items():
            tracked = self._requests.get(request_id)
            if tracked is None or self._steps < tracked.proven_from:
                continue
            done = self._full_blocks(tracked, before + output.num_scheduled_tokens[request_id])
            if done > tracked.offered:
                tables = state.get_block_ids(request_id) if state else tracked.tables
                if save := self._save(tracked, tables, done):
                    yield save

    def _note_begun(self, output: Any, computed: dict[str, int]) -> None:
        """Notes requests that begin with blocks that another connector fills within this step, or share such blocks."""
        resumed = output.scheduled_cached_reqs.resumed_req_ids
        names = [*resumed, *(new.req_id for new in output.scheduled_new_reqs)]
        known = [(tracked, computed[name]) for name in names if (tracked := self._requests.get(name))]
        self._unproven.note(self._steps, [(t, self._is_filled_in_this_step(t, before)) for t, before in known])

    def _is_filled_in_this_step(self, tracked: Tracked, before: int) -> bool:
        """Whether a request begins with tokens that the engine did not have when it allocated blocks for this step.

        A load that a request waited for has ended: its blocks were allocated earlier.
        """
        local, _ = self._asked.get(tracked.request.request_id, (before, 0))
        return before > local and tracked.given_after == self._steps - 1

    def take_invalid(self, invalid: set[int]) -> None:
        """Takes blocks that could not be loaded, and that requests must compute anew.

        No request has read the blocks of this connector's own loads. Blocks computed from another connector's are as
        wrong; vLLM would leave them in its cache until they are computed, so they are taken out.
        """
        loads = [tracked.load for tracked in self._requests.values() if tracked.load]
        invalid = invalid.difference(*(part.block_ids() for load in loads for part in load.parts))
        if not invalid:
            return
        wrong = spoiled(invalid, [*self._requests.values(), *self._unproven.requests()])
        for tracked in self._requests.values():
            first = tracked.first_of(invalid)
            tokens = (first or 0) * self._groups[0].block_size
            if first is not None and tracked.request.num_computed_tokens <= tokens:
                tracked.offered = min(tracked.offered, tokens // self._hashed)
            elif tracked.first_of(wrong) is not None:
                tracked.tainted = True
        if self._pins:
            self._pins.forget(wrong)

    def _full_blocks(self, tracked: Tracked, tokens: int) -> int:
        """Number of hashed blocks that are full once ``tokens`` are computed; tokens not sampled yet have no hash."""
        return min(tokens // self._hashed, len(tracked.request.block_hashes))

    def _save(self, tracked: Tracked, tables: Sequence[list[int]], done: int, *, is_last: bool = False) -> Save | None:
        """A save of those of the first ``done`` hashed blocks that were not offered yet."""
        if self._pins is None or done <= tracked.offered or tracked.tainted:
            return None
        if not self._pins.has_room(is_last=is_last):
            self._counted["saves_delayed"] += 1
            return None
        wanted = _without(range(tracked.offered, done), tracked.loaded)
        tracked.offered = done
        parts: list[Part] = []
        events: list[Any] = []
        for group in self._groups:
            if where := self._places(group, tables[group.id], wanted):
                parts += self._parts(tracked.request, group, tables[group.id], where)
                events += stored_events(tracked.request, group, where) if self._wants_events else []
        if not parts:
            return None
        job = self._job()
        self._pins.hold(job, (block for part in parts for block in part.block_ids()), events)
        return Save(job, parts, tracked.origin)

    def _places(self, group: Group, table: list[int], hashed: Sequence[int]) -> Sequence[int]:
        """The blocks of the group that end with one of these hashed blocks, without those that vLLM does not keep."""
        if group.step == 1 and isinstance(hashed, range):
            # The common case, with thousands of blocks that a request waits for, does no work for each of them.
            run = range(hashed.start, min(hashed.stop, len(table)))
            if NULL_BLOCK not in table[run.start : run.stop]:
                return run
        ends = (index // group.step for index in hashed if (index + 1) % group.step == 0)
        return [place for place in ends if place < len(table) and table[place] != NULL_BLOCK]

    def _parts(self, request: Any, group: Group, table: list[int], places: Sequence[int]) -> Iterator[Part]:
        for run in _runs(places):
            blocks = slice(run.start, run.stop)
            hashes = request.block_hashes[(run.start + 1) * group.step - 1 : run.stop * group.step : group.step]
            yield Part.pack(group.id, hashes, table[blocks], run.start)

    # How requests end

    def finished(self, request: Any, block_ids: tuple[list[int], ...]) -> None:
        """Saves the blocks that became full since an ended request's last step, while it still has them."""
        tracked = self._requests.get(request.request_id)
        if tracked is None or self._fingerprint is None or tracked.load:
            return
        done = self._full_blocks(tracked, request.num_computed_tokens)
        if self._saves_allowed and request.status.name in _ENDED_WELL:
            save = self._save(tracked, block_ids, done, is_last=True)
            self._last_saves += [save] if save else []
        self._note_session(request, done)

    def _note_session(self, request: Any, blocks: int) -> None:
        if self._lookup is None or self._fingerprint is None:
            return
        try:
            record = record_of(request, blocks, self._fingerprint.namespace)
            if record:
                self._lookup.note(*record)
        # A bad record of a request must not stop the engine.
        except (ValueError, TypeError, RecursionError) as error:
            self._counted["notes_refused"] += 1
            logger.warning("request %s: its session record was not stored: %s", request.request_id, error)

    # What workers report

    def take_report(self, report: Report) -> None:
        """Takes the reports of the workers of one step."""
        self._ranks.update(report.ranks)
        if self._fingerprint is None and len(self._ranks) >= self._workers:
            self._begin()
        if self._pins:
            self._events += self._pins.release(report.saved, report.incomplete)
        if self._lookup and report.saved:
            self._lookup.have_stored()
        for request_id in report.failed:
            if tracked := self._requests.get(request_id):
                self._failed.add(request_id)
                # The blocks computed now are worth saving.
                tracked.loaded = range(0)

    def _begin(self) -> None:
        """Begins to use the pool: all workers have described their memory, so that keys are known."""
        warn_of_random_hashes(self._config.cache_config.prefix_caching_hash_algo)
        made = fingerprint(self._config, self._groups, self._ranks, self._weights)
        self._name_blocks(made.apart() if self._was_reset else made)
        if not self._was_reset:
            threading.Thread(target=self._compare, name="tidepool-compare", daemon=True).start()

    def _name_blocks(self, name: Fingerprint) -> None:
        """Looks blocks up, loads and saves them under this name from here on."""
        chains = {
            (chain_prefix(name.namespace, group.id, rank.labels[group.id]), group.step, group.window)
            for rank in self._ranks.values()
            for group in self._groups
            if rank.layouts[group.id] is not None
        }
        before, self._fingerprint = self._lookup, name
        self._lookup = BlockLookup(self._pool, sorted(chains), deadline=self._settings.lookup_deadline)
        if before:
            self._counted = _added(self._counted, before.stats())
            before.close()
        logger.info("KV blocks of this engine are in the pool under %s: %s", name.namespace, name.ingredients)

    def reset(self) -> None:
        """Forgets all caches: the weights may change here, and vLLM does not say to which."""
        if self._settings.after_reset == "keep":
            return
        self._was_reset = True
        # Saves from before the reset that no worker has yet.
        forgotten, self._last_saves = self._last_saves, []
        if self._pins:
            self._pins.release({save.job: self._workers for save in forgotten}, {save.job for save in forgotten})
        if self._fingerprint is not None:
            self._name_blocks(self._fingerprint.apart())
            logger.warning(
                "vLLM has reset all caches, as it does before it changes weights and before it sleeps: this engine "
                'shares no blocks with others from here on; set after_reset to "keep" where weights never change'
            )

    def _compare(self) -> None:
        assert self._fingerprint is not None
        differences = publish(self._pool, self._config.model_config.model, self._fingerprint)
        if differences:
            self._counted["fingerprint_mismatches"] += 1
            logger.warning(
                "another engine of a model named like this one keeps KV blocks in the pool that this engine cannot "
                "use, because they differ: %s",
                "; ".join(differences),
            )

    def _describe_again(self) -> None:
        assert self._lookup is not None
        assert self._fingerprint is not None
        if not self._was_reset and time.monotonic() - self._described > _OFFERED_AGAIN:
            self._described = time.monotonic()
            self._lookup.note(*descriptor(self._config.model_config.model, self._fingerprint))

    def take_events(self) -> list[Any]:
        events, self._events = self._events, []
        return events

    def stats(self) -> TidepoolStats | None:
        return self._since.take(_added(self._counted, self._lookup.stats() if self._lookup else {}))

    def is_saving(self) -> bool:
        return self._pins is not None and not self._pins.is_empty()

    def gives_back_soon(self) -> bool:
        """Whether a request without a free block should wait for one that is being saved."""
        return self._pins is not None and self._pins.give_back_soon()

    def close(self) -> None:
        if self._pins:
            self._pins.release_all()
        if self._lookup:
            self._lookup.close()
        self._pool.close()

    def _job(self) -> int:
        self._next_job += 1
        return self._next_job


def _computed_before(output: Any) -> dict[str, int]:
    """The computed tokens of a step's requests, by request."""
    computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    cached = output.scheduled_cached_reqs
    return computed | dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))


def _runs(places: Sequence[int]) -> Iterator[range]:
    """Ascending places, as runs without gaps."""
    if isinstance(places, range):
        if places:
            yield places
        return
    start = 0
    for end in range(1, len(places) + 1):
        if end == len(places) or places[end] != places[end - 1] + 1:
            yield range(places[start], places[end - 1] + 1)
            start = end


def _without(indexes: range, loaded: range) -> Sequence[int]:
    """The indexes that are not among those loaded."""
    before = range(indexes.start, min(indexes.stop, loaded.start))
    after = range(max(indexes.start, loaded.stop), indexes.stop)
    return [*before, *after] if before and after else before or after


def _added(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}
