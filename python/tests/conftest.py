"""A catalog and two nodes in this process, and connections to them."""

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidepool

# A shell that runs the tests in the background has them ignore Ctrl-C, and their children would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="tidepool-test-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def catalog() -> Iterator[tidepool.Catalog]:
    with tidepool.Catalog("127.0.0.1:0") as catalog:
        yield catalog


@pytest.fixture(scope="session")
def nodes(catalog: tidepool.Catalog, scratch: Path) -> Iterator[list[tidepool.Node]]:
    nodes = [tidepool.Node(f"node-{n}", 64 << 20, [catalog.address], dir=scratch) for n in range(2)]
    yield nodes
    for node in nodes:
        node.close()


@pytest.fixture(params=["shm", "tcp"])
def pool(
    request: pytest.FixtureRequest, catalog: tidepool.Catalog, nodes: list[tidepool.Node], scratch: Path
) -> Iterator[tidepool.Pool]:
    with tidepool.Pool.connect([catalog.address], dir=scratch, local=request.param == "shm") as pool:
        yield pool
        pool.remove_all()
