"""What the sides of the comparison have in common: the names of blocks, and doing what they are told."""

import json
import sys
from typing import Any


def key(prefix: str, number: int) -> str:
    """Keys as long as vLLM's: 88 characters."""
    return f"{prefix}{number:0{88 - len(prefix)}d}"


def serve(side: Any) -> None:
    """Each line of standard input is a JSON object with a method of ``side`` and its arguments; answers with a line."""
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(getattr(side, task.pop("task"))(**task)), flush=True)
