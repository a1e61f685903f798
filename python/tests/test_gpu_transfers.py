"""Blocks of a GPU, through the driver's own calls: a pretended one answers them, so that no GPU is needed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ENGINE = """
import ctypes, sys
from array import array
import tidepool
from tidepool._native import BlockTransfers
sys.path.append(sys.argv[2])
from tests.waiting import eventually

BLOCKS, PIECE = 8, 4096
cuda = ctypes.CDLL("libcuda.so.1")
cuda.pretended_left.restype = ctypes.c_int64
left = cuda.pretended_left

# As an engine has it: a context, a KV cache in the memory of the GPU, and a stream.
context, cache, stream = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(cache), ctypes.c_size_t(2 * BLOCKS * PIECE)) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
layout = [[(cache.value, PIECE, PIECE), (cache.value + BLOCKS * PIECE, PIECE, PIECE)]]

def block(number):
    # The memory of a pretended GPU is this process's.
    return b"".join(ctypes.string_at(start + number * PIECE, PIECE) for start, _, _ in layout[0])

def fill(number, byte):
    for start, _, _ in layout[0]:
        ctypes.memset(start + number * PIECE, byte, PIECE)

def part(names, blocks):
    return (0, "gpu/", 8, b"".join(name.to_bytes(8) for name in names), array("I", blocks).tobytes(), 0)

def failed(moves, begin, names, blocks):
    begin(1, [part(names, blocks)], after=stream.value)
    return eventually("the blocks are moved", moves.poll)[0][2]

with tidepool.Catalog("127.0.0.1:0") as catalog:
    with tidepool.Node("node", 64 << 20, [catalog.address], dir=sys.argv[1]):
        with tidepool.Pool.connect([catalog.address], dir=sys.argv[1]) as pool:
            before = left()
            here = ctypes.create_string_buffer(BLOCKS * PIECE)
            for device, place, says in [
                (0, ctypes.addressof(here), "no memory of this GPU"),
                (1, cache.value, "GPU 1 cannot be used: cuDeviceGet"),
            ]:
                try:
                    BlockTransfers(pool, [[(place, PIECE, PIECE)]], BLOCKS, here, device=device)
                except tidepool.TidepoolError as error:
                    assert says in str(error), error
                else:
                    raise AssertionError(says)
                assert left() == before, "what was refused holds something"

            moves = BlockTransfers(pool, layout, BLOCKS, None, device=0)
            assert left() > before, "nothing is pinned"
            assert any("small pieces will be slow" in line for line in BlockTransfers.warnings())
            fill(1, 7), fill(2, 9)
            saved = [block(1), block(2)]
            assert failed(moves, moves.save, [10, 11], [1, 2]) == []
            assert failed(moves, moves.load, [10, 11, 12], [5, 4, 3]) == [(0, 3)]
            assert [block(5), block(4)] == saved

            # The stream is about to overwrite a block: what is saved is what it wrote.
            newer = ctypes.create_string_buffer(bytes([13]) * PIECE, PIECE)
            assert cuda.cuMemHostRegister_v2(newer, ctypes.c_size_t(PIECE), 3) == 0
            assert cuda.cuMemcpyHtoDAsync_v2(
                ctypes.c_uint64(cache.value + PIECE), newer, ctypes.c_size_t(PIECE), stream
            ) == 0
            assert failed(moves, moves.save, [20], [1]) == []
            assert failed(moves, moves.load, [20], [6]) == []
            assert block(6) == bytes([13]) * PIECE + bytes([7]) * PIECE
            assert cuda.cuMemHostUnregister(newer) == 0

            moves.close()
            assert left() == before, "a pool that is open still holds something of the GPU"
print("as it should be")
"""


@pytest.mark.parametrize("told", [{}, {"PRETEND_AN_OLD_DRIVER": "1"}], ids=["batches", "an old driver"])
def test_a_gpus_blocks_are_moved_by_its_driver_and_nothing_stays_pinned(
    told: dict[str, str], scratch: Path, tmp_path: Path
) -> None:
    (tmp_path / "libcuda.so.1").symlink_to(os.environ["TIDEPOOL_PRETENDED_DRIVER"])
    pretended = {"LD_LIBRARY_PATH": str(tmp_path), "PRETEND_TO_HAVE_NO_KERNEL": "1", **told}
    line = [sys.executable, "-c", ENGINE, str(scratch), str(Path(__file__).parents[1])]
    ran = subprocess.run(line, env=os.environ | pretended, capture_output=True, text=True, timeout=120, check=False)
    assert ran.stdout == "as it should be\n", ran.stdout + ran.stderr
    assert ran.returncode == 0
