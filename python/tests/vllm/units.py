"""Promises of the connector that need vLLM's classes, but no vLLM: run by the Python of vLLM's environment.

``units.py MODEL``, a folder with a small model.
"""

import dataclasses
import json
import random
import shutil
import sys
import tempfile
import time
import unittest
import weakref
from itertools import count
from typing import Any, ClassVar

import torch
from simulated import TELLS_FAILED_REQUESTS, Simulated, full, sliding
from tidepool.errors import InvalidError, UnreachableError
from tidepool.vllm.settings import Settings
from waiting import eventually

import tidepool

MODEL = ""
BLOCK = 16
#: What is loaded only where vLLM can be told of a request whose load failed.
WITH_WINDOWS: dict[str, Any] = {
    "windows only": {"specs": [sliding(40)]},
    "a sliding window": {"specs": [full(), sliding(40)]},
    "a window with other blocks": {"specs": [full(), sliding(70, 32)]},
}


def prompt(seed: int, length: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(1000) for _ in range(length)]


class WithPool(unittest.TestCase):
    """A pool in this process, and engines on it."""

    #: What the node is told besides its name.
    node_settings: ClassVar[dict[str, Any]] = {"capacity": 64 << 20}

    def setUp(self) -> None:
        self.dir = tempfile.mkdtemp(dir="/dev/shm")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        self.catalog = tidepool.Catalog("127.0.0.1:0")
        self.addCleanup(self.catalog.close)
        self.node = tidepool.Node("n", catalogs=[self.catalog.address], dir=self.dir, **self.node_settings)
        self.addCleanup(self.node.close)
        self.pool = tidepool.Pool.connect([self.catalog.address], dir=self.dir)
        self.addCleanup(self.pool.close)

    def connector(self, role: str = "kv_both", **settings: Any) -> dict[str, Any]:
        extra = {"catalogs": [self.catalog.address], "dir": self.dir, **settings}
        return {
            "kv_connector": "TidepoolConnector",
            "kv_connector_module_path": "tidepool.vllm",
            "kv_role": role,
            "kv_connector_extra_config": extra,
        }

    def engine(self, role: str = "kv_both", *, settings: Any = None, **options: Any) -> Simulated:
        engine = Simulated(MODEL, self.connector(role, **(settings or {})), **options)
        self.addCleanup(engine.close)
        return engine

    def computed(self, tokens: list[int], **options: Any) -> list[int]:
        """What an engine generates that computes everything, and saves it."""
        engine = self.engine(**options)
        request = engine.add("computed", tokens)
        engine.run()
        self.assertEqual(engine.counted.get("blocks_loaded", 0), 0)
        self.check_nothing_held(engine)
        return list(request.output_token_ids)

    def check_nothing_held(self, engine: Simulated) -> None:
        """Every block but vLLM's own null block is free, and no request is left."""
        self.assertEqual(engine.free_blocks(), engine.config.cache_config.num_gpu_blocks - 1)
        self.assertEqual(engine.scheduler.requests, {})
        self.assertFalse(engine.connector.has_pending_push_work())


