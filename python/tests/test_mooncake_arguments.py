"""Arguments of the drop-in of the wrong kind are a ``TypeError`` that says what is allowed, in sessions too."""

import ctypes
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mooncake.store import MooncakeDistributedStore

import tidepool

from .mooncake_store.conftest import MIB


@pytest.fixture
def store(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MooncakeDistributedStore]:
    monkeypatch.setenv("TIDEPOOL_DIR", str(scratch))
    store = MooncakeDistributedStore()
    with tidepool.Catalog("127.0.0.1:0") as catalog:
        assert store.setup("localhost", "P2PHANDSHAKE", 16 * MIB, 0, "tcp", "", catalog.address) == 0
        yield store
        store.close()


#: A call, its arguments, and what the error says.
WRONG: list[tuple[str, tuple[Any, ...], str]] = [
    ("batch_put_session_start", (["a"], [1000], 5), "config is a ReplicateConfig, not 5"),
    ("batch_put_session_start", ("a", [1]), "keys is a list or another sequence of them, not str"),
    ("batch_put_session_start", ([5], [1]), "a key is str or bytes, not int"),
    ("batch_put_session_start", (["a"], 5), "sizes is a list or another sequence of them, not int"),
    ("batch_put_session_start", (["a"], iter([1])), "sizes is a list or another sequence of them, not list_iterator"),
    ("batch_put_session_end", ("a",), "keys is a list or another sequence of them, not str"),
    ("batch_put_session_end", ([None],), "a key is str or bytes, not NoneType"),
    ("batch_put_session_revoke", (b"a",), "keys is a list or another sequence of them, not bytes"),
    ("batch_put_from_multi_buffer_ranges", ("a", [[1]], [[1]], [[0]]), "keys is a list .*, not str"),
    ("batch_put_from_multi_buffer_ranges", (["a"], [1], [[1]], [[0]]), "numbers is a list .*, not int"),
    ("batch_get_session_start", ("a",), "keys is a list or another sequence of them, not str"),
    ("batch_get_session_end", ("a",), "keys is a list or another sequence of them, not str"),
    ("batch_get_into_multi_buffer_ranges", (["a"], [[1]], [[1.5]], [[0]]), "a whole number from 0 on, not float"),
    ("batch_get_into_multi_buffer_ranges", (["a"], [[1]], [[1]], [[0.5]]), r"an offset is 0\.5: allowed are whole"),
    ("batch_get_into_multi_buffer_ranges", (["a"], [[1]], [[1]], [0]), "offsets is a list .*, not int"),
    ("get_into_ranges", (5, [], [], [], []), "addresses is a list or another sequence of them, not int"),
    ("get_into_ranges", ([1], ["a"], [], [], []), "keys is a list or another sequence of them, not str"),
    ("get_into_ranges", ([1], [["a"]], [[[0]]], [[[0]]], [[[None]]]), "a size is None: allowed are whole"),
    ("query_task", ([[], []],), r"a task's id is two numbers, not \[\[\], \[\]\]"),
    ("create_copy_task", ("a", [[]]), r"targets is a list of segments, not \[\[\]\]"),
    ("create_move_task", ("a", "b", []), r"names of segments, not 'b' and \[\]"),
    ("create_move_task", ("a", None, "b"), "names of segments, not None and 'b'"),
    ("unmount_segment", ("abc",), "segment ids is a list or another sequence of them, not str"),
]


def test_arguments_of_the_wrong_kind_are_named(store: MooncakeDistributedStore) -> None:
    """A text was taken for its characters, and other slips were errors of the interpreter's that named nothing."""
    for call, arguments, message in WRONG:
        with pytest.raises(TypeError, match=message):
            getattr(store, call)(*arguments)


def test_numbers_of_numpy_are_numbers_in_sessions(store: MooncakeDistributedStore) -> None:
    """They ended the write with an error of ctypes', and the session stored zeros."""
    memory = (ctypes.c_char * 100).from_buffer(bytearray(b"abcd" * 25))
    at = np.int64(ctypes.addressof(memory))
    assert store.register_buffer(at, 100) == 0  # type: ignore[arg-type]
    four: Any = np.int64(4)
    assert store.batch_put_session_start(["session"], [four]) == [0]
    assert store.batch_put_from_multi_buffer_ranges(["session"], [[at]], [[four]], [[four - 4]]) == [4]
    assert store.batch_put_session_end(["session"]) == [0]
    assert store.get("session") == b"abcd"
    assert store.batch_get_session_start(["session"]) == [0]
    assert store.batch_get_into_multi_buffer_ranges(["session"], [[at + 10]], [[four - 2]], [[four - 2]]) == [2]
    assert store.batch_get_session_end(["session"]) == 0
    assert bytes(memory[10:12]) == b"cd"
    assert store.get_into_ranges([at], [["session"]], [[[np.int64(-1)]]], [[[0]]], [[[four]]]) == [[[-600]]]
    assert store.unregister_buffer(at) == 0  # type: ignore[arg-type]


def test_a_registered_buffer_that_was_freed_harms_nobody_until_a_call_names_it(store: MooncakeDistributedStore) -> None:
    memory = mmap.mmap(-1, 8192)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert store.register_buffer(at + 4096, 4096) == 0
    # Its addresses are taken until it is unregistered, for whatever comes to lie there.
    assert store.register_buffer(at, 8192) == -600
    assert store.unregister_buffer(at + 4096) == 0
    assert store.register_buffer(at, 8192) == 0
    memory.close()
    assert store.put("other", b"bytes") == 0
    assert store.get("other") == b"bytes"
    assert store.unregister_buffer(at) == 0
    assert store.get_into("other", at, 8192) == -600
    assert store.put_from("new", at, 8192) == -600
