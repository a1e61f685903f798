"""The asyncio interface, the command and the examples in the docstrings."""

import asyncio
import doctest
import subprocess
import sys
from pathlib import Path
from typing import Any

import tidepool
from tidepool import AsyncPool


def test_every_waiting_call_has_a_coroutine() -> None:
    def public(subject: type) -> set[str]:
        return {name for name in dir(subject) if not name.startswith("_")}

    assert public(tidepool.Pool) == public(AsyncPool)


def test_coroutines_run_at_the_same_time(catalog: tidepool.Catalog, nodes: list[tidepool.Node], scratch: Path) -> None:
    async def work() -> list[bytes | None]:
        async with await AsyncPool.connect([catalog.address], dir=scratch) as pool:
            await asyncio.gather(*(pool.put(f"aio/{n}", bytes([n])) for n in range(1, 20)))
            return await asyncio.gather(*(pool.get(f"aio/{n}") for n in range(1, 21)))

    assert asyncio.run(work()) == [bytes([n]) for n in range(1, 20)] + [None]


def test_the_examples_in_the_docstrings_run(
    catalog: tidepool.Catalog, nodes: list[tidepool.Node], scratch: Path
) -> None:
    run, without = 0, []
    for subject in (tidepool.Pool, tidepool.View, tidepool.AsyncPool, tidepool.Node, tidepool.Catalog):
        for example in doctest.DocTestFinder(recurse=True).find(subject, globs={}):
            with tidepool.Pool.connect([catalog.address], dir=scratch) as pool:
                names: dict[str, Any] = {
                    "tidepool": tidepool,
                    "asyncio": asyncio,
                    "pool": pool,
                    "catalog": catalog,
                    "scratch": scratch,
                }
                example.globs = names
                result = doctest.DocTestRunner().run(example)
                pool.remove_all()
                if "node" in names:
                    names["node"].close()
                    names["catalog"].close()
            assert result.failed == 0, example.name
            run += result.attempted
            without += [] if result.attempted else [example.name]
    assert run > 10
    shown = {f"Pool.{name}" for name in ("connect", "put", "put_many", "get", "get_many", "view", "exists", "remove")}
    assert not (shown | {"Pool", "View", "AsyncPool", "Node", "Catalog"}) & set(without)


def test_the_command_comes_with_the_package(
    catalog: tidepool.Catalog, nodes: list[tidepool.Node], scratch: Path
) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        pool = ["--catalogs", catalog.address, "--dir", str(scratch)]
        line = [sys.executable, "-m", "tidepool", *arguments, *pool]
        return subprocess.run(line, capture_output=True, timeout=60, input=b"from the command line", check=False)

    assert command("put", "command/key", "-").returncode == 0
    got = command("get", "command/key")
    assert (got.returncode, got.stdout) == (0, b"from the command line")
    assert command("get", "command/absent").returncode == 3
    assert subprocess.run(["tidepool", "--version"], capture_output=True, check=True).stdout.startswith(b"tidepool")
