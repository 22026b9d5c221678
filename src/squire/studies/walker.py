"""The walkers that the paper compares with: a policy that walks from entity to entity, trained by its rewards.

One policy, four sets of switches. MINERVA: an LSTM reads the walk, and scores of the current entity's edges say
where to go; REINFORCE rewards walks that end at the answer. MultiHopKG: edges are dropped at random in training,
and wrong ends are rewarded by what an embedding model thinks of them. RuleGuider: walks along mined rules are
rewarded. DacKGR: the policy sees the embedding model's guesses, and walks edges that this model adds to the graph.

At test time a beam search collects paths. They are ranked and graded like those of our model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from squire.core.relations import both_directions, is_inverse
from squire.evaluation.paths import rank_blocks
from squire.evaluation.queries import QuerySet
from squire.evaluation.ranks import Ranks
from squire.graph.adjacency import Adjacency, Ids
from squire.graph.graph import Graph
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import NONE, ClosedIndex
from squire.search.beam import FinishedPaths
from squire.search.decoding import PathRanking, rank_answers
from squire.search.options import DecodingOptions
from squire.studies.compared_methods import Learned, Task
from squire.studies.early_stopping import BestWeights
from squire.studies.embeddings import Embedding, train_embedding

EMBEDDING_SHARE = 0.3  # of the time, for the embedding model of those that use one
MINING_SHARE = 0.1  # for mining the rules that are rewarded
GUESSES = 10  # of the embedding model, that the policy sees
ADDED_EDGES = 3  # by the embedding model, of each entity
QUERIES_AT_ONCE = 32  # of the beam search
LEAST_SCORE = -80.0  # log-probability of a walk, below which it is ignored: its probability would round to 0
State = tuple[Tensor, Tensor]  # of the LSTM, (walk, 2 · dim) each


@dataclass(frozen=True)
class WalkerOptions:
    """The switches, and the size of everything."""

    edge_dropout: float = 0.0  # share of the edges that a step of training does not see
    shaping: bool = False  # wrong ends have the reward that the embedding model gives them
    rule_weight: float = 0.0  # of following a rule, in the reward
    guesses: bool = False  # the policy sees what the embedding model guesses
    added_edges: bool = False  # the graph has edges that the embedding model has added
    hops: int = 3
    dim: int = 64
    batch: int = 128  # queries
    rollouts: int = 12  # walks of each
    most_edges: int = 128  # of an entity, drawn at random
    learning_rate: float = 2e-3
    entropy: float = 0.02  # weight of the policy's entropy, so that it keeps exploring
    beam: int = 64

    @property
    def uses_embedding(self) -> bool:
        return self.shaping or self.guesses or self.added_edges


VARIANTS = {
    "MINERVA": WalkerOptions(),
    "MultiHopKG": WalkerOptions(edge_dropout=0.3, shaping=True),
    "RuleGuider": WalkerOptions(edge_dropout=0.3, rule_weight=0.5),
    "DacKGR": WalkerOptions(edge_dropout=0.3, shaping=True, guesses=True, added_edges=True),
}


# ------------------------------------------------------------------------------------------------- the graph


class WalkEdges:
    """The edges that a walk may take, of each entity in a row; the first stays where it is."""

    def __init__(self, adjacency: Adjacency, most: int, rng: np.random.Generator) -> None:
        n, self.stay = adjacency.num_entities, 2 * adjacency.num_relations
        # The edges of each entity in random order, of which the first `most` are kept.
        order = np.lexsort((rng.random(adjacency.num_edges), adjacency.heads))
        place = np.arange(adjacency.num_edges) - adjacency.offsets[adjacency.heads]
        order = order[place < most]
        entities = np.arange(n)
        heads = np.concatenate([entities, adjacency.heads[order]])
        by_head = np.argsort(heads, kind="stable")
        relations = np.concatenate([np.full(n, self.stay), adjacency.relations[order]])
        tails = np.concatenate([entities, adjacency.tails[order]])
        self.relations, self.tails = (torch.from_numpy(x[by_head].astype(np.int64)) for x in (relations, tails))
        self.sizes = torch.from_numpy(np.bincount(heads, minlength=n).astype(np.int64))
        self.offsets = torch.cumsum(self.sizes, 0) - self.sizes

    def of(self, entities: Tensor) -> tuple[Tensor, Tensor]:
        """All edges of these entities: the row each belongs to, and its number.  (row) -> (edge), (edge)"""
        sizes = self.sizes[entities]
        row = torch.repeat_interleave(torch.arange(len(entities)), sizes)
        before = torch.cumsum(sizes, 0) - sizes
        return row, torch.arange(len(row)) - before[row] + self.offsets[entities][row]


def _with_added_edges(graph: Graph, embedding: Embedding) -> Adjacency:
    """Train and, of each entity, the most probable edges of the types that it has already."""
    entities, offsets = graph.train.starts
    relation = np.repeat(np.arange(2 * graph.num_relations), np.diff(offsets))
    queries = np.stack([entities, relation], axis=1).astype(np.int32)
    best = np.empty(len(queries), np.int32), np.empty(len(queries))  # tail, probability
    for first in range(0, len(queries), 256):
        block = queries[first : first + 256]
        scores = torch.from_numpy(embedding.scores(block)).log_softmax(1).numpy()
        for i, (head, edge_type) in enumerate(block.tolist()):
            scores[i, graph.train.tails_of(head, edge_type)] = -np.inf
            best[0][first + i], best[1][first + i] = scores[i].argmax(), scores[i].max()
    order = np.lexsort((-best[1], queries[:, 0]))
    head = queries[order, 0]
    place = np.arange(len(head)) - np.searchsorted(head, head)
    chosen = order[place < ADDED_EDGES]
    backward = is_inverse(queries[chosen, 1], graph.num_relations)
    edges = np.stack([queries[chosen, 0], queries[chosen, 1], best[0][chosen]], axis=1)
    edges[backward] = edges[backward][:, ::-1]
    edges[backward, 1] -= graph.num_relations
    return graph.adjacency(np.concatenate([graph.train.triples, edges]))


# ------------------------------------------------------------------------------------------------- the policy


class Policy(nn.Module):
    """Reads a walk, and scores the edges that leave its last entity."""

    def __init__(self, num_entities: int, num_edge_types: int, options: WalkerOptions) -> None:
        super().__init__()
        dim = options.dim
        self.entity = nn.Embedding(num_entities, dim)
        self.relation = nn.Embedding(num_edge_types + 1, dim)  # the last one stays
        for table in (self.entity, self.relation):
            nn.init.xavier_normal_(table.weight)
        self.walk = nn.LSTMCell(2 * dim, 2 * dim)
        self.decide = nn.Sequential(
            nn.Linear((4 + options.guesses) * dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, 2 * dim)
        )

    def read(
        self, relations: Tensor, entities: Tensor, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """The state after one more step."""
        after: State = self.walk(torch.cat([self.relation(relations), self.entity(entities)], dim=1), state)
        return after

    def log_probabilities(
        self, state: Tensor, current: Tensor, asked: Tensor, guessed: Tensor | None, edges: WalkEdges,
        row: Tensor, edge: Tensor, allowed: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Of every edge, among those of its row.  (row, …) × 4, (edge) × 3 -> (edge)"""
        parts = [state, self.entity(current), self.relation(asked), *([] if guessed is None else [guessed])]
        wanted_relation, wanted_entity = self.decide(torch.cat(parts, dim=1)).chunk(2, dim=1)  # (row, dim) each
        by_relation = wanted_relation @ self.relation.weight.T  # (row, edge type)
        logits = by_relation[row, edges.relations[edge]]
        logits = logits + (wanted_entity[row] * self.entity(edges.tails[edge])).sum(1)
        if allowed is not None:
            logits = logits.masked_fill(~allowed, -torch.inf)
        return _log_softmax(logits, row, len(state))


