"""What requests say of their sessions, from the connector to the block that a node evicts.

``sessions.py MODEL``.
"""

import sys
import types
import unittest
from typing import Any, ClassVar

import units
from simulated import Simulated
from tidepool.vllm.sessions import COUNTED_SESSIONS, Origin, Sessions
from units import BLOCK, WithPool, prompt

#: Blocks of a session that the tests look at.
LENGTH = 10


class WithLittleRoom(WithPool):
    """A node with a place for each of 40 blocks, whatever their lengths."""

    def lost(self) -> tuple[list[int], list[int]]:
        """The blocks that go first of two sessions: one that waits for a tool, and a later one that has ended."""
        engine = self.engine()
        # Experience: with this tool sessions come back at once, and not after their last request.
        for turn, says in enumerate(({"tool": "quick"}, {"last": True})):
            for number in range(30):
                self.add(engine, prompt(number, 20 + turn * BLOCK), f"other {number}", turn=turn, **says)
            engine.run()
        waiting = self.add(engine, prompt(100, LENGTH * BLOCK), "waiting", turn=0, tool="quick")
        engine.run()
        ended = self.add(engine, prompt(101, LENGTH * BLOCK), "ended", turn=0, last=True)
        engine.run()
        self.assertEqual((self.gone(waiting), self.gone(ended)), ([], []))
        for number in range(30):
            self.add(engine, prompt(200 + number, 2 * BLOCK), f"more {number}", turn=0, last=True)
            engine.run()
            if len(self.gone(waiting) + self.gone(ended)) >= 3:
                break
        return self.gone(waiting), self.gone(ended)

    def add(self, engine: Simulated, tokens: list[int], session: str, **says: Any) -> Any:
        name = f"{session}, turn {says['turn']}"
        return engine.add(name, tokens, generate=1, params={"tidepool": {"session": session, **says}})

    def gone(self, request: Any) -> list[int]:
        """The blocks of a request that are not in the pool, by their places."""
        held = {str(key)[-64:] for key, *_ in self.pool.list_blocks("g0")}
        return [place for place, block in enumerate(request.block_hashes) if block.hex() not in held]


class BySessions(WithLittleRoom):
    node_settings: ClassVar[dict[str, Any]] = {"capacity": 40 * 4096, "eviction": "agents"}

    def test_of_the_session_that_has_ended_the_end_is_evicted_and_of_the_one_that_waits_nothing(self) -> None:
        waiting, ended = self.lost()
        self.assertEqual(waiting, [])
        self.assertEqual(ended, list(range(LENGTH - len(ended), LENGTH)))
        self.assertTrue(ended)


class ByAge(WithLittleRoom):
    node_settings: ClassVar[dict[str, Any]] = {"capacity": 40 * 4096, "eviction": "lru"}

    def test_the_older_session_is_evicted_whatever_requests_say(self) -> None:
        waiting, ended = self.lost()
        self.assertEqual(ended, [])
        self.assertTrue(waiting)


class Understood(unittest.TestCase):
    """What the scheduler's side makes of what requests say."""

    def setUp(self) -> None:
        self.sessions = Sessions()

    def origin(self, **says: Any) -> Origin | None:
        request = types.SimpleNamespace(request_id="r", kv_transfer_params={"tidepool": says})
        return self.sessions.origin_of(request)

    def test_everything_that_is_known_is_passed_on(self) -> None:
        says: dict[str, Any] = {"session": "s", "parent": "p", "turn": 3, "pause": 1.5, "tool": "t", "last": True}
        origin = self.origin(**says, hints={"retain": 60})
        assert origin is not None
        assert origin.parent is not None
        assert origin.tool is not None
        self.assertEqual((origin.turn, origin.pause, origin.last), (3, 1500, True))
        self.assertEqual(len({origin.session, origin.parent, origin.tool}), 3)
        self.assertLess(max(origin.session, origin.parent), 1 << 64)
        self.assertLess(origin.tool, 1 << 32)
        child = self.origin(session="p")
        self.assertEqual(child and child.session, origin.parent, "a name is the same number everywhere")

    def test_turns_that_are_not_numbered_are_counted(self) -> None:
        def turn(session: str, **says: Any) -> int | None:
            origin = self.origin(session=session, **says)
            return origin and origin.turn

        self.assertEqual([turn("s"), turn("s"), turn("t"), turn("s"), turn("s", turn=0)], [0, 1, 0, 2, 0])
        for number in range(COUNTED_SESSIONS):
            turn(f"other {number}")
        self.assertEqual(turn("s"), 0, "a session of long ago is forgotten")

    def test_without_a_session_nothing_is_known_and_nothing_is_wrong(self) -> None:
        with self.assertNoLogs("vllm.tidepool"):
            self.assertIsNone(self.origin(turn=3))
            for params in (None, {}, {"tidepool": None}, {"tidepool": "s"}, "s"):
                request = types.SimpleNamespace(request_id="r", kv_transfer_params=params)
                self.assertIsNone(self.sessions.origin_of(request))

    def test_what_is_not_allowed_is_ignored_with_one_warning(self) -> None:
        wrong: dict[str, list[Any]] = {
            "parent": [5, "", "x" * 129],
            "turn": [-1, 1 << 32, 1.0, True, "1"],
            "pause": [-1, float("nan"), float("inf"), True, "1", 10**400],
            "tool": [["t"], ""],
            "last": [1, "yes"],
        }
        for name, values in wrong.items():
            for number, value in enumerate(values):
                session = f"{name} {number}"
                with self.subTest(session), self.assertLogs("vllm.tidepool", "WARNING") as logged:
                    understood = self.origin(**{"session": session, name: value})
                    [line] = logged.output
                    self.assertIn(f"request r: ignored of its session: {name};", line)
                    self.assertEqual(understood, self.origin(session=session, turn=0))
        with self.assertLogs("vllm.tidepool", "WARNING") as logged:
            self.assertIsNone(self.origin(session=5, turn=-1))
        [line] = logged.output
        self.assertIn("session, turn", line)


if __name__ == "__main__":
    units.MODEL = sys.argv.pop(1)
    unittest.main(verbosity=2)
