"""Records of sessions and hints that requests carry, kept in the pool.

``kv_transfer_params = {"tidepool": {"session": ..., "parent": ..., "hints": {...}}}`` of a request ends up, when the
request ends, in a small block of its own: ``NAMESPACE/session/SESSION/LAST_BLOCK_HASH``, a JSON object with the
session, its parent, the hints, and how many tokens and blocks the session has reached. It is evicted like any block.
No part of the pool acts on it yet.
"""

import json
from typing import Any

#: Longer names are refused.
LONGEST_NAME = 128
#: Larger records are refused.
LARGEST_RECORD = 4096


def record_of(request: Any, blocks: int, namespace: str) -> tuple[str, bytes] | None:
    """The key and the record of a request with a session, or None. Raises ValueError for one that is too large."""
    params = request.kv_transfer_params
    given = params.get("tidepool") if isinstance(params, dict) else None
    if not isinstance(given, dict) or not given.get("session") or not blocks:
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
