"""Table a: scattered copies between pinned shared memory and the GPU, against one large copy in the same run."""

import ctypes
import mmap
import os
import random
from statistics import median
from typing import Any

import torch
from tidepool._native import GpuCopies

SPACE = 2 << 30
#: Of the space, what is copied.
PART = 4
KIB = [8, 16, 32, 64, 128, 256, 512, 1024, 2048]


def rates(repeats: int) -> dict[str, Any]:
    """Rates by piece length, as parts of the rate of a copy of all in one piece; every byte is verified."""
    # As in an engine, which has the GPU before the pool does.
    device = torch.empty(SPACE, dtype=torch.uint8, device="cuda:0")
    gpu = GpuCopies(0)
    path = f"/dev/shm/tidepool-copies-{os.getpid()}"
    with open(path, "w+b") as file:
        os.unlink(path)
        os.posix_fallocate(file.fileno(), 0, SPACE)
        shared = mmap.mmap(file.fileno(), SPACE)
        host = torch.frombuffer(shared, dtype=torch.uint8)
        gpu.pin(ctypes.addressof(ctypes.c_char.from_buffer(shared)), SPACE)
        rows = measured(gpu, host, device, repeats)
        at_start = [
            f"{length >> 10} KiB {'in' if to_gpu else 'out'}: kernel {kernel * 1e3:.2f}, engines {engine * 1e3:.2f} ms"
            for to_gpu, length, kernel, engine in gpu.measured()
        ]
        del gpu, host
    return {
        "unit": "512 MiB in pieces of this length, scattered over 2 GiB on both sides",
        "rows": rows,
        "measured at start, 512 MiB": at_start,
    }


def measured(gpu: Any, host: torch.Tensor, device: torch.Tensor, repeats: int) -> dict[str, dict[str, Any]]:
    """Rates both ways, in one piece and by piece length, and what the method would have done that was not chosen.

    What is copied is not there before, and the last of the copies is verified.
    """
    whole: int = host.numel() // PART
    host.copy_(device.random_())
    rows: dict[str, dict[str, Any]] = {"one piece": {}}
    for name, to_gpu in (("in", True), ("out", False)):

        def copied(places: list[tuple[int, int, int]], by_kernel: bool | None, to_gpu: bool = to_gpu) -> float:
            """Seconds, for bytes that are not there yet."""
            device.zero_() if to_gpu else device.random_()
            device[-1].item()  # waits for it
            seconds: float = gpu.copy(places, to_gpu, by_kernel)
            return seconds

        def rate(length: int, by_kernel: bool | None) -> float:
            places = pieces(length, host, device)
            times = [copied(places, by_kernel) for _ in range(repeats + 3)]
            verify(places, host, device)
            return whole / median(times[1:]) / 1e9

        at_most = rows["one piece"][f"{name} GB/s"] = rate(whole, None)
        for kib in KIB:
            is_kernels = gpu.takes_kernel(kib << 10)[not to_gpu]
            here, other = rate(kib << 10, None), rate(kib << 10, not is_kernels)
            rows.setdefault(f"{kib} KiB", {}).update(
                {
                    f"{name} GB/s": here,
                    f"{name} %": 100 * here / at_most,
                    f"{name} by": "kernel" if is_kernels else "engines",
                    f"{name} % by the other": 100 * other / at_most,
                }
            )
    return rows


def pieces(length: int, host: torch.Tensor, device: torch.Tensor) -> list[tuple[int, int, int]]:
    draw = random.Random(length)
    count = host.numel() // PART // length
    places = [draw.sample(range(host.numel() // length), count) for _ in range(2)]
    return [
        (host.data_ptr() + a * length, device.data_ptr() + b * length, length) for a, b in zip(*places, strict=True)
    ]


def verify(places: list[tuple[int, int, int]], host: torch.Tensor, device: torch.Tensor) -> None:
    """All pieces: the same bytes on both sides."""
    length = places[0][2]
    here = torch.tensor([(place[0] - host.data_ptr()) // length for place in places])
    there = torch.tensor([(place[1] - device.data_ptr()) // length for place in places], device=device.device)
    same = torch.equal(host.view(-1, length)[here], device.view(-1, length)[there].cpu())
    assert same, f"pieces of {length} bytes differ"
