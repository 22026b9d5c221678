"""The machine's own limit: the peak of a matrix product."""

from __future__ import annotations

import time

import torch


def gemm_gflops(size: int = 2048, repeats: int = 8) -> float:
    """The best of some products of two square matrices."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best / 1e9
