"""The ranker: from the features of a candidate to one score, fitted so that right answers lead their lists.

Two small networks whose scores are averaged, each a linear part, a linear part of the relation's own, and two
hidden layers that also see an embedding of the relation. Knows columns and relations as numbers; what a column
means stands in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from squire.core.ragged import ranges
from squire.errors import CheckpointError
from squire.graph.adjacency import Ids, Offsets
from squire.ranking.features import CandidateLists
from squire.ranking.table import Feature, Features

Scores = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]  # done, total

FAR = 5.0  # standard deviations beyond which a value is cut
LOG_FLOOR = 1e-3
ROWS_AT_ONCE = 1 << 16
DECIMALS = 4


@dataclass(frozen=True)
class RankerOptions:
    """Chosen on valid of NELL23K (docs/LOG.md)."""

    width: int = 32
    relation_width: int = 16
    dropout: float = 0.3
    epochs: int = 4
    lists: int = 64  # a step
    rate: float = 2e-3
    decay: float = 1e-3
    relation_decay: float = 6.0  # of the relation's own linear part, which few facts must not decide
    networks: int = 2


class Network(nn.Module):
    """Columns of a candidate and the number of its relation -> a score."""

    def __init__(self, columns: int, num_edge_relations: int, options: RankerOptions) -> None:
        super().__init__()
        width = options.width
        self.linear = nn.Linear(columns, 1)
        self.own_linear = nn.Embedding(num_edge_relations, columns)
        self.relation = nn.Embedding(num_edge_relations, options.relation_width)
        nn.init.zeros_(self.own_linear.weight)
        nn.init.normal_(self.relation.weight, std=0.1)
        self.layers = nn.Sequential(
            nn.Linear(columns + options.relation_width, width), nn.GELU(), nn.Dropout(options.dropout),
            nn.Linear(width, width), nn.GELU(), nn.Dropout(options.dropout),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, columns: Tensor, relations: Tensor) -> Tensor:
        """(candidate, column), (candidate) -> (candidate)"""
        own = (self.own_linear(relations) * columns).sum(1)
        deep = self.layers(torch.cat([columns, self.relation(relations)], dim=1))
        scores: Tensor = (self.linear(columns) + deep).squeeze(1) + own
        return scores


class Ranker:
    """Networks that were fitted, and how their columns are made from features."""

    def __init__(
        self,
        table: Sequence[Feature],
        mean: Tensor,
        scale: Tensor,
        networks: Sequence[Network],
        options: RankerOptions,
    ) -> None:
        self.table, self.options = tuple(table), options
        self.mean, self.scale = mean, scale  # (column)
        self.networks = [network.eval() for network in networks]

    def columns(self, features: Features) -> Tensor:
        """(candidate, feature) -> (candidate, column): with logarithms, of mean 0 and deviation 1, cut at FAR"""
        return ((with_logs(features, self.table) - self.mean) / self.scale).clamp(-FAR, FAR)

    @torch.inference_mode()
    def scores(self, features: Features, relations: Ids) -> Scores:
        """(candidate, feature), (candidate) -> (candidate): logits, comparable within a list"""
        out = np.zeros(len(features))
        for first in range(0, len(features), ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            columns, relation = self.columns(features[rows]), torch.from_numpy(relations[rows].astype(np.int64))
            out[rows] = sum(network(columns, relation).double() for network in self.networks) / len(self.networks)
        # Products round by where a row stands among others: the same features must have the same score.
        return np.round(out, DECIMALS)

    def tensors(self) -> dict[str, Tensor]:
        """Everything that was fitted, by name."""
        named = {"mean": self.mean, "scale": self.scale}
        for i, network in enumerate(self.networks):
            named |= {f"network{i}.{name}": tensor for name, tensor in network.state_dict().items()}
        return named

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        table: Sequence[Feature],
        num_edge_relations: int,
        options: RankerOptions,
    ) -> Ranker:
        """Inverse of `tensors`."""
        columns = count_columns(table)
        try:
            networks = []
            for i in range(options.networks):
                network = Network(columns, num_edge_relations, options)
                prefix = f"network{i}."
                own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
                network.load_state_dict(own)
                networks.append(network)
            mean, scale = tensors["mean"], tensors["scale"]
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(f"the ranker's weights are of another form ({error}).") from None
        if mean.shape != (columns,) or scale.shape != (columns,):
            raise CheckpointError(f"the ranker has {mean.numel()} columns, this squire makes {columns}.")
        return cls(table, mean, scale, networks, options)


def count_columns(table: Sequence[Feature]) -> int:
    return len(table) + sum(feature.log for feature in table)


def with_logs(features: Features, table: Sequence[Feature]) -> Tensor:
    """The features, and logarithms of some.  (candidate, feature) -> (candidate, column)"""
    plain = torch.from_numpy(features)
    logs = plain[:, [i for i, feature in enumerate(table) if feature.log]]
    return torch.cat([plain, (logs.clamp(min=0) + LOG_FLOOR).log()], dim=1)


# ------------------------------------------------------------------------------------------------------ fitting


def fit_ranker(
    lists: CandidateLists,
    right: Offsets,  # (query): position of the right answer among all candidates
    table: Sequence[Feature],
    num_edge_relations: int,
    seed: int = 0,
    options: RankerOptions | None = None,
    progress: Progress | None = None,
) -> Ranker:
    """Networks under which the right answers are likely: softmax over each list, the same for the same seed."""
    options = options or RankerOptions()
    mean, scale = _moments(lists.features, table)
    ranker = Ranker(table, mean, scale, [], options)
    steps = options.networks * options.epochs * -(-len(lists) // options.lists)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, steps)

    with torch.random.fork_rng(devices=[]):  # what others draw is not disturbed
        for number in range(options.networks):
            torch.manual_seed(seed * options.networks + number)
            network = Network(count_columns(table), num_edge_relations, options)
            _fit_network(network, ranker, lists, right, seed * options.networks + number, step)
            ranker.networks.append(network.eval())
    return ranker


def _moments(features: Features, table: Sequence[Feature]) -> tuple[Tensor, Tensor]:
    """Mean and deviation of each column, in blocks: the logarithms of all rows need not be in memory."""
    total, squares = torch.zeros(2, count_columns(table), dtype=torch.float64)
    for first in range(0, len(features), ROWS_AT_ONCE):
        block = with_logs(features[first : first + ROWS_AT_ONCE], table).double()
        total += block.sum(0)
        squares += (block**2).sum(0)
    mean = total / len(features)
    deviation = (squares / len(features) - mean**2).clamp(min=0).sqrt()
    # A column that never varied says nothing: its deviation of almost 0 must not blow up what it is later.
    return mean.float(), torch.where(deviation < 1e-6, 1.0, deviation).float()


def _fit_network(
    network: Network, ranker: Ranker, lists: CandidateLists, right: Offsets, seed: int, step: Callable[[], None]
) -> None:
    options = ranker.options
    own = list(network.own_linear.parameters())
    rest = [parameter for name, parameter in network.named_parameters() if not name.startswith("own_linear.")]
    optimizer = torch.optim.AdamW(
        [
            {"params": rest, "weight_decay": options.decay},
            {"params": own, "weight_decay": options.relation_decay},
        ],
        lr=options.rate,
    )
    batches = -(-len(lists) // options.lists)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, total_steps=options.epochs * batches)
    rng = np.random.default_rng(seed)
    network.train()
    for _ in range(options.epochs):
        order = rng.permutation(len(lists))
        for first in range(0, len(order), options.lists):
            loss = _loss(network, ranker, lists, right, order[first : first + options.lists])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            step()


def _loss(network: Network, ranker: Ranker, lists: CandidateLists, right: Offsets, chosen: Offsets) -> Tensor:
    """Mean negative log likelihood of the right answers.  chosen: (list)"""
    firsts, sizes = lists.offsets[chosen], np.diff(lists.offsets)[chosen]
    begins = np.cumsum(sizes) - sizes
    rows = ranges(firsts, sizes)
    relations = torch.from_numpy(np.repeat(lists.queries[chosen, 1], sizes).astype(np.int64))
    scores = network(ranker.columns(lists.features[rows]), relations)
    padded = pad_sequence(scores.split(sizes.tolist()), batch_first=True, padding_value=-torch.inf)
    answers = torch.from_numpy(right[chosen] - firsts + begins)
    loss: Tensor = (padded.logsumexp(1) - scores[answers]).mean()
    return loss
