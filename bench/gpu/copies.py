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
        gpu.pin(ctypes.addressof(ctypes.c_char.from_buffer(shared)), SPACE)
        rows = measured(gpu, host, device, repeats)
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


def measured(gpu: Any, host: torch.Tensor, device: torch.Tensor, repeats: int) -> dict[str, dict[str, Any]]:
    """Rates both ways, in one piece and by piece length.

    What is copied is not there before, so that a copy that brings nothing is found out.
    """
    whole = host.numel() // PART
    host.copy_(device.random_())
    rows = {}
    for kib in [0, *KIB]:
        length = (kib << 10) or whole
        row = {}
        for name, to_gpu in (("in", True), ("out", False)):
            device.zero_() if to_gpu else device.random_()
            device[-1].item()  # waits for it
            places = pieces(length, host, device)
            times = []
            for turn in range(repeats + 3):
                seconds = gpu.copy(places, to_gpu)
                if turn:
                    times.append(seconds)
            verify(places, host, device)
            row[f"{name} GB/s"] = whole / median(times) / 1e9
        rows[f"{kib} KiB" if kib else "one piece"] = row
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
