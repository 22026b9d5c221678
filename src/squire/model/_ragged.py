"""Ranges of unequal length, laid out flat."""

from __future__ import annotations

import torch
from torch import Tensor


def ragged(first: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of several ranges one after the other, each with the number of its range.  (position) × 2"""
    sizes = end - first
    row = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
    starts = sizes.cumsum(0) - sizes
    return row, torch.arange(len(row), device=sizes.device) - starts[row] + first[row]
