"""The learning rate of each step. A pure function, so a resumed run needs nothing but its step."""

from __future__ import annotations


def learning_rate(step: int, total_steps: int, peak: float, warmup: float) -> float:
    """Linear warm-up over the first `warmup` (α) of the steps, then linear decay to 0 (Appendix A).

    Steps are counted from 0. The rate is 0 just before the first and just after the last, so none is in vain,
    not even in a run of one step; after the last it stays 0.
    """
    if step >= total_steps:
        return 0.0
    rising = warmup * total_steps
    up = (step + 1) / rising if rising else 1.0
    down = (total_steps - step) / (total_steps - rising) if rising < total_steps else 1.0
    return peak * min(up, down, 1.0)
