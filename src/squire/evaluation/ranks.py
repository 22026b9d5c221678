"""Ranks: the place of the right answer among all entities, filtered, with realistic ties.

Knows scores and ids; who made the scores is not its business.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from squire.graph.adjacency import Ids


def realistic_rank(scores: npt.NDArray[np.float64], answer: int, known: Ids) -> float:
    """The mean of the best and the worst rank that the ties allow.

    `known` are all true answers: they do not count as rivals. An answer that nothing reached ties with everything
    else that nothing reached, behind all that was.  scores: (entity)
    """
    score = scores[answer]
    above = np.count_nonzero(scores > score) - np.count_nonzero(scores[known] > score)
    equal = np.count_nonzero(scores == score) - np.count_nonzero(scores[known] == score)
    if answer not in known:
        equal -= 1  # itself
    return 1 + above + equal / 2
