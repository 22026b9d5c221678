"""Where products of matrices are computed in bfloat16: on GPUs, and on processors that have instructions for it.

Such products are two to three times as fast on a CPU with AVX512-BF16 (docs/LOG.md). Sums, softmax and weights
keep their 32 bits. Small products gain nothing, so small models keep 32 bits everywhere.
"""

from __future__ import annotations

import torch

LEAST_DIM = 128


def training_precision(device: torch.device, dim: int) -> torch.autocast:
    """The context in which to compute the loss of a model of this width."""
    return torch.autocast(device.type, torch.bfloat16, enabled=use_bfloat16(device, dim))


def use_bfloat16(device: torch.device, dim: int) -> bool:
    """Whether to train a model of this width with products in bfloat16."""
    if device.type != "cpu":
        return device.type == "cuda"
    checks = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return dim >= LEAST_DIM and any(check is not None and check() for check in checks)
