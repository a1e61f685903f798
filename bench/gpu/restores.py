"""Also of table a: ten GiB to the GPU and from it through the pool, as a connector moves them, without an engine.

And what a restore over the network takes, against the network by itself: the slower of the two, not the sum.
"""

import time
from statistics import median

import tidepool
import torch
from parts import Pool
from tidepool._native import BlockTransfers

LAYERS = 32
#: One layer of a block of 64 tokens, of the shape that the other tables have.
PIECE = 256 << 10
BLOCKS = 1280


#: What goes at once: "save" or "load", the turn whose names the blocks have, and which blocks.
Move = tuple[str, int, range]
#: By turn, of every piece that was saved.
Sums = dict[int, torch.Tensor]


class Cache:
    """A KV cache whose layers lie apart, and what moves its blocks."""

    def __init__(self, client: tidepool.Pool, blocks: int, device: int | None, sums: Sums) -> None:
        where = "cpu" if device is None else f"cuda:{device}"
        self._bytes = torch.empty((LAYERS, blocks, PIECE), dtype=torch.uint8, device=where)
        layout = [[(layer.data_ptr(), PIECE, PIECE) for layer in self._bytes]]
        self._moves = BlockTransfers(client, layout, blocks, self._bytes, device=device)
        self._sums = sums

    def move(self, *moves: Move) -> list[float]:
        """Seconds for each of them, begun together. What is saved begins with the first block."""
        for way, turn, blocks in moves:
            if way == "save":
                self._of(blocks).random_()
                self._sums[turn] = self._summed(blocks)
            else:
                self._of(blocks).zero_()
        if self._bytes.is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for number, (way, turn, blocks) in enumerate(moves):
            getattr(self._moves, way)(number, [part(turn, blocks)])
        seconds = [over - began for _, over in sorted(self._overs(len(moves)))]
        for way, turn, blocks in moves:
            saved = self._sums[turn][:, blocks.start : blocks.stop]
            assert way == "save" or torch.equal(saved, self._summed(blocks)), f"load {turn} brought other bytes"
        return seconds

    def _of(self, blocks: range) -> torch.Tensor:
        return self._bytes[:, blocks.start : blocks.stop]

    def _overs(self, jobs: int) -> list[tuple[int, float]]:
        """Jobs, and when they were over."""
        until = time.monotonic() + 60
        overs: list[tuple[int, float]] = []
        while len(overs) < jobs:
            assert time.monotonic() < until, "a job is never over"
            for job, _, failed in self._moves.poll():
                assert not failed, f"{len(failed)} blocks were not moved: {BlockTransfers.warnings()}"
                overs.append((job, time.perf_counter()))
            time.sleep(0.0002)
        return overs

    def _summed(self, blocks: range) -> torch.Tensor:
        """A sum of each piece that a byte in another place changes, too."""
        words = self._of(blocks).view(torch.int64)
        places = torch.arange(1, words.shape[2] * 2, 2, device=words.device)
        # Layer by layer: the products take as much memory as what is summed.
        return torch.stack([(layer * places).sum(dim=1) for layer in words]).cpu()

    def close(self) -> None:
        self._moves.close()


def rates(repeats: int, blocks: int = BLOCKS, device: int | None = 0) -> dict[str, dict[str, float]]:
    """Bytes a second, in and out: straight, both at once, and over the network; every byte is verified."""
    turns, whole = range(repeats + 1), range(blocks)
    first, second = whole[: blocks // 2], whole[blocks // 2 :]
    size = blocks * LAYERS * PIECE
    sums: Sums = {}
    rows: dict[str, dict[str, float]] = {}
    # Every turn has names of its own: what is held is not saved again.
    with Pool(f"{3 * len(turns) * size // 2 + (1 << 30)}B") as pool:
        with pool.client() as client:
            cache = Cache(client, blocks, device, sums)
            out = [cache.move(("save", turn, whole))[0] for turn in turns]
            into = [cache.move(("load", turn, whole))[0] for turn in turns]
            rows["by itself"] = {"in": rate(size, into), "out": rate(size, out)}
            both = [cache.move(("save", 100 + turn, first), ("load", turn, second)) for turn in turns]
            out, into = ([times[way] for times in both] for way in range(2))
            rows["both at once"] = {"in": rate(size // 2, into), "out": rate(size // 2, out)}
            for turn in turns:  # what was saved meanwhile is what it was
                cache.move(("load", 100 + turn, first))
            cache.close()
        # To a client that uses no shared memory the node is on another host.
        with pool.client(local=False) as client:
            for name, where in (("network to the host's memory", None), ("network to the GPU", device)):
                far = Cache(client, blocks, where, sums)
                rows[name] = {"in": rate(size // 2, [far.move(("load", turn, second))[0] for turn in turns])}
                far.close()
    return rows


def rate(size: int, seconds: list[float]) -> float:
    """The first is a warm-up."""
    return size / median(seconds[1:])


def part(turn: int, blocks: range) -> tuple[int, str, int, bytes, bytes, int]:
    """Blocks, under names of this turn."""
    names = b"".join((turn << 32 | block).to_bytes(8) for block in blocks)
    return (0, "restores/", 8, names, b"".join(block.to_bytes(4, "little") for block in blocks), blocks.start)
