"""The connector beside another one, which loads blocks too and may fail to.

In a MultiConnector the first child that has a prefix loads it, and all children save. What a sibling could not load,
and what was computed from that, must not be saved: other engines would restore what no model has computed.
``siblings.py MODEL``.
"""

import sys
import unittest
from typing import Any

import units
from simulated import TELLS_FAILED_REQUESTS, Simulated, full, sliding
from tidepool.vllm.siblings import Unproven, spoiled
from tidepool.vllm.tracked import Tracked
from units import BLOCK, WithPool, prompt
from vllm.v1.outputs import ModelRunnerOutput


class Sibling:
    """Has another connector promise the first ``tokens`` of the request ``name``: it stands between vLLM and ours."""

    def __init__(self, engine: Simulated, name: str, tokens: int, *, waits: bool = False) -> None:
        self.engine, self.name = engine, name
        self.blocks: list[list[int]] = []
        connector = engine.connector
        ask, allocate = connector.get_num_new_matched_tokens, connector.update_state_after_alloc

        def ask_both(request: Any, computed: int) -> tuple[int | None, bool]:
            found: tuple[int | None, bool] = ask(request, computed)
            return (tokens - computed, waits) if request.request_id == name and computed < tokens else found

        def allocate_both(request: Any, blocks: Any, external: int) -> None:
            if request.request_id == name and external:
                self.blocks = [list(table) for table in blocks.get_block_ids()]
                external = 0
            allocate(request, blocks, external)

        connector.get_num_new_matched_tokens, connector.update_state_after_alloc = ask_both, allocate_both
        self.tokens = tokens

    def fail(self) -> None:
        """It says in this step that it could not load; the model goes on with whatever is there."""
        worker = self.engine.workers[0].connector
        worker.get_block_ids_with_load_errors = lambda: set(self.blocks[0][: self.tokens // BLOCK])
        forward = self.engine._forward

        def compute(name: str, count: int) -> list[int]:
            try:
                return forward(name, count)
            except AssertionError:
                request = self.engine.requests[name]
                return [1] if request.num_computed_tokens == request.num_tokens else []

        self.engine._forward = compute  # type: ignore[method-assign]

    def leave(self) -> None:
        """From here on there is no sibling."""
        connector, worker = self.engine.connector, self.engine.workers[0].connector
        del connector.get_num_new_matched_tokens, connector.update_state_after_alloc
        if "get_block_ids_with_load_errors" in vars(worker):
            del worker.get_block_ids_with_load_errors


class Siblings(WithPool):
    def begun(self, **options: Any) -> Simulated:
        """An engine that knows what its blocks are called."""
        engine = self.engine(**options)
        engine.add("begins", prompt(900, 20))
        engine.run()
        return engine

    def check_pool(self, tokens: list[int], **options: Any) -> int:
        """Another engine checks every byte that it restores; how many tokens those were."""
        other = self.engine(**options)
        other.add("again", tokens)
        other.run()
        self.check_nothing_held(other)
        return other.restored["again"]

    def test_what_a_sibling_failed_to_load_is_saved_once_it_is_computed(self) -> None:
        """It was saved in the step in which it was to come, and what was computed from it."""
        tokens = prompt(62, 300)
        engine = self.begun()
        sibling = Sibling(engine, "poisoned", 64)
        sibling.fail()
        request = engine.add("poisoned", tokens)
        self.assertEqual(engine.step().num_scheduled_tokens, {"poisoned": 300 - 64})
        sibling.leave()
        engine.run()
        self.check_nothing_held(engine)
        other = self.engine()
        again = other.add("again", tokens)
        other.run()
        self.assertEqual(other.restored["again"], 300 // BLOCK * BLOCK)
        self.assertEqual(list(again.output_token_ids), list(request.output_token_ids))

    def test_what_an_aborted_request_was_to_be_loaded_is_not_found_by_the_next(self) -> None:
        tokens = prompt(70, 300)
        engine = self.begun()
        sibling = Sibling(engine, "first", 64)
        sibling.fail()
        engine.add("first", tokens)
        engine.step()
        sibling.leave()
        engine.abort("first")
        engine.run()
        engine.add("second", tokens)
        engine.run()
        self.assertEqual(engine.restored["second"], 0)
        self.assertEqual(self.check_pool(tokens), 288)

    def test_what_a_request_had_that_is_gone_when_its_failure_is_heard_is_not_found_by_the_next(self) -> None:
        """Where steps overlap it may be aborted or preempted before: nobody looked at its blocks any more."""
        tokens = prompt(75, 300)
        engine = self.begun(batch=512)
        sibling = Sibling(engine, "first", 64)
        sibling.fail()
        engine.add("first", tokens)
        first = self.scheduled(engine)
        sibling.leave()
        engine.abort("first")
        engine.add("other", prompt(76, 20))
        second = self.scheduled(engine)
        self.reported(engine, first)
        self.reported(engine, second)
        engine.add("second", tokens)
        engine.run()
        self.assertEqual(engine.restored["second"], 0)
        self.assertEqual(self.check_pool(tokens), 288)

    def test_a_request_that_starts_over_after_a_failed_load_is_judged_anew(self) -> None:
        """It was taken for the one that had waited for its load, and a sibling's blocks for right ones."""
        tokens = prompt(78, 300)
        self.computed(tokens)
        engine = self.begun()
        side, worker = engine.connector._scheduler, engine.workers[0].connector._worker
        begin = worker.begin_loads

        def empty_first(step: Any) -> None:
            if step.loads:
                self.pool.remove_all()
            begin(step)

        worker.begin_loads = empty_first
        engine.add("again", tokens)
        engine.step_until("a load fails", lambda: side._failed)
        sibling = Sibling(engine, "again", 64)
        sibling.fail()
        output = engine.step()
        self.assertEqual(output.num_scheduled_tokens, {"again": 300 - 64})
        self.assertEqual(output.kv_connector_metadata.saves, [])
        sibling.leave()
        engine.run()
        self.assertEqual(self.check_pool(tokens), 288)

    def test_what_is_computed_from_a_failed_load_is_followed_over_windows(self) -> None:
        a, b, c, other = (Tracked(None, [table]) for table in ([1, 2, 3], [0, 0, 3, 4], [0, 0, 0, 4, 5], [0, 6]))
        self.assertEqual(spoiled({1}, [c, other, b, a]), {1, 2, 3, 4, 5})
        unproven = Unproven(2)
        unproven.note(1, [(a, True), (other, False)])
        unproven.note(2, [(b, False)])
        unproven.note(2, [(c, False)])
        self.assertEqual([request.proven_from for request in (a, b, c, other)], [3, 3, 3, 0])
        unproven.note(3, [(late := Tracked(None, [[0, 5]]), False)])
        self.assertEqual((late.proven_from, list(unproven.requests())), (0, []))

    def test_a_load_of_the_connectors_own_that_fails_takes_nothing_out_of_the_cache(self) -> None:
        """Whoever had once had its blocks, long before, lost its saves."""
        tokens = prompt(79, 300)
        self.computed(tokens)
        engine = self.begun(blocks=256)
        engine.add("runs", prompt(80, 100), generate=200)
        engine.step_until("it runs", lambda: "runs" in engine.restored)
        side, worker = engine.connector._scheduler, engine.workers[0].connector._worker
        begin = worker.begin_loads

        def empty_first(step: Any) -> None:
            for load in step.loads:
                self.pool.remove_all()
                # As where windows slide: they were its own before.
                side._requests["runs"].tables[0][:0] = list(load.parts[0].block_ids())
            begin(step)

        worker.begin_loads = empty_first
        engine.add("again", tokens)
        engine.step_until("a load fails", lambda: side._failed)
        self.assertFalse(side._requests["runs"].tainted)
        engine.abort("runs")
        engine.run()

    def test_blocks_that_are_computed_anew_in_parts_are_not_saved_by_another_request(self) -> None:
        tokens = prompt(71, 600)
        engine = self.begun(long_prefill_token_threshold=64, blocks=256)
        sibling = Sibling(engine, "first", 256)
        sibling.fail()
        engine.add("first", tokens)
        engine.step()
        sibling.leave()
        engine.add("second", tokens)
        engine.run()
        self.assertEqual(self.check_pool(tokens, blocks=256), 592)

    def test_a_new_request_is_judged_after_a_resumed_one_whose_blocks_it_shares(self) -> None:
        tokens = prompt(72, 300)
        engine = self.begun(batch=1024, blocks=256)
        side = engine.connector._scheduler
        side._saves_allowed = False  # as if the pool had lost these since
        engine.add("first", tokens, generate=30)
        engine.step_until("it generates", lambda: len(engine.requests["first"].output_token_ids) >= 3)
        side._saves_allowed = True
        self.assertTrue(engine.scheduler.reset_prefix_cache(reset_running_requests=True))
        for cache in engine.workers[0].caches.values():
            cache.fill_(-3)
        sibling = Sibling(engine, "first", 64)
        sibling.fail()
        engine.add("second", tokens)
        output = engine.step()
        sibling.leave()
        self.assertEqual(set(output.num_scheduled_tokens), {"first", "second"})
        self.assertEqual(output.kv_connector_metadata.saves, [])
        engine.run()
        self.assertEqual(self.check_pool(tokens, blocks=256), 288)

    def test_requests_that_begin_before_blocks_have_names_are_judged_too(self) -> None:
        tokens = prompt(73, 500)
        engine = self.engine(role="kv_producer", batch=128, blocks=256)
        engine.add("begins", prompt(74, 20))
        first = self.scheduled(engine)
        sibling = Sibling(engine, "loads", 64)
        sibling.fail()
        engine.add("loads", tokens)
        second = self.scheduled(engine)
        sibling.leave()
        self.reported(engine, first)
        third = self.scheduled(engine)
        self.assertGreater(
            engine.connector._scheduler._requests["loads"].proven_from, engine.connector._scheduler._steps
        )
        self.reported(engine, second)
        self.reported(engine, third)
        engine.run()
        self.check_pool(tokens, blocks=256)

    def test_what_a_sibling_has_loaded_before_a_request_begins_is_saved_at_once(self) -> None:
        """It was put off by two steps, in which models with windows let go of most of it."""
        # Where nothing with windows is loaded, nothing shows what was saved of one.
        for specs in ([full()], *([[sliding(40)]] if TELLS_FAILED_REQUESTS else [])):
            with self.subTest(type(specs[0]).__name__):
                tokens = prompt(77 + len(str(specs)), 300)
                engine = self.begun(specs=specs, blocks=256)
                sibling = Sibling(engine, "waits", 160, waits=True)
                self.fill_when_allocated(engine, sibling, tokens)
                engine.add("waits", tokens, generate=40)
                engine.run()
                self.assertEqual(engine.restored["waits"], 160)
                self.assertEqual(self.check_pool(tokens, specs=specs, blocks=256), 288)

    def fill_when_allocated(self, engine: Simulated, sibling: Sibling, tokens: list[int]) -> None:
        """The sibling's worker brings the right bytes, and says so in the step after."""
        worker = engine.workers[0].connector
        name = "get_transfer_results" if TELLS_FAILED_REQUESTS else "get_finished"
        take = getattr(worker, name)

        def take_both(finished: set[str]) -> Any:
            taken = take(finished)
            if sibling.blocks:
                engine.fill(sibling.blocks, tokens[: sibling.tokens])
                sibling.blocks = []
                if TELLS_FAILED_REQUESTS:
                    taken.finished_recving.add(sibling.name)
                    return taken
                return taken[0], {*(taken[1] or ()), sibling.name}
            return taken

        setattr(worker, name, take_both)

    def scheduled(self, engine: Simulated) -> tuple[Any, list[Any]]:
        """A step that runs while the outcome of the one before is not known."""
        output = engine.scheduler.schedule()
        names = list(output.num_scheduled_tokens)
        sampled = [engine._forward(name, output.num_scheduled_tokens[name]) for name in names]
        ran = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=sampled,
            kv_connector_output=engine.workers[0].after_forward(output, None),
        )
        return output, [ran]

    def reported(self, engine: Simulated, step: tuple[Any, list[Any]]) -> None:
        engine.scheduler.update_from_output(step[0], engine.aggregator.aggregate(step[1]))


if __name__ == "__main__":
    units.MODEL = sys.argv.pop(1)
    unittest.main(verbosity=2)
