"""The loss of the paper (§3.2, Eq. 4) on prefix trees, with label smoothing, without dense targets.

Eq. 4 gives the target the weight ε and spreads 1 − ε over the other classes. Summed over all paths through a
token, where q are the weights of the tokens that follow it and W is their sum, this is

    W · logsumexp(z) − (ε − u) · Σ_t q_t z_t − u · W · Σ_i z_i,      u = (1 − ε) / (classes − 1),

so that smoothing needs no dense targets. If the classes are a sample in which i stands for c_i classes, both sums
over classes are estimated: Σ_i c_i exp(z_i), whose logarithm is logsumexp(z + log c), and Σ_i c_i z_i.

The gradient is computed in the forward pass, one block of rows at a time: at most ROWS_AT_ONCE × classes logits
are in memory, and no product is computed twice. Under autocast the three products are in its 16 bits, and all sums
over classes or targets in 32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from squire.model.batches import Targets
from squire.model.prior import Prior

ROWS_AT_ONCE = 256


def trie_loss(
    states: Tensor,  # (source, dim): the predicting states
    classes: Tensor,  # (class, dim): the embeddings to choose from
    targets: Targets,  # its tokens are numbers of classes
    smoothing: float,  # ε: the target's weight
    prior: Prior | None = None,
    prior_scale: Tensor | None = None,  # (edge type): learned factor of the prior
    counts: Tensor | None = None,  # (class): for a sample, how many classes each stands for; 1 for a target
    num_classes: int | None = None,  # for a sample, the number of all classes
) -> Tensor:
    """The summed loss of all targets, a scalar."""
    others = (num_classes or len(classes)) - 1
    if not others:  # a graph with one entity: nothing to spread the rest over
        smoothing = 1.0
    spread = (1 - smoothing) / max(others, 1)  # u
    on = states.device.type
    products = torch.get_autocast_dtype(on) if torch.is_autocast_enabled(on) else None
    arguments = (states.float(), classes, prior_scale, targets, smoothing, spread, prior, counts, products)
    with torch.autocast(on, enabled=False):
        loss: Tensor = _TrieLoss.apply(*arguments)  # type: ignore[no-untyped-call]
    return loss


class _TrieLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        classes: Tensor,
        scale: Tensor | None,
        targets: Targets,
        smoothing: float,
        spread: float,
        prior: Prior | None,
        counts: Tensor | None,
        products: torch.dtype | None,
    ) -> Tensor:
        row, relations = targets.row, targets.relation
        weights = torch.zeros(len(states), dtype=states.dtype, device=states.device)
        total = weights.index_add_(0, row, targets.weight)  # W
        firsts = torch.arange(0, len(states) + ROWS_AT_ONCE, ROWS_AT_ONCE, device=row.device)
        bounds: list[int] = torch.searchsorted(row, firsts).tolist()
        to_states, to_classes = torch.empty_like(states), torch.zeros_like(classes)
        to_scale = None if scale is None else torch.zeros_like(scale)
        buffer = states.new_empty(min(ROWS_AT_ONCE, len(states)), len(classes))  # reused: new pages are slow
        short, factors = buffer, (states, classes)
        if products:
            short, factors = buffer.to(products), (states.to(products), classes.to(products))
        loss = states.new_zeros((), dtype=torch.float64)
        for block, first in enumerate(range(0, len(states), ROWS_AT_ONCE)):
            rows = slice(first, first + ROWS_AT_ONCE)
            own = slice(bounds[block], bounds[block + 1])
            at, to, w = row[own] - first, targets.token[own], targets.weight[own]
            own_states, own_short = factors[0][rows], short[: len(states) - first]
            logits = torch.mm(own_states, factors[1].T, out=own_short)  # (row, class)
            if products:
                logits = buffer[: len(states) - first].copy_(logits)
            if prior is not None and scale is not None:
                p_row, p_class, p_value = prior.entries(relations[rows])
                p_scaled = p_value * scale[relations[rows][p_row]]
                logits.index_put_((p_row, p_class), p_scaled, accumulate=True)
            loss -= (smoothing - spread) * (w * logits[at, to]).sum()
            loss -= spread * (total[rows] * (logits.sum(1) if counts is None else logits @ counts)).sum()
            if counts is not None:
                logits += counts.log()
            highest = logits.amax(1)  # (row)
            partition = logits.sub_(highest[:, None]).exp_().sum(1)
            loss += (total[rows] * (highest + partition.log())).sum()
            # From here on `logits` holds the gradient: W · (p − u · c), minus (ε − u) · q at the targets.
            logits.mul_((total[rows] / partition)[:, None])
            if counts is None:
                logits.sub_(spread * total[rows][:, None])
            else:
                logits.addr_(total[rows], counts, alpha=-spread)
            logits.index_put_((at, to), -(smoothing - spread) * w, accumulate=True)
            if products:
                own_short.copy_(logits)
                to_states[rows] = torch.mm(own_short, factors[1])
                to_classes += torch.mm(own_short.T, own_states)
            else:
                torch.mm(logits, classes, out=to_states[rows])
                to_classes.addmm_(logits.T, states[rows])
            if prior is not None and to_scale is not None:
                to_scale.index_add_(0, relations[rows][p_row], logits[p_row, p_class] * p_value)
        ctx.save_for_backward(to_states, to_classes, to_scale)
        return loss.to(states.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        to_states, to_classes, to_scale = ctx.saved_tensors
        scaled = None if to_scale is None else to_scale * gradient
        return to_states * gradient, to_classes * gradient, scaled, *[None] * 6