def _log_softmax(logits: Tensor, row: Tensor, rows: int) -> Tensor:
    """Among the entries of each row.  (entry) × 2 -> (entry)"""
    most = torch.full((rows,), -torch.inf).scatter_reduce(0, row, logits.detach(), "amax")
    total = torch.zeros(rows).index_add(0, row, (logits - most[row]).exp())
    return logits - most[row] - total.log()[row]


def _draw(log_probability: Tensor, row: Tensor, rows: int) -> Tensor:
    """One entry of each row, by its probability.  (entry) × 2 -> (row)"""
    noise = -torch.empty_like(log_probability).exponential_().log()  # Gumbel
    value = log_probability.detach() + noise
    most = torch.full((rows,), -torch.inf).scatter_reduce(0, row, value, "amax")
    at = torch.nonzero(value == most[row])[:, 0]
    chosen = torch.zeros(rows, dtype=torch.int64)
    chosen[row[at]] = at
    return chosen


# ------------------------------------------------------------------------------------------------- training


class Walker:
    """A policy on a graph: walks for training, beam search for answers."""

    def __init__(
        self, graph: Graph, options: WalkerOptions, seed: int = 0, embedding: Embedding | None = None
    ) -> None:
        torch.manual_seed(seed)
        self.graph, self.options, self.embedding, self.seed = graph, options, embedding, seed
        adjacency = graph.train
        if options.added_edges and embedding is not None:
            adjacency = _with_added_edges(graph, embedding)
        self.edges = WalkEdges(adjacency, options.most_edges, np.random.default_rng(seed))
        self.policy = Policy(graph.num_entities, 2 * graph.num_relations, options)

    def probabilities(self, queries: Ids) -> Tensor | None:
        """What the embedding model thinks of every entity.  (query, 2) -> (query, entity)"""
        if self.embedding is None:
            return None
        return torch.from_numpy(self.embedding.scores(queries)).softmax(1)

    def _guesses(self, believed: Tensor | None) -> Tensor | None:
        """The mean embedding of the entities that the embedding model prefers.  -> (query, dim)"""
        if believed is None or not self.options.guesses:
            return None
        weight, entity = believed.topk(min(GUESSES, believed.shape[1]), dim=1)
        weight = weight / weight.sum(1, keepdim=True)
        return torch.einsum("qk,qkd->qd", weight, self.policy.entity(entity))

    def loss(self, triples: Ids, rule_reward: RuleReward | None) -> Tensor:
        """REINFORCE over some walks of each query.  triples: (query, 3)"""
        own, rollouts = self.options, self.options.rollouts
        believed = self.probabilities(triples[:, :2])
        head, asked, answer = (
            column.repeat_interleave(rollouts) for column in torch.from_numpy(triples.astype(np.int64)).T
        )
        guessed = self._guesses(believed)
        if guessed is not None:
            guessed = guessed.repeat_interleave(rollouts, dim=0)
        current, taken = head, torch.full_like(head, self.edges.stay)
        state, walked = None, []
        log_probability, entropy = torch.zeros(len(head)), torch.zeros(len(head))
        for _ in range(own.hops):
            state = self.policy.read(taken, current, state)
            row, edge = self.edges.of(current)
            relation, tail = self.edges.relations[edge], self.edges.tails[edge]
            # The fact in question is not known.
            allowed = (current != head)[row] | (relation != asked[row]) | (tail != answer[row])
            every = self.policy.log_probabilities(
                state[0], current, asked, guessed, self.edges, row, edge, allowed
            )
            seen = every
            if own.edge_dropout:
                # A choice is judged among the edges that were seen: judged among all, the policy does not learn.
                dropped = (torch.rand(len(edge)) < own.edge_dropout) & (relation != self.edges.stay)
                seen = _log_softmax(every.masked_fill(dropped, -torch.inf), row, len(head))
            chosen = _draw(seen, row, len(head))
            log_probability = log_probability + seen[chosen]
            finite = every.masked_fill(~allowed, 0.0)
            entropy = entropy.index_add(0, row, -finite.exp() * finite * allowed)
            current, taken = tail[chosen], relation[chosen]
            walked.append(taken)
        with torch.no_grad():
            reward = self._reward(current, answer, believed)
            if rule_reward is not None:
                rule = rule_reward(asked, torch.stack(walked, dim=1))
                reward = (1 - own.rule_weight) * reward + own.rule_weight * rule
            by_query = reward.view(-1, rollouts)
            others = (by_query.sum(1, keepdim=True) - by_query) / (rollouts - 1)  # the baseline
            advantage = (by_query - others).view(-1)
        return -(advantage * log_probability + own.entropy * entropy).mean()

    def _reward(self, end: Tensor, answer: Tensor, believed: Tensor | None) -> Tensor:
        hit = (end == answer).float()
        if believed is None or not self.options.shaping:
            return hit
        query = torch.arange(len(believed)).repeat_interleave(self.options.rollouts)
        return torch.maximum(hit, believed[query, end] / believed.amax(1)[query])

    # ------------------------------------------------------------------------------------------ answering

    @torch.inference_mode()
    def answer(self, queries: Ids) -> Iterator[PathRanking]:
        """The answers to all queries with their paths, in blocks.  queries: (query, 2)"""
        own = self.options
        decoding = DecodingOptions(beam=own.beam, aggregate="sum", hops=own.hops)
        self.policy.eval()
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            block = queries[first : first + QUERIES_AT_ONCE]
            yield rank_answers(self._search(block), torch.from_numpy(block[:, 1].astype(np.int64)), decoding)

    def _search(self, queries: Ids) -> FinishedPaths:
        """The most probable walks of each query."""
        head, asked = torch.from_numpy(queries.astype(np.int64)).T
        guessed = self._guesses(self.probabilities(queries) if self.options.guesses else None)
        query, current, score = torch.arange(len(head)), head, torch.zeros(len(head))
        taken, state = torch.full_like(head, self.edges.stay), None
        tokens = torch.empty((len(head), 0), dtype=torch.int64)
        for _ in range(self.options.hops):
            state = self.policy.read(taken, current, state)
            row, edge = self.edges.of(current)
            own = None if guessed is None else guessed[query]
            log_probability = self.policy.log_probabilities(
                state[0], current, asked[query], own, self.edges, row, edge
            )
            total = score[row] + log_probability
            kept = _best_of_each(query[row], total, self.options.beam)
            row, edge, score = row[kept], edge[kept], total[kept]
            query, taken, current = query[row], self.edges.relations[edge], self.edges.tails[edge]
            state = (state[0][row], state[1][row])
            tokens = torch.cat([tokens[row], torch.stack([taken, current], dim=1)], dim=1)
        return _finished(query, tokens, score, self.edges.stay)

    def rank(self, query_set: QuerySet, name: str) -> Ranks:
        signature = query_set.signature(
            f"walker:{name}", beam=str(self.options.beam), aggregation="sum", seed=str(self.seed)
        )
        return rank_blocks(self.answer(query_set.queries[:, :2]), self.graph, query_set, signature)


