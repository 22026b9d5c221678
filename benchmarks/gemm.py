"""The machine's own limit, the peak of a matrix product, and the speed of the authors' code in relation to it."""

from __future__ import annotations

import time

import torch

# The authors' code at the paper's size on NELL23K, measured beside ours on a machine with this peak.
AUTHORS_GEMM_GFLOPS, AUTHORS_SEQUENCES_PER_SECOND, AUTHORS_QUERIES_PER_SECOND = 180.0, 149.0, 0.112


def gemm_gflops(size: int = 2048, repeats: int = 8) -> float:
    """The best of some products of two square matrices."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    best = float("inf")
    for _ in range(repeats):
        began = time.perf_counter()
        torch.mm(a, b)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best / 1e9


def times_the_authors(rate: float, authors_rate: float, peak: float) -> float:
    """How often a rate exceeds that of the authors' code, scaled to the peak of the machine of this run."""
    return round(rate / (authors_rate * peak / AUTHORS_GEMM_GFLOPS), 1)
