"""Small networks that map the features of a candidate to a score.

The scores of two networks are averaged. Each is the sum of a linear part, a linear part per relation, and two
hidden layers that also see an embedding of the relation. The ranker is trained to rank right answers first in
their lists (`fit_ranker`); `confidence` trains other networks to tell facts from other triples.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import linear as linear_map

from squire.core.parallel import as_done, thread_count
from squire.errors import CheckpointError
from squire.graph.adjacency import Ids, Offsets
from squire.ranking.features import CandidateLists, Feature, Features

Scores = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Progress = Callable[[int, int], None]  # done, total

CLIP = 5.0  # standard deviations at which values are clipped
LOG_FLOOR = 1e-3
ROWS_AT_ONCE = 1 << 16
DECIMALS = 4


@dataclass(frozen=True)
class NetworkOptions:
    """Size and training; the defaults are the ranker's, tuned on valid of NELL23K (docs/LOG.md)."""

    width: int = 32
    relation_width: int = 16
    dropout: float = 0.3
    epochs: int = 4
    batch_size: int = 64  # lists or candidates in a step
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    relation_weight_decay: float = 6.0  # of the linear part per relation: a few facts must not determine it
    networks: int = 2


class Dropout(nn.Module):
    """As `nn.Dropout`, with random bytes of its own: several times as fast, and networks can train on threads."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)
        self.dropped = round(256 * rate)  # of 256 bytes

    def forward(self, values: Tensor) -> Tensor:
        if not self.training or not self.dropped:
            return values
        chance = torch.frombuffer(bytearray(self.rng.bytes(values.numel())), dtype=torch.uint8)
        kept = (chance >= self.dropped).to(values.dtype).mul_(256 / (256 - self.dropped))
        return values * kept.view(values.shape)


class Network(nn.Module):
    """Maps the columns of a candidate and its relation to a score."""

    def __init__(self, columns: int, num_edge_types: int, options: NetworkOptions) -> None:
        super().__init__()
        width = options.width
        self.linear = nn.Linear(columns, 1)
        self.own_linear = nn.Embedding(num_edge_types, columns)
        self.relation = nn.Embedding(num_edge_types, options.relation_width)
        nn.init.zeros_(self.own_linear.weight)
        nn.init.normal_(self.relation.weight, std=0.1)
        self.layers = nn.Sequential(
            nn.Linear(columns + options.relation_width, width), nn.GELU(), Dropout(options.dropout),
            nn.Linear(width, width), nn.GELU(), Dropout(options.dropout),
            nn.Linear(width, 1),
        )  # fmt: skip

    def forward(self, columns: Tensor, relations: Tensor) -> Tensor:
        """(candidate, column), (candidate) -> (candidate)

        Or (list, candidate, column), (list, 1) -> (list, candidate), if all candidates of a list share a relation.
        """
        own = self.own_linear(relations) + self.linear.weight[0]
        linear = (columns @ own.mT).squeeze(-1) if columns.dim() == 3 else (columns * own).sum(-1)
        # What all candidates share is multiplied once, and columns need no gradient.
        first, size = self.layers[0], columns.shape[-1]
        assert isinstance(first, nn.Linear)
        shared = linear_map(self.relation(relations), first.weight[:, size:])
        deep = self.layers[1:](linear_map(columns, first.weight[:, :size], first.bias) + shared)
        scores: Tensor = linear + deep.squeeze(-1) + self.linear.bias
        return scores


class Networks:
    """Trained networks, with the standardisation of their inputs."""

    def __init__(
        self,
        table: Sequence[Feature],
        mean: Tensor,
        scale: Tensor,
        networks: Sequence[Network],
        options: NetworkOptions,
    ) -> None:
        self.table, self.options = tuple(table), options
        self.mean, self.scale = mean, scale  # (column)
        self.networks = [network.eval() for network in networks]

    def columns(self, features: Features) -> Tensor:
        """Standardised features and logarithms, clipped at CLIP.  (candidate, feature) -> (candidate, column)"""
        return with_logs(features, self.table).sub_(self.mean).div_(self.scale).clamp_(-CLIP, CLIP)

    def small_columns(self, features: Features) -> Tensor:
        """The same in 16 bits, of any number of candidates: enough to learn from."""
        out = torch.empty(len(features), count_columns(self.table), dtype=torch.half)
        for first in range(0, len(features), ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            out[rows] = self.columns(features[rows])
        return out

    @torch.inference_mode()
    def scores(self, features: Features, relations: Ids) -> Scores:
        """Logits, comparable within a list.  (candidate, feature), (candidate) -> (candidate)"""
        out = np.zeros(len(features))
        for first in range(0, len(features), ROWS_AT_ONCE):
            rows = slice(first, first + ROWS_AT_ONCE)
            columns, relation = self.columns(features[rows]), torch.from_numpy(relations[rows].astype(np.int64))
            out[rows] = sum(network(columns, relation).double() for network in self.networks) / len(self.networks)
        # Matrix products round differently by row; equal features must have equal scores.
        return np.round(out, DECIMALS)

    def scores_by_some(self, features: Features, relations: Ids, which: Bools) -> Scores:
        """The mean score of some networks for each candidate, at least one.  which: (candidate, network)"""
        total = np.zeros(len(features))
        for i, network in enumerate(self.networks):
            one, rows = Networks(self.table, self.mean, self.scale, [network], self.options), which[:, i]
            total[rows] += one.scores(features[rows], relations[rows])
        return np.asarray(np.round(total / which.sum(axis=1), DECIMALS))

    def tensors(self) -> dict[str, Tensor]:
        """All fitted tensors by name."""
        named = {"mean": self.mean, "scale": self.scale}
        for i, network in enumerate(self.networks):
            named |= {f"network{i}.{name}": tensor for name, tensor in network.state_dict().items()}
        return named

    @classmethod
    def from_tensors(
        cls,
        tensors: Mapping[str, Tensor],
        table: Sequence[Feature],
        num_edge_types: int,
        options: NetworkOptions,
    ) -> Networks:
        """Inverse of `tensors`."""
        columns = count_columns(table)
        try:
            networks = []
            for i in range(options.networks):
                network = Network(columns, num_edge_types, options)
                prefix = f"network{i}."
                own = {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}
                network.load_state_dict(own)
                networks.append(network)
            mean, scale = tensors["mean"], tensors["scale"]
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(f"its networks have another shape ({error}).") from None
        if mean.shape != (columns,) or scale.shape != (columns,):
            raise CheckpointError(
                f"its networks have {mean.numel()} columns, but this version of squire uses {columns}."
            )
        return cls(table, mean, scale, networks, options)


def count_columns(table: Sequence[Feature]) -> int:
    return len(table) + sum(feature.log for feature in table)


def with_logs(features: Features, table: Sequence[Feature]) -> Tensor:
    """The features, followed by the logarithms of some.  (candidate, feature) -> (candidate, column)"""
    plain = torch.from_numpy(features)
    out = torch.empty(len(plain), count_columns(table))
    out[:, : len(table)] = plain
    logs = out[:, len(table) :]
    logs.copy_(plain[:, [i for i, feature in enumerate(table) if feature.log]])
    logs.clamp_(min=0).add_(LOG_FLOOR).log_()
    return out


# ------------------------------------------------------------------------------------------------------ fitting

# Of some of the training examples, given by their numbers; the columns are those of all candidates.
Loss = Callable[[Tensor, Network, Offsets], Tensor]


def fit_ranker(
    lists: CandidateLists,
    right: Offsets,  # (list): position of the right answer among all candidates
    stands_for: Scores,  # (list): for how many each of its wrong candidates stands
    table: Sequence[Feature],
    num_edge_types: int,
    seed: int = 0,
    options: NetworkOptions | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Networks:
    """Train by the cross-entropy of a softmax over each list; deterministic for a seed."""

    def loss(columns: Tensor, network: Network, chosen: Offsets) -> Tensor:
        return _list_loss(columns, network, lists, right, log_weight, chosen)

    log_weight = np.log(stands_for).astype(np.float32)
    options = options or NetworkOptions()
    return fit_networks(
        lists.features, len(lists), loss, table, num_edge_types, seed, options, progress, threads=threads
    )


def fit_networks(
    features: Features,  # (candidate, feature)
    examples: int,
    loss: Loss,
    table: Sequence[Feature],
    num_edge_types: int,
    seed: int,
    options: NetworkOptions,
    progress: Progress | None = None,
    *,
    bias: float = 0.0,  # of the untrained networks
    unseen: Bools | None = None,  # (example, network): which networks do not see it
    threads: int | None = None,
) -> Networks:
    """Train networks side by side, by the loss of random batches of examples; deterministic for a seed."""
    mean, scale = _moments(features, table)
    fitted = Networks(table, mean, scale, [], options)
    columns = fitted.small_columns(features)
    parts = [np.arange(examples)] * options.networks
    if unseen is not None:
        parts = [np.flatnonzero(~unseen[:, number]) for number in range(options.networks)]
    steps = sum(options.epochs * -(-len(part) // options.batch_size) for part in parts)
    done = itertools.count(1)
    networks = []
    with torch.random.fork_rng(devices=[]):  # keeps the global random state
        for number in range(options.networks):
            torch.manual_seed(seed * options.networks + number)
            networks.append(Network(count_columns(table), num_edge_types, options))
            if bias:
                nn.init.constant_(networks[-1].linear.bias, bias)

    stopped = threading.Event()

    def fit(number: int) -> Network:
        with _one_thread():
            own = seed * options.networks + number
            for _ in _fit_network(networks[number], options, columns, parts[number], loss, own):
                if stopped.is_set():
                    break
                if progress:
                    progress(next(done), steps)
        return networks[number]

    found = dict(as_done(fit, options.networks, thread_count(threads), stopped))
    fitted.networks.extend(found[number].eval() for number in range(options.networks))
    return fitted


@contextmanager
def _one_thread() -> Iterator[None]:
    """For one network of this size several threads are no faster, and many times slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _moments(features: Features, table: Sequence[Feature]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column, computed in blocks to save memory."""
    total, squares = torch.zeros(2, count_columns(table), dtype=torch.float64)
    for first in range(0, len(features), ROWS_AT_ONCE):
        block = with_logs(features[first : first + ROWS_AT_ONCE], table).double()
        total += block.sum(0)
        squares += (block**2).sum(0)
    mean = total / len(features)
    deviation = (squares / len(features) - mean**2).clamp(min=0).sqrt()
    # A constant column has a deviation of almost 0, which must not amplify later values.
    return mean.float(), torch.where(deviation < 1e-6, 1.0, deviation).float()


def _fit_network(
    network: Network, options: NetworkOptions, columns: Tensor, examples: Offsets, loss: Loss, seed: int
) -> Iterator[None]:
    """Yields after every step. Without examples, as happens with a handful of facts, there is none."""
    if not len(examples):
        return
    for number, layer in enumerate(network.layers):
        if isinstance(layer, Dropout):
            layer.rng = np.random.default_rng([seed, number])
    own = list(network.own_linear.parameters())
    rest = [parameter for name, parameter in network.named_parameters() if not name.startswith("own_linear.")]
    optimizer = torch.optim.AdamW(
        [
            {"params": rest, "weight_decay": options.weight_decay},
            {"params": own, "weight_decay": options.relation_weight_decay},
        ],
        lr=options.learning_rate,
        fused=True,
    )
    batches = -(-len(examples) // options.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.learning_rate, total_steps=options.epochs * batches
    )
    rng = np.random.default_rng(seed)
    network.train()
    for _ in range(options.epochs):
        order = examples[rng.permutation(len(examples))]
        for first in range(0, len(order), options.batch_size):
            value = loss(columns, network, order[first : first + options.batch_size])
            optimizer.zero_grad()
            torch.autograd.backward(value)
            optimizer.step()
            schedule.step()
            yield


def _list_loss(
    columns: Tensor,  # (candidate, column)
    network: Network,
    lists: CandidateLists,
    right: Offsets,  # (list)
    log_weight: Features,  # (list): of the wrong candidates
    chosen: Offsets,  # (list of the batch)
) -> Tensor:
    """Mean cross-entropy of the right answers."""
    firsts, sizes = lists.offsets[chosen], np.diff(lists.offsets)[chosen]
    place = np.arange(
        int(sizes.max())
    )  # shorter lists are filled up with their last candidates, which do not count
    rows = firsts[:, None] + np.minimum(place, sizes[:, None] - 1)  # (list, candidate)
    chosen_columns = columns[torch.from_numpy(rows.ravel())].float().view(*rows.shape, -1)
    scores = network(chosen_columns, torch.from_numpy(lists.queries[chosen, 1:].astype(np.int64)))
    answer = right[chosen] - firsts
    weight = np.where(place < sizes[:, None], log_weight[chosen, None], np.float32(-np.inf))
    weight[np.arange(len(chosen)), answer] = 0
    of_answer = scores.gather(1, torch.from_numpy(answer)[:, None])[:, 0]
    loss: Tensor = ((scores + torch.from_numpy(weight)).logsumexp(1) - of_answer).mean()
    return loss
