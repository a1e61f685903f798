"""Sessions: what requests say of the conversations that they belong to.

``kv_transfer_params = {"tidepool": {"session": ..., ...}}`` of a request does two things:

- The nodes are told for which turn of which session its blocks are used. Those that evict by sessions act on it.
- When the request ends, a small record is kept in the pool: ``NAMESPACE/session/SESSION/LAST_BLOCK_HASH``, a JSON
  object with the session, its parent, the hints, and how many tokens and blocks the session has reached. It is
  evicted like any block. No part of the pool acts on it yet.
"""

import hashlib
import json
import logging
import math
from collections import OrderedDict
from typing import Any, NamedTuple

logger = logging.getLogger("vllm.tidepool")  # under vLLM's own, so that its settings apply

#: Longer names are refused.
LONGEST_NAME = 128
#: Larger records are refused.
LARGEST_RECORD = 4096
#: Sessions whose turns are counted; those seen last.
COUNTED_SESSIONS = 4096
#: The longest pause that is believed, in seconds.
LONGEST_PAUSE = 366 * 24 * 3600.0


class Origin(NamedTuple):
    """A request's place in its session, in the order in which the native module takes it."""

    session: int
    parent: int | None
    turn: int
    #: Milliseconds.
    pause: int
    tool: int | None
    last: bool


class Sessions:
    """What requests say of their sessions; of sessions that do not number their requests, also how many there were."""

    def __init__(self) -> None:
        self._turns: OrderedDict[int, int] = OrderedDict()

    def origin_of(self, request: Any) -> Origin | None:
        """The request's place in its session, as far as it can be understood. What cannot is logged once."""
        given = _said_by(request)
        if given is None or given.get("session") is None:
            return None
        wrong: list[str] = []
        session = _read(given, "session", _name, wrong)
        parent, tool = _read(given, "parent", _name, wrong), _read(given, "tool", _name, wrong)
        turn, pause = _read(given, "turn", _turn, wrong), _read(given, "pause", _pause, wrong)
        last = _read(given, "last", _flag, wrong)
        if wrong:
            logger.warning(
                "request %s: ignored of its session: %s; allowed are names (session, parent, tool) of 1 to %d "
                "characters, a turn from 0, a pause in seconds, and true or false for last",
                request.request_id,
                ", ".join(wrong),
                LONGEST_NAME,
            )
        if session is None:
            return None
        number = _hashed(session, 8)
        return Origin(
            session=number,
            parent=None if parent is None else _hashed(parent, 8),
            turn=self._next_turn(number) if turn is None else turn,
            pause=pause or 0,
            tool=None if tool is None else _hashed(tool, 4),
            last=bool(last),
        )

    def _next_turn(self, session: int) -> int:
        turn = self._turns.pop(session, -1) + 1
        self._turns[session] = turn
        if len(self._turns) > COUNTED_SESSIONS:
            self._turns.popitem(last=False)
        return turn


def record_of(request: Any, blocks: int, namespace: str) -> tuple[str, bytes] | None:
    """The key and the record of a request with a session, or None. Raises ValueError for one that is too large."""
    given = _said_by(request)
    if given is None or not given.get("session") or not blocks:
        return None
    session, parent = str(given["session"]), given.get("parent")
    if max(len(session), len(str(parent or ""))) > LONGEST_NAME:
        raise ValueError(f"a session's name has up to {LONGEST_NAME} characters")
    record = {
        "session": session,
        "parent": None if parent is None else str(parent),
        "hints": given.get("hints") or {},
        "tokens": request.num_tokens,
        "blocks": blocks,
    }
    encoded = json.dumps(record, default=str).encode()
    if len(encoded) > LARGEST_RECORD:
        raise ValueError(f"a session, its parent and its hints have up to {LARGEST_RECORD} bytes")
    return f"{namespace}session/{session}/{request.block_hashes[blocks - 1].hex()}", encoded


def _said_by(request: Any) -> dict[Any, Any] | None:
    params = request.kv_transfer_params
    given = params.get("tidepool") if isinstance(params, dict) else None
    return given if isinstance(given, dict) else None


def _read(given: dict[Any, Any], name: str, read: Any, wrong: list[str]) -> Any:
    """What a request says under a name, or None. Notes the name if that is not allowed there."""
    said = given.get(name)
    if said is None:
        return None
    value = read(said)
    if value is None:
        wrong.append(name)
    return value


def _name(said: object) -> str | None:
    return said if isinstance(said, str) and 1 <= len(said) <= LONGEST_NAME else None


def _turn(said: object) -> int | None:
    return said if isinstance(said, int) and not isinstance(said, bool) and 0 <= said < 1 << 32 else None


def _pause(said: object) -> int | None:
    if not isinstance(said, int | float) or isinstance(said, bool):
        return None
    return math.floor(said * 1000) if 0 <= said <= LONGEST_PAUSE else None


def _flag(said: object) -> bool | None:
    return said if isinstance(said, bool) else None


def _hashed(name: str, size: int) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=size).digest()
    return int.from_bytes(digest, "little")
