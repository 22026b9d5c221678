"""The epochs of each iteration of Algorithm 1, and the learning rate of each step.

Pure functions of the recipe and the step, so a resumed run needs only its position.
"""

from __future__ import annotations

from dataclasses import dataclass

from squire.model.recipe import Recipe


@dataclass(frozen=True)
class Phase:
    """The training of one iteration. Epochs are numbered across all phases."""

    iteration: int  # k of Algorithm 1, from 1
    first_epoch: int
    last_epoch: int  # exclusive
    learning_rate: float  # the peak of the schedule


def phases(recipe: Recipe) -> list[Phase]:
    """Lines 4, 5 and 16 of Algorithm 1: n epochs, then n / k (rounded down, at least 1) for k = 2 … N.

    N is the longest path. Without iterative training, or with paths of a single hop, there is one phase.
    """
    train, found, epoch = recipe.train, [], 0
    for k in range(1, recipe.paths.hops + 1 if train.iterate else 2):
        learning_rate = train.learning_rate * (train.iterate_learning_rate if k > 1 else 1.0)
        epochs = max(1, train.epochs // k)
        found.append(Phase(k, epoch, epoch + epochs, learning_rate))
        epoch += epochs
    return found


def learning_rate(step: int, total_steps: int, peak: float, warmup: float) -> float:
    """Linear warm-up over the first `warmup` (α) of the steps, then linear decay to 0 (Appendix A).

    Steps are counted from 0. The rate would be 0 just before the first and just after the last step, so every step
    learns, even in a run of one step.
    """
    if step >= total_steps:
        return 0.0
    rising = warmup * total_steps
    up = (step + 1) / rising if rising else 1.0
    down = (total_steps - step) / (total_steps - rising) if rising < total_steps else 1.0
    return peak * min(up, down, 1.0)
