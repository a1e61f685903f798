"""Runs in an engine's environment: imports the engine once, then becomes a new process for every connection.

``python side.py MODULE SOCKET`` serves ``MODULE.Side``: the first line of a connection has the settings to make one
with, every further line a method and its arguments, all as JSON. It ends when its standard input does.
"""

import gc
import importlib
import json
import os
import select
import socket
import sys
import traceback
from typing import Any


def main() -> int:
    module, path = sys.argv[1:]
    # The environment lends packages of vLLM's. The engine finds itself without vLLM all the same.
    sys.modules["vllm"] = None  # type: ignore[assignment]
    kind = importlib.import_module(module).Side
    # What is imported is shared by all processes, as long as none looks through it for garbage.
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            serve(connection, kind)
            gc.collect()
            os._exit(0)
        connection.close()
    return 0


def serve(connection: socket.socket, kind: type) -> None:
    """Answers one connection; at its end the engine's objects are closed, or let go where the engine closes nothing."""
    lines = connection.makefile("rw")
    side: Any = None
    for line in lines:
        name, arguments = json.loads(line)
        try:
            if side is None:
                side, answer = kind(**arguments), None
            else:
                answer = getattr(side, name)(**arguments)
            text = json.dumps({"answer": answer})
        except Exception:
            text = json.dumps({"failure": traceback.format_exc()})
        lines.write(text + "\n")
        lines.flush()
    if hasattr(side, "close"):
        side.close()


if __name__ == "__main__":
    sys.exit(main())