def _best_of_each(group: Tensor, score: Tensor, most: int) -> Tensor:
    """The positions of the highest scores of each group.  group: (entry), in any order"""
    order = torch.argsort(score, descending=True, stable=True)
    order = order[torch.argsort(group[order], stable=True)]
    sizes = torch.bincount(group)
    place = torch.arange(len(order)) - (torch.cumsum(sizes, 0) - sizes)[group[order]]
    return order[place < most]


def _finished(query: Tensor, tokens: Tensor, score: Tensor, stay: int) -> FinishedPaths:
    """Walks as paths, without the steps that stay; a walk that never leaves is none.  tokens: (walk, 2 · hops)"""
    steps = tokens.view(len(tokens), -1, 2)
    moves = steps[:, :, 0] != stay
    order = torch.argsort((~moves).long(), dim=1, stable=True)  # moves first
    steps = torch.where(moves[:, :, None], steps, -1).gather(1, order[:, :, None].expand_as(steps))
    hops = moves.sum(1)
    token_log_probability = torch.zeros((len(tokens), tokens.shape[1] + 1))
    token_log_probability[:, 0] = score  # of the whole walk
    found = FinishedPaths(query, steps.reshape(len(tokens), -1), hops, token_log_probability)
    return found.take((hops > 0) & (score > LEAST_SCORE))


