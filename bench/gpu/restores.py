"""Also of table a: ten GiB to the GPU and from it through the pool, as a connector moves them, without an engine."""

import time
from collections.abc import Callable
from statistics import median

import torch
from parts import Pool
from tidepool import Pool as Client
from tidepool._native import BlockTransfers

LAYERS = 32
#: One layer of a block of 64 tokens, of the shape that the other tables have.
PIECE = 256 << 10
BLOCKS = 1280


def rates(repeats: int, blocks: int = BLOCKS, device: int | None = 0) -> dict[str, float]:
    """Bytes a second of restores (in) and of saves (out); every byte is verified."""
    where = "cpu" if device is None else f"cuda:{device}"
    cache = torch.empty((LAYERS, blocks, PIECE), dtype=torch.uint8, device=where)
    layout = [[(layer.data_ptr(), PIECE, PIECE) for layer in cache]]
    sums = torch.empty((repeats + 1, LAYERS, blocks), dtype=torch.int64)
    times: dict[str, list[float]] = {"in": [], "out": []}
    # Every repeat has keys of its own: what is held is not saved again.
    with Pool(f"{(repeats + 1) * cache.numel() + (1 << 30)}B") as pool:
        settings = pool.connector()["kv_connector_extra_config"]
        with Client.connect(settings["catalogs"], dir=settings["dir"]) as client:
            moves = BlockTransfers(client, layout, blocks, cache, device=device)
            for turn in range(repeats + 1):
                cache.random_()
                sums[turn] = summed(cache)
                times["out"].append(took(moves, moves.save, part(turn, blocks)))
            for turn in range(repeats + 1):
                cache.zero_()
                times["in"].append(took(moves, moves.load, part(turn, blocks)))
                assert torch.equal(sums[turn], summed(cache)), f"restore {turn} brought other bytes"
            moves.close()
    return {way: cache.numel() / median(seconds[1:]) for way, seconds in times.items()}


def part(turn: int, blocks: int) -> tuple[int, str, int, bytes, bytes]:
    """All blocks, under keys of this turn."""
    keys = b"".join((turn << 32 | block).to_bytes(8) for block in range(blocks))
    return (0, "restores/", 8, keys, b"".join(block.to_bytes(4, "little") for block in range(blocks)))


def took(moves: BlockTransfers, begin: Callable[..., None], moved: tuple[int, str, int, bytes, bytes]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    begin(1, [moved])
    while not (over := moves.poll()):
        assert time.perf_counter() - began < 60, "a job is never over"
        time.sleep(0.0002)
    seconds = time.perf_counter() - began
    [(_, _, failed)] = over
    assert not failed, f"{len(failed)} blocks were not moved: {BlockTransfers.warnings()}"
    return seconds


def summed(cache: torch.Tensor) -> torch.Tensor:
    """A sum of each piece that a byte in another place changes, too."""
    words = cache.view(torch.int64)
    places = torch.arange(1, words.shape[2] * 2, 2, device=cache.device)
    # Layer by layer: the products take as much memory as what is summed.
    return torch.stack([(layer * places).sum(dim=1) for layer in words]).cpu()