class Restores(WithPool):
    shapes: ClassVar[dict[str, Any]] = {
        "one group": {},
        "two ranks": {"ranks": 2},
        "two ranks with the same bytes": {"ranks": 2, "replicas": 2},
        "two stages of two ranks": {"ranks": 2, "stages": 2},
        "prefill in parts": {"batch": 64},
        "a draft model": {"drafts": True},
        "a draft model after two stages": {"drafts": True, "stages": 2},
        **(WITH_WINDOWS if TELLS_FAILED_REQUESTS else {}),
    }

    def test_another_engine_of_the_same_shape_restores_the_whole_prompt(self) -> None:
        for name, shape in self.shapes.items():
            with self.subTest(name):
                tokens = prompt(len(name), 300)
                generated = self.computed(tokens, **shape)
                engine = self.engine(**shape)
                request = engine.add("again", tokens)
                engine.run()
                self.assertEqual(list(request.output_token_ids), generated)
                self.assertEqual(engine.restored["again"], 300 // BLOCK * BLOCK)
                self.check_nothing_held(engine)

    def test_only_what_the_engine_lacks_is_looked_up_and_loaded(self) -> None:
        tokens = prompt(1, 320)
        self.computed(tokens)
        engine = self.engine()
        engine.add("first half", tokens[:160])
        engine.run()
        before = engine.counted["lookup_blocks_asked"]
        engine.add("all", tokens)
        engine.run()
        self.assertEqual(engine.counted["lookup_blocks_asked"] - before, 10)
        self.assertEqual(engine.counted["blocks_loaded"], 20)

    def test_an_engine_finds_what_it_has_stored_though_it_was_not_there_a_moment_ago(self) -> None:
        """That nothing was there was remembered for a second: whoever asked again sooner computed again."""
        tokens = prompt(25, 300)
        engine = self.engine()
        for name in ("first", "again"):
            engine.add(name, tokens)
            engine.run()
            self.assertTrue(engine.scheduler.reset_prefix_cache())
        self.assertGreaterEqual(engine.counted["blocks_loaded"], 300 // BLOCK - 1)

    def test_a_look_up_may_wait_instead(self) -> None:
        tokens = prompt(2, 200)
        self.computed(tokens)
        engine = self.engine(settings={"lookup_wait": 10})
        engine.step()
        request = engine.add("again", tokens)
        engine.step()
        self.assertEqual(request.status.name, "WAITING_FOR_REMOTE_KVS")
        engine.run()

    def test_blocks_of_one_rank_alone_are_no_hit(self) -> None:
        tokens = prompt(3, 300)
        self.computed(tokens, ranks=2)
        third = self.hashes(tokens)[3].hex()
        [(lost, _, _)] = self.pool.list_blocks(f"g0.p0t1/{third}")
        self.pool.remove(lost)
        engine = self.engine(ranks=2)
        engine.add("again", tokens)
        engine.run()
        self.assertEqual(engine.counted["blocks_loaded"], 2 * 3)

    def test_ranks_that_hold_the_same_bytes_save_them_once(self) -> None:
        self.computed(prompt(10, 320), ranks=2, replicas=2)
        self.assertEqual(len(self.pool.list_blocks("g0")), 20)
        self.computed(prompt(11, 320), ranks=2, stages=2)
        self.assertEqual(len(self.pool.list_blocks("g0")), 20 + 4 * 20)

    def test_hot_blocks_of_the_engine_return_to_a_pool_that_lost_them(self) -> None:
        tokens = prompt(4, 300)
        engine = self.engine()
        engine.add("first", tokens)
        engine.run()
        self.pool.remove_all()
        engine.add("second", tokens)
        engine.run()
        self.assertEqual(engine.counted["blocks_saved"], 2 * (300 // BLOCK))

    def hashes(self, tokens: list[int]) -> list[bytes]:
        engine = self.engine()
        request = engine.add("hashed", tokens, generate=1)
        engine.run()
        return list(request.block_hashes)


class Roles(WithPool):
    def test_a_producer_never_loads_and_a_consumer_never_saves(self) -> None:
        tokens = prompt(5, 200)
        consumer = self.engine("kv_consumer")
        consumer.add("nothing there", tokens)
        consumer.run()
        self.assertEqual(self.pool.list_blocks("g0"), [])
        for _ in range(2):
            producer = self.engine("kv_producer")
            producer.add("computed", tokens)
            producer.run()
            self.assertNotIn("blocks_loaded", producer.counted)
        self.assertEqual(len(self.pool.list_blocks("g0")), 200 // BLOCK)
        consumer = self.engine("kv_consumer")
        consumer.add("restored", tokens)
        consumer.run()
        self.assertEqual(consumer.counted["blocks_loaded"], 200 // BLOCK)


class Failures(WithPool):
    def test_blocks_that_vanish_after_the_look_up_are_computed(self) -> None:
        """With windows alone, vLLM heard which blocks were missing, and computed from blocks that nobody had filled."""
        for name, shape in {
            "one group": {"specs": [full()]},
            **(WITH_WINDOWS if TELLS_FAILED_REQUESTS else {}),
        }.items():
            with self.subTest(name):
                specs = shape["specs"]
                tokens = prompt(6, 300)
                generated = self.computed(tokens, specs=specs)
                engine = self.engine(specs=specs)
                request = engine.add("again", tokens)
                begun = self.lose_after_the_look_up(engine)
                engine.run()
                self.assertEqual(list(request.output_token_ids), generated)
                self.assertGreater(engine.counted["blocks_not_loaded"], 0)
                self.assertEqual(begun, ["again"], "a load that failed was tried again")
                self.check_nothing_held(engine)
                # What was computed instead is there again.
                self.assertEqual(len(self.pool.list_blocks("g0")), 300 // BLOCK)
                self.pool.remove_all()

    @unittest.skipUnless(TELLS_FAILED_REQUESTS, "nothing is loaded here")
    def test_a_window_of_which_one_block_is_missing_is_computed_anew(self) -> None:
        for missing in range(3):
            with self.subTest(missing=missing):
                tokens = prompt(60 + missing, 300)
                generated = self.computed(tokens, specs=[sliding(40)])
                engine = self.engine(specs=[sliding(40)])
                request = engine.add("again", tokens)
                self.lose_one_after_the_look_up(engine, missing)
                engine.run()
                self.assertEqual(list(request.output_token_ids), generated)
                self.assertEqual(engine.counted.get("blocks_loaded", 0), missing)
                self.check_nothing_held(engine)

    def lose_after_the_look_up(self, engine: Simulated) -> list[str]:
        """Empties the pool between the answer and the load; the answer is which loads were begun, as they are."""
        begin = engine.workers[0].connector._worker.begin_loads
        begun: list[str] = []

        def empty_first(step: Any) -> None:
            begun.extend(load.request for load in step.loads)
            if step.loads:
                self.pool.remove_all()
            begin(step)

        engine.workers[0].connector._worker.begin_loads = empty_first
        return begun

    def test_the_first_blocks_of_a_load_count_though_a_later_one_failed(self) -> None:
        tokens = prompt(7, 300)
        generated = self.computed(tokens)
        engine = self.engine()
        request = engine.add("again", tokens)
        self.lose_one_after_the_look_up(engine, 9)
        engine.run()
        self.assertEqual(list(request.output_token_ids), generated)
        self.assertEqual(engine.counted["blocks_loaded"], 9)
        self.assertEqual(engine.counted["blocks_saved"], 1)

    def lose_one_after_the_look_up(self, engine: Simulated, place: int) -> None:
        """Takes one block of each load from the pool, between the answer and the load."""
        begin = engine.workers[0].connector._worker.begin_loads

        def lose_it(step: Any) -> None:
            for load in step.loads:
                lost = load.parts[0].hashes[place * 32 : (place + 1) * 32].hex()
                [(key, _, _)] = self.pool.list_blocks(lost)
                self.pool.remove(key)
            begin(step)

        engine.workers[0].connector._worker.begin_loads = lose_it

    def test_without_nodes_an_engine_computes_and_with_one_it_shares_again(self) -> None:
        tokens = prompt(8, 300)
        engine = self.engine(settings={"save_deadline": 0.2})
        self.node.close()
        engine.add("without", tokens)
        engine.run()
        self.check_nothing_held(engine)
        self.node = tidepool.Node("m", 64 << 20, [self.catalog.address], dir=self.dir)
        self.addCleanup(self.node.close)
        names = (f"with {number}" for number in count())

        def is_saved() -> bool:
            engine.scheduler.reset_prefix_cache()
            engine.add(next(names), tokens)
            engine.run()
            return len(self.pool.list_blocks("g0")) >= 300 // BLOCK

        eventually("blocks are saved again", is_saved)

    def test_after_a_reset_of_all_caches_an_engine_has_blocks_of_its_own(self) -> None:
        """vLLM resets them before weights are changed in place. What was saved before was loaded after it."""
        tokens, others = prompt(21, 300), prompt(22, 300)
        self.computed(tokens)
        engine = self.engine()
        engine.add("before", others)
        engine.run()
        with self.assertLogs("vllm.tidepool", "WARNING") as logged:
            self.assertTrue(engine.scheduler.reset_prefix_cache(reset_connector=True))
        self.assertIn("vLLM has reset all caches", logged.output[-1])
        for name, asked in {"theirs": tokens, "its own": others}.items():
            engine.add(name, asked)
            engine.run()
            self.assertEqual(engine.counted.get("blocks_loaded", 0), 0, name)
        # What it computes now it finds again.
        self.assertTrue(engine.scheduler.reset_prefix_cache())
        engine.add("again", tokens)
        engine.run()
        self.assertGreaterEqual(engine.counted["blocks_loaded"], 300 // BLOCK - 1)
        self.assertGreaterEqual(engine.counted["lookups"], 4, "what was counted before the reset counts")
        self.check_nothing_held(engine)

    def test_a_reset_changes_nothing_where_weights_never_change(self) -> None:
        tokens = prompt(24, 300)
        self.computed(tokens)
        engine = self.engine(settings={"after_reset": "keep"})
        engine.step()
        self.assertTrue(engine.scheduler.reset_prefix_cache(reset_connector=True))
        engine.add("after", tokens)
        engine.run()
        self.assertGreaterEqual(engine.counted["blocks_loaded"], 300 // BLOCK - 1)

    def test_a_pool_that_is_not_there_at_start_is_named_within_the_bound(self) -> None:
        began = time.monotonic()
        with self.assertRaisesRegex(UnreachableError, "127.0.0.1:9"):
            Simulated(MODEL, self.connector(catalogs=["127.0.0.1:9"], dir="/dev/shm/none", connect_wait=0.5))
        self.assertLess(time.monotonic() - began, 30)

    @unittest.skipIf(TELLS_FAILED_REQUESTS, "this vLLM can be told")
    def test_where_vllm_cannot_be_told_of_a_failed_load_nothing_is_loaded(self) -> None:
        for specs in ([full(), sliding(40)], [sliding(40)]):
            tokens = prompt(9 + len(specs), 300)
            for name in ("computed", "again"):
                with self.assertLogs("vllm.tidepool", "WARNING") as logged:
                    engine = self.engine(specs=specs)
                self.assertIn("nothing is loaded from the pool: this vLLM cannot be told", logged.output[0])
                engine.add("begins", prompt(10, 10))  # blocks have no names before the first step
                engine.run()
                engine.add(name, tokens)
                engine.run()
                self.assertNotIn("blocks_loaded", engine.counted)
            self.assertEqual(engine.counted["blocks_held"], len(specs) * (300 // BLOCK))

    def test_settings_that_are_not_allowed_are_named(self) -> None:
        with self.assertRaisesRegex(InvalidError, "'catalog': allowed are catalogs, "):
            Simulated(MODEL, self.connector(catalog="x"))
        with self.assertRaisesRegex(InvalidError, "weights_check is 'none': allowed are sampled, full"):
            Simulated(MODEL, self.connector(weights_check="none"))

    def test_every_setting_is_checked_at_the_start(self) -> None:
        seconds = (0, -1, "fast", None, True, float("nan"), float("inf"), 1e300)
        counts = (0, -1, "2", 1.5, None, True, 10_000)
        wrong: dict[str, tuple[Any, ...]] = {
            "catalogs": ("", [], 5, None, ["nope"], {"a": 1}, [5]),
            "dir": ("", 5, None, "relative", "/nul\0"),
            "local": ("false", 1, None),
            "verify": (True, "never", None),
            "tcp_streams": counts,
            "connect_wait": seconds,
            "lookup_wait": (-1, "x", None, float("nan")),
            "lookup_deadline": seconds,
            "load_deadline": seconds,
            "save_deadline": seconds,
            "load_threads": counts,
            "save_threads": counts,
            "replicas": counts,
            "replica_rate": (-1, "2", 1.5, None, True, 1 << 30),
            "load_failure_policy": ("maybe", None, []),
            "weights_check": (None, 1),
            "weights_id": (5, None),
            "after_reset": ("forget", None, True),
        }
        self.assertEqual(set(wrong), {setting.name for setting in dataclasses.fields(Settings)})
        for name, values in wrong.items():
            for value in values:
                with (
                    self.subTest(name=name, value=value),
                    self.assertRaisesRegex(InvalidError, f"{name} is .*: allowed"),
                ):
                    Simulated(MODEL, self.connector(**{name: value}))

    def test_requests_are_recomputed_by_default_and_failed_on_demand(self) -> None:
        self.assertTrue(self.engine().scheduler.recompute_kv_load_failures)
        refused = self.engine(settings={"load_failure_policy": "fail"})
        self.assertFalse(refused.scheduler.recompute_kv_load_failures)


class Ends(WithPool):
    def test_blocks_stay_in_place_while_they_are_saved_though_their_request_is_gone(self) -> None:
        tokens = prompt(60, 200)
        for ending in ("finished", "aborted"):
            with self.subTest(ending):
                engine = self.engine(blocks=60)
                late = self.hold_saves_back(engine)
                engine.add("saved late", tokens, generate=1 if ending == "finished" else 100)
                while not late:
                    engine.step()
                engine.abort("saved late")
                # As many blocks as there are change hands.
                for number in range(4):
                    engine.add(f"other {number}", prompt(61 + number, 500), generate=1)
                    while engine.scheduler.get_num_unfinished_requests():
                        engine.step()
                self.assertLess(engine.free_blocks(), 59)
                late.pop()()
                engine.run()
                self.check_nothing_held(engine)
                reader = self.engine()
                reader.add("reader", tokens)
                reader.run()
                self.assertEqual(reader.restored["reader"], 200 // BLOCK * BLOCK)
                self.pool.remove_all()

    def test_requests_do_not_wait_for_a_slow_save_of_blocks_that_they_have_anyway(self) -> None:
        """While any save was under way, vLLM waited for its blocks instead of preempting: nobody computed anything."""
        engine = self.engine(blocks=40)
        engine.add("begins", prompt(70, 10))
        engine.run()
        late = self.hold_saves_back(engine)
        requests = [engine.add(f"r{n}", prompt(71 + n, 100), generate=60) for n in range(5)]
        engine.step_until("requests end before the save", lambda: all(request.is_finished() for request in requests))
        self.assertTrue(engine.connector.has_pending_push_work(), "the save was over")
        late.pop()()
        engine.run()
        self.check_nothing_held(engine)

    def test_blocks_of_a_shared_prefix_are_counted_once_however_many_saves_hold_them(self) -> None:
        """Counted once a save, a hot prefix filled the room for saves, and the last blocks of requests were lost."""
        tokens = prompt(80, 480)
        engine = self.engine(blocks=128, batch=1024)
        engine.add("first", tokens)
        engine.run()
        late = self.hold_saves_back(engine, most=100)
        requests = [engine.add(f"r{n}", tokens + prompt(81 + n, 20), generate=1) for n in range(4)]
        engine.step_until("requests end", lambda: all(request.is_finished() for request in requests))
        pins = engine.connector._scheduler._pins
        held = [block.block_id for pin in pins._pins.values() for block in pin.blocks]
        self.assertGreater(len(held), len(set(held)), "no block is held twice: nothing is proved")
        self.assertEqual(len(pins._holds), len(set(held)))
        while engine.connector.has_pending_push_work():
            while late:
                late.pop()()
            engine.step()
        engine.run()
        self.check_nothing_held(engine)
        self.assertEqual(len(pins._holds), 0)

    def test_what_is_saved_at_a_requests_end_is_saved_by_an_engine_that_has_nothing_else_to_do(self) -> None:
        # vLLM does not wait for saves in a step that computes nothing. What was delayed until its request ended was
        # begun there only: an idle engine never saved it, and kept its blocks for good.
        tokens = prompt(62, 488)
        engine = self.engine(blocks=40, batch=256)  # a prompt has more blocks than may be under way at once
        late = self.hold_saves_back(engine)
        engine.add("long", tokens, generate=1)
        while engine.scheduler.get_num_unfinished_requests():
            engine.step()
        late.pop()()
        engine.run()
        self.assertGreater(engine.counted["saves_delayed"], 0)
        self.check_nothing_held(engine)
        reader = self.engine()
        reader.add("reader", tokens)
        reader.run()
        self.assertEqual(reader.restored["reader"], 480)

    def test_what_a_reset_finds_unsaved_is_saved_under_no_name(self) -> None:
        engine = self.engine(blocks=40, batch=256)  # a prompt has more blocks than may be under way at once
        late = self.hold_saves_back(engine)
        engine.add("long", prompt(23, 488), generate=1)
        while engine.scheduler.get_num_unfinished_requests():
            engine.step()
        # Its second part was put off until its end, and no worker has heard of it yet.
        self.assertTrue(engine.connector.reset_cache())
        late.pop()()
        engine.run()
        self.check_nothing_held(engine)
        saved = [name for name, *_ in self.pool.list_blocks("g0")]
        self.assertEqual(len(saved), 256 // BLOCK)

    def hold_saves_back(self, engine: Simulated, most: int = 1) -> list[Any]:
        """The first saves, of so many steps, wait each until it is called; those after them are done at once."""
        worker = engine.workers[0].connector._worker
        begin, held = worker.begin_saves, []
        late: list[Any] = []

        def begin_or_hold(step: Any) -> None:
            if any(step is other for other in held):
                return
            if step.saves and len(held) < most:
                held.append(step)
                late.append(lambda: begin(step))
            else:
                begin(step)

        worker.begin_saves = begin_or_hold
        return late

    def test_what_lies_behind_a_window_is_not_saved_late(self) -> None:
        """Older versions do not say which blocks others have by now: a save that was put off took those of others."""
        shape: dict[str, Any] = {"specs": [sliding(40)], "batch": 64}
        engine = self.engine(blocks=20, **shape)
        side = engine.connector._scheduler
        first = engine.add("first", prompt(44, 300), generate=80)
        while len(first.output_token_ids) < 40:
            side._saves_allowed = False
            engine.step()
        engine.add("second", prompt(45, 100), generate=40)
        while "second" not in engine.restored:
            engine.step()
        side._saves_allowed = True
        engine.run()
        self.check_nothing_held(engine)
        other = self.engine(**shape)
        other.add("again", prompt(44, 300)[:170])
        other.run()
        self.assertGreaterEqual(engine.counted["blocks_saved"], 6)

    def test_preempted_requests_finish_and_leave_nothing_held(self) -> None:
        tokens = [prompt(20 + n, 100) for n in range(4)]
        expected = [self.computed(each) for each in tokens]
        self.pool.remove_all()
        # Room for the prompts, but not for all that is generated.
        engine = self.engine(blocks=30)
        requests = [engine.add(f"r{n}", each, generate=40) for n, each in enumerate(tokens)]
        engine.run()
        self.assertGreater(sum(request.num_preemptions for request in requests), 0)
        for request, first in zip(requests, expected, strict=True):
            self.assertEqual(list(request.output_token_ids)[: len(first)], first)
        self.check_nothing_held(engine)
        # What was saved while blocks changed hands is what it should be: reading it is compared, block by block.
        reader = self.engine()
        for request in requests:
            reader.add(f"{request.request_id} again", list(request.all_token_ids), generate=1)
        reader.run()
        self.assertGreater(reader.counted["blocks_loaded"], 0)

    def test_aborted_requests_leave_nothing_held(self) -> None:
        tokens = prompt(30, 300)
        self.computed(tokens)
        for steps in range(1, 6):
            engine = self.engine(batch=64)
            engine.add("loading", tokens)
            engine.add("saving", prompt(31 + steps, 300))
            for _ in range(steps):
                engine.step()
            engine.abort("loading")
            engine.abort("saving")
            engine.run()
            self.check_nothing_held(engine)

    def test_a_cache_that_is_registered_anew_takes_the_place_of_the_first(self) -> None:
        """The first was kept, with the threads that moved its blocks, also after the engine was shut down."""
        tokens = prompt(41, 300)
        generated = self.computed(tokens)
        engine = self.engine()
        [worker] = engine.workers
        first = [weakref.ref(cache) for cache in worker.caches.values()]
        worker.caches = {name: torch.zeros_like(cache) for name, cache in worker.caches.items()}
        worker.connector.register_kv_caches(worker.caches)
        self.assertEqual([cache() for cache in first], [None] * len(first))
        request = engine.add("again", tokens)
        engine.run()
        self.assertEqual(list(request.output_token_ids), generated)
        self.assertEqual(engine.restored["again"], 300 // BLOCK * BLOCK)

    def test_a_cache_of_another_layout_is_not_registered_anew(self) -> None:
        """Its blocks would have been saved under the name of the first layout."""
        engine = self.engine()
        [worker] = engine.workers
        # Tokens outside, heads inside.
        other = {name: cache.transpose(1, 2).contiguous().transpose(1, 2) for name, cache in worker.caches.items()}
        with self.assertRaisesRegex(InvalidError, "registered anew in another layout: allowed is the first one"):
            worker.connector.register_kv_caches(other)
        worker.connector.register_kv_caches(worker.caches)

    def test_a_cache_that_is_registered_anew_in_mid_job_leaves_nobody_waiting(self) -> None:
        """The ends of jobs on the first cache went unheard: blocks stayed held, a request waited for ever. And what
        they had loaded is not in the second cache, from which it would have been read."""
        tokens = prompt(42, 300)
        generated = self.computed(tokens)
        engine = self.engine()
        [worker] = engine.workers
        side = worker.connector._worker
        # A step's jobs are over at any moment; here none is heard of before the cache is registered anew.
        take_received, side.take_received = side.take_received, set
        request = engine.add("loads", tokens)
        engine.add("saves", prompt(43, 300))
        engine.step_until("a load and a save are under way", lambda: side._loading and side._saving)
        worker.caches = {name: torch.zeros_like(cache) for name, cache in worker.caches.items()}
        worker.connector.register_kv_caches(worker.caches)
        side.take_received = take_received
        engine.abort("saves")
        engine.run()
        self.assertEqual(list(request.output_token_ids), generated)
        self.check_nothing_held(engine)

    def test_a_shut_down_engine_leaves_nothing_under_way(self) -> None:
        engine = self.engine(batch=64)
        engine.add("saving", prompt(40, 500))
        engine.step()
        engine.step()
        engine.close()
        for worker in engine.workers:
            for cache in worker.caches.values():
                cache.zero_()
        # Again is allowed, and waits for nothing.
        engine.close()


class Reports(WithPool):
    def test_events_name_what_is_in_the_pool(self) -> None:
        engine = self.engine(kv_events_config={"enable_kv_cache_events": True, "publisher": "null"})
        request = engine.add("noted", prompt(50, 100), generate=1)
        engine.run()
        [event] = [event for event in engine.events if event.medium == "tidepool"]
        self.assertEqual(len(event.block_hashes), 6)
        self.assertEqual(event.token_ids, list(request.prompt_token_ids)[:96])
        self.assertEqual(event.block_size, BLOCK)
        self.assertIsNone(event.parent_block_hash)

    def test_a_session_is_stored_and_one_that_is_too_large_is_counted(self) -> None:
        engine = self.engine()
        given = {"session": "s", "parent": "p", "hints": {"retain": 60}}
        engine.add("small", prompt(51, 100), params={"tidepool": given})
        engine.add("large", prompt(52, 100), params={"tidepool": {"session": "l", "hints": "x" * 5000}})
        engine.run()
        [(key, _, _)] = eventually("a session is stored", lambda: self.pool.list_blocks("/session/"))
        record = json.loads(self.pool.get(key) or b"")
        self.assertEqual({name: record[name] for name in given}, given)
        self.assertEqual((record["blocks"], record["tokens"]), (6, 104))
        engine.add("counts", prompt(53, 20))
        engine.run()
        self.assertEqual(engine.counted["notes_refused"], 1)

    def test_whatever_a_request_says_of_its_session_the_engine_goes_on(self) -> None:
        """A key that is no text, a name that no key can have: each ended the engine."""
        engine = self.engine()
        says: list[Any] = [{"session": "s", "hints": {b"x": 1}}, {"session": "\ud800"}, {"session": ["s"] * 100}]
        for number, given in enumerate(says):
            engine.add(f"odd {number}", prompt(54 + number, 100), params={"tidepool": given})
        engine.run()
        engine.add("counts", prompt(58, 20))
        engine.run()
        self.assertEqual(engine.counted["notes_refused"], len(says))
        self.check_nothing_held(engine)

    def test_engines_whose_blocks_differ_say_in_what(self) -> None:
        self.computed(prompt(53, 100))
        with self.assertLogs("vllm.tidepool", "WARNING") as logged:
            other = self.engine(settings={"weights_id": "other"})
            other.add("other", prompt(53, 100))
            other.run()
            eventually("it is logged", lambda: logged.records)
        self.assertIn("because they differ: weights: here named other, there ", logged.output[0])
        other.add("counts", prompt(54, 20))
        other.run()
        self.assertEqual(other.counted["fingerprint_mismatches"], 1)
        self.assertNotIn("blocks_loaded", other.counted)

    def test_what_the_rust_side_warns_of_is_in_the_engines_log(self) -> None:
        engine = self.engine()
        # A second node of one name is refused by the catalog, and says so.
        other = tempfile.mkdtemp(dir="/dev/shm")
        self.addCleanup(shutil.rmtree, other, ignore_errors=True)
        twin = tidepool.Node("n", 16 << 20, [self.catalog.address], dir=other)
        self.addCleanup(twin.close)
        with self.assertLogs("vllm.tidepool", "WARNING") as logged:
            engine.step_until("it is logged", lambda: any("name" in line for line in logged.output))


if __name__ == "__main__":
    MODEL = sys.argv.pop(1)
    unittest.main(verbosity=2)
