"""Also of table a: ten GiB to the GPU and from it through the pool, as a connector moves them, without an engine.

And what a restore over the network takes, against the network by itself: the slower of the two, not the sum.
"""

import time
from statistics import median

import torch
from parts import Pool
from tidepool import Pool as Client
from tidepool._native import BlockTransfers

LAYERS = 32
#: One layer of a block of 64 tokens, of the shape that the other tables have.
PIECE = 256 << 10
BLOCKS = 1280


class Cache:
    """A KV cache whose layers lie apart, and what moves its blocks."""

    def __init__(self, client: Client, blocks: int, device: int | None) -> None:
        where = "cpu" if device is None else f"cuda:{device}"
        self.bytes = torch.empty((LAYERS, blocks, PIECE), dtype=torch.uint8, device=where)
        layout = [[(layer.data_ptr(), PIECE, PIECE) for layer in self.bytes]]
        self._moves = BlockTransfers(client, layout, blocks, self.bytes, device=device)
        self._sums: dict[int, torch.Tensor] = {}

    def moved(self, *, save: int | None = None, load: int | None = None, blocks: range | None = None) -> float:
        """Seconds for a save under the names of a turn, for a load of another's, or for both at once.

        Both have ``blocks``: where both are asked for, a save the first half of them and a load the second.
        """
        moved = blocks or range(self.bytes.shape[1])
        half = len(moved) // 2
        saved, loaded = (moved[:half], moved[half:]) if save is not None and load is not None else (moved, moved)
        if save is not None:
            self.bytes[:, saved.start : saved.stop].random_()
            self._sums[save] = self._summed(saved)
        if load is not None:
            self.bytes[:, loaded.start : loaded.stop].zero_()
        if self.bytes.is_cuda:
            torch.cuda.synchronize()
        began = time.perf_counter()
        if save is not None:
            self._moves.save(1, [part(save, saved)])
        if load is not None:
            self._moves.load(2, [part(load, loaded)])
        self._wait((save is not None) + (load is not None))
        seconds = time.perf_counter() - began
        if load is not None:
            assert torch.equal(self._sums[load], self._summed(loaded)), f"load {load} brought other bytes"
        return seconds

    def knows(self, other: "Cache") -> None:
        """What another has saved."""
        self._sums |= other._sums

    def _wait(self, jobs: int) -> None:
        until = time.monotonic() + 60
        while jobs > 0:
            assert time.monotonic() < until, "a job is never over"
            for _, _, failed in self._moves.poll():
                assert not failed, f"{len(failed)} blocks were not moved: {BlockTransfers.warnings()}"
                jobs -= 1
            time.sleep(0.0002)

    def _summed(self, blocks: range) -> torch.Tensor:
        """A sum of each piece that a byte in another place changes, too."""
        words = self.bytes[:, blocks.start : blocks.stop].view(torch.int64)
        places = torch.arange(1, words.shape[2] * 2, 2, device=words.device)
        # Layer by layer: the products take as much memory as what is summed.
        return torch.stack([(layer * places).sum(dim=1) for layer in words]).cpu()

    def close(self) -> None:
        self._moves.close()


def rates(repeats: int, blocks: int = BLOCKS, device: int | None = 0) -> dict[str, dict[str, float]]:
    """Bytes a second, in and out: straight, both at once, and over the network; every byte is verified."""
    turns = range(repeats + 1)
    size, half = blocks * LAYERS * PIECE, range(blocks // 2, blocks)
    rows: dict[str, dict[str, float]] = {}
    # Every turn has names of its own: what is held is not saved again.
    with Pool(f"{3 * len(turns) * size // 2 + (1 << 30)}B") as pool:
        settings = pool.connector()["kv_connector_extra_config"]
        with Client.connect(settings["catalogs"], dir=settings["dir"]) as client:
            cache = Cache(client, blocks, device)
            out = [cache.moved(save=turn) for turn in turns]
            rows["by itself"] = {"in": rate(size, [cache.moved(load=turn) for turn in turns]), "out": rate(size, out)}
            # The second halves of what was saved, and new names beside them.
            for turn in turns:
                cache._sums[turn] = cache._sums[turn][:, half.start :]
            both = [cache.moved(save=100 + turn, load=turn) for turn in turns]
            rows["both at once"] = {"in": rate(size // 2, both), "out": rate(size // 2, both)}
            cache.close()
        # To a client that uses no shared memory the node is on another host.
        with Client.connect(settings["catalogs"], dir=settings["dir"], local=False) as client:
            for name, where in (("network to the host's memory", None), ("network to the GPU", device)):
                far = Cache(client, blocks, where)
                far.knows(cache)
                rows[name] = {"in": rate(size // 2, [far.moved(load=turn, blocks=half) for turn in turns])}
                far.close()
    return rows


def rate(size: int, seconds: list[float]) -> float:
    """The first is a warm-up."""
    return size / median(seconds[1:])


def part(turn: int, blocks: range) -> tuple[int, str, int, bytes, bytes]:
    """Blocks, under names of this turn."""
    names = b"".join((turn << 32 | block).to_bytes(8) for block in blocks)
    return (0, "restores/", 8, names, b"".join(block.to_bytes(4, "little") for block in blocks))
