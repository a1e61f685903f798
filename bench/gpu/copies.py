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
BYTES = 512 << 20
KIB = [8, 16, 32, 64, 128, 256, 512, 2048]


def rates(repeats: int) -> dict[str, Any]:
    """Rates by piece length, as parts of the rate of a copy of all in one piece; every byte is verified."""
    gpu = GpuCopies(0)
    device = torch.empty(SPACE, dtype=torch.uint8, device="cuda:0")
    path = f"/dev/shm/tidepool-copies-{os.getpid()}"
    with open(path, "w+b") as file:
        os.unlink(path)
        os.posix_fallocate(file.fileno(), 0, SPACE)
        shared = mmap.mmap(file.fileno(), SPACE)
        host = torch.frombuffer(shared, dtype=torch.uint8)
        host.copy_(torch.randint(0, 256, (SPACE,), dtype=torch.uint8))
        address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
        gpu.pin(address, SPACE)
        rows = {}
        for kib in [0, *KIB]:
            length = (kib << 10) or BYTES
            row = {}
            for name, to_gpu in (("in", True), ("out", False)):
                places = pieces(length, address, device.data_ptr())
                times = []
                for turn in range(repeats + 3):
                    seconds = gpu.copy(places, to_gpu)
                    if turn:
                        times.append(seconds)
                verify(places, host, address, device)
                row[f"{name} GB/s"] = BYTES / median(times) / 1e9
            rows[f"{kib} KiB" if kib else "one piece"] = row
        for kib in KIB:
            row = rows[f"{kib} KiB"]
            for number, name in enumerate(("in", "out")):
                row[f"{name} %"] = 100 * row[f"{name} GB/s"] / rows["one piece"][f"{name} GB/s"]
                row[f"{name} by"] = "kernel" if gpu.takes_kernel(kib << 10)[number] else "engine"
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


def pieces(length: int, host: int, device: int) -> list[tuple[int, int, int]]:
    draw = random.Random(length)
    count = BYTES // length
    places = [draw.sample(range(SPACE // length), count) for _ in range(2)]
    return [(host + a * length, device + b * length, length) for a, b in zip(*places, strict=True)]


def verify(places: list[tuple[int, int, int]], host: torch.Tensor, address: int, device: torch.Tensor) -> None:
    """Some of the pieces, and the first and the last: the same bytes on both sides."""
    draw = random.Random(1)
    for a, b, length in {places[0], places[-1], *draw.sample(places, min(64, len(places)))}:
        here = host[a - address : a - address + length]
        start = b - device.data_ptr()
        there = device[start : start + length].cpu()
        assert torch.equal(here, there), f"a piece of {length} bytes differs"
