"""How long and how fast each iteration of Algorithm 1 trains, and the learning rate of each step.

Pure functions of the recipe and the step, so a resumed run needs nothing but its position.
"""

from __future__ import annotations

from dataclasses import dataclass

from squire.model.recipe import Recipe


@dataclass(frozen=True)
class Phase:
    """The training of one iteration; epochs are counted through all of them."""

    iteration: int  # k of Algorithm 1, from 1
    first_epoch: int
    last_epoch: int  # the first that is not its own
    peak: float  # of the learning rate


def phases(recipe: Recipe) -> list[Phase]:
    """Lines 4, 5 and 16 of Algorithm 1: n epochs, then n / k (rounded down, at least 1) for k = 2 … N.

    N is the longest path. Without iterative training there is one phase, and so with paths of a single hop.
    """
    train, found, epoch = recipe.train, [], 0
    for k in range(1, recipe.paths.hops + 1 if train.iterate else 2):
        peak = train.learning_rate * (train.iterate_learning_rate if k > 1 else 1.0)
        epochs = max(1, train.epochs // k)
        found.append(Phase(k, epoch, epoch + epochs, peak))
        epoch += epochs
    return found


def learning_rate(step: int, total_steps: int, peak: float, warmup: float) -> float:
    """Linear warm-up over the first `warmup` (α) of the steps, then linear decay to 0 (Appendix A).

    Decoder are counted from 0. The rate is 0 just before the first and just after the last, so none is in vain,
    not even in a run of one step; after the last it stays 0.
    """
    if step >= total_steps:
        return 0.0
    rising = warmup * total_steps
    up = (step + 1) / rising if rising else 1.0
    down = (total_steps - step) / (total_steps - rising) if rising < total_steps else 1.0
    return peak * min(up, down, 1.0)