# ------------------------------------------------------------------------------------------- rewards of rules


class RuleReward:
    """The confidence of the rule that a walk follows."""

    def __init__(self, graph: Graph, minutes: float, hops: int) -> None:
        options = MiningOptions(length=hops, constants=False, minutes=minutes)
        closed = ClosedIndex.from_rules(mine_rules(graph.train, options).rules)
        self._width = 2 * graph.num_relations + 2  # edge types, staying, and nothing
        heads = np.repeat(np.arange(2 * graph.num_relations), np.diff(closed.offsets))
        keys = self._keys(heads, closed.body[:, :hops].astype(np.int64))
        self._order = np.argsort(keys, kind="stable")
        self._known, self._confidence = keys[self._order], closed.smoothed_confidence[self._order]

    def _keys(self, head: npt.NDArray[np.int64], body: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """One number for each head and body; bodies end in NONE.  (rule), (rule, hops) -> (rule)"""
        key = head
        for column in body.T:
            key = key * self._width + column + 1
        return key

    def __call__(self, asked: Tensor, walked: Tensor) -> Tensor:
        """(walk), (walk, hops) -> (walk)"""
        stay = self._width - 2
        order = torch.argsort((walked == stay).long(), dim=1, stable=True)
        body = torch.where(walked == stay, NONE, walked).gather(1, order)
        keys = self._keys(asked.numpy(), body.numpy())
        at = np.minimum(np.searchsorted(self._known, keys), max(len(self._known) - 1, 0))
        if not len(self._known):
            return torch.zeros(len(asked))
        return torch.from_numpy(np.where(self._known[at] == keys, self._confidence[at], 0.0)).float()


# ------------------------------------------------------------------------------------------------- the method


def train_walker(name: str, task: Task, options: WalkerOptions | None = None) -> tuple[Walker, str]:
    """Train a variant in the time that the task has left. Returns it, and a note on how that went."""
    own = options or VARIANTS[name]
    embedding, note = None, ""
    if own.uses_embedding:
        share = Task(task.graph, task.folder, EMBEDDING_SHARE * task.minutes, task.seed)
        embedding, note = train_embedding("ComplEx", share)
        note = f"rewards by ComplEx ({note}); "
    rule_reward = RuleReward(task.graph, MINING_SHARE * task.minutes, own.hops) if own.rule_weight else None
    walker = Walker(task.graph, own, task.seed, embedding)
    best = BestWeights(task, walker.policy, lambda query_set: walker.rank(query_set, name))
    optimizer = torch.optim.Adam(walker.policy.parameters(), lr=own.learning_rate)
    facts = both_directions(task.graph.train.triples, task.graph.num_relations)
    rng = np.random.default_rng(task.seed)
    while not (best.is_out_of_time or best.is_stale):
        for batch in np.array_split(rng.permutation(len(facts)), max(len(facts) // own.batch, 1)):
            optimizer.zero_grad()
            torch.autograd.backward(walker.loss(facts[batch], rule_reward))
            nn.utils.clip_grad_norm_(walker.policy.parameters(), 1.0)
            optimizer.step()
            best.epochs += len(batch) / len(facts)
            if best.is_out_of_time:
                break
        best.validate()
    return walker, note + best.finish()


def learn_walker(name: str, task: Task) -> Learned:
    """A row of the comparison."""
    walker, note = train_walker(name, task)
    return Learned(lambda query_set: walker.rank(query_set, name), note)
