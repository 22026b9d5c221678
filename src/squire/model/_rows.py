"""Kernels that cut prefix trees into pieces and pack the pieces into rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from squire.core.compile import kernel
from squire.graph.adjacency import Ids, Offsets

Array = Any
QUERY_TOKENS = 2
OPEN_ROWS = 32  # rows being filled: with one, 18 % of NELL23K's tokens are padding, with 8 or more 1.7 %


class Pieces(NamedTuple):
    """Trees cut to fit into rows; the first two tokens of a piece are its query."""

    query: Offsets  # (piece)
    offsets: Offsets  # (piece + 1): tokens
    node: Offsets  # (token): in the tries, or -1 for the query's tokens
    parent: Ids  # (token): column in the piece of the previous token, or -1
    is_new: Array  # (token): is this where the node is a target?


@kernel
def path_weights(parent: Array, depth: Array, offsets: Array, end: Array) -> tuple[Array, Array]:
    """The weight of the paths through each node and of those that end at it, each divided by its |τ| (Eq. 4).

    A path that ends at depth d has d + 1 tokens including <eos>.
    """
    through, ending = np.zeros(len(parent), np.float32), np.zeros(len(parent), np.float32)
    for query in range(len(offsets) - 1):
        first = offsets[query]
        for node in range(offsets[query + 1] - 1, first - 1, -1):  # children come after their parent
            ending[node] = end[node] / (depth[node] + 1)
            through[node] += ending[node]
            if parent[node] >= 0:
                through[first + parent[node]] += through[node]
    return through, ending


def cut_pieces(parent: Ids, depth: Array, offsets: Offsets, row_tokens: int) -> Pieces:
    """Cut trees into pieces of at most `row_tokens` tokens; a tree that fits is one piece."""
    return Pieces(*_cut_pieces(parent, depth, offsets, row_tokens))


@kernel
def _cut_pieces(
    parent: Array, depth: Array, offsets: Array, row_tokens: int
) -> tuple[Array, Array, Array, Array, Array]:
    deepest = 0
    for d in depth:
        deepest = max(deepest, d)
    # Each piece but the last of a tree is full, and repeats fewer than `deepest` ancestors.
    nodes, queries = len(parent), len(offsets) - 1
    most_pieces = queries + nodes // max(row_tokens - QUERY_TOKENS - deepest, 1) + 1
    most_tokens = nodes + most_pieces * (QUERY_TOKENS + deepest)
    query_of, starts = np.empty(most_pieces, np.int64), np.empty(most_pieces + 1, np.int64)
    node_of, parent_of = np.empty(most_tokens, np.int64), np.empty(most_tokens, np.int32)
    is_new = np.zeros(most_tokens, np.bool_)
    column_of = np.empty(deepest + 1, np.int32)  # of the last node at each depth
    chain = np.empty(deepest + 1, np.int64)
    piece, token = 0, 0
    for query in range(queries):
        used = row_tokens  # so that the first node starts a piece
        for node in range(offsets[query], offsets[query + 1]):
            if used == row_tokens:
                query_of[piece], starts[piece] = query, token
                piece += 1
                node_of[token], node_of[token + 1] = -1, -1
                parent_of[token], parent_of[token + 1] = -1, 0
                token, used = token + QUERY_TOKENS, QUERY_TOKENS
                column_of[0] = 1
                at, length = node, 0
                while depth[at] > 1:
                    at = offsets[query] + parent[at]
                    chain[length] = at
                    length += 1
                for i in range(length - 1, -1, -1):
                    d = depth[chain[i]]
                    node_of[token], parent_of[token], column_of[d] = chain[i], column_of[d - 1], used
                    token, used = token + 1, used + 1
            d = depth[node]
            node_of[token], parent_of[token], column_of[d], is_new[token] = node, column_of[d - 1], used, True
            token, used = token + 1, used + 1
    starts[piece] = token
    return query_of[:piece], starts[: piece + 1], node_of[:token], parent_of[:token], is_new[:token]


@kernel
def pack_pieces(sizes: Array, order: Array, row_tokens: int) -> tuple[Array, int]:
    """Pack each piece into the fullest open row that has space; return the rows of the pieces and their number."""
    row_of = np.empty(len(sizes), np.int64)
    open_row, free = np.zeros(OPEN_ROWS, np.int64), np.full(OPEN_ROWS, -1)
    rows = 0
    for piece in order:
        best, worst = -1, 0
        for i in range(OPEN_ROWS):
            if free[i] >= sizes[piece] and (best < 0 or free[i] < free[best]):
                best = i
            if free[i] < free[worst]:
                worst = i
        if best < 0:  # close the fullest row
            best = worst
            open_row[best], free[best] = rows, row_tokens
            rows += 1
        row_of[piece] = open_row[best]
        free[best] -= sizes[piece]
    return row_of, rows


@kernel
def fill_rows(
    members: Array,  # (piece): the pieces of these rows
    rows: Array,  # (piece): their rows
    num_rows: int,
    row_tokens: int,
    pieces: Pieces,
    queries: Array,  # (query, 2)
    node_token: Array,
    node_depth: Array,
    through: Array,  # (node): `path_weights`
    ending: Array,
    masked: Array,  # (token of the pieces): is it masked, if it is an entity?
    substitute: Array,  # (token of the pieces): its replacement in that case
    first_relation: int,
    end: int,
    pad: int,
) -> tuple[Array, Array, Array, Array, Array]:
    """Tokens, positions, visibility, and targets: (source, token) and weight."""
    tokens, positions = np.full((num_rows, row_tokens), pad, np.int64), np.zeros((num_rows, row_tokens), np.int64)
    visible = np.zeros((num_rows, row_tokens, row_tokens), np.bool_)
    for row in range(num_rows):
        for column in range(row_tokens):
            visible[row, column, column] = True  # padding sees itself, since a softmax over nothing is NaN
    targets, weights = np.empty((2 * len(masked), 2), np.int64), np.empty(2 * len(masked), np.float32)
    used = np.zeros(num_rows, np.int64)
    seen, found = 0, 0
    for member in range(len(members)):
        piece, row = members[member], rows[member]
        start, base = pieces.offsets[piece], used[row]
        size = pieces.offsets[piece + 1] - start
        for i in range(size):
            column, node = base + i, pieces.node[start + i]
            if i < QUERY_TOKENS:
                query = queries[pieces.query[piece], i]
                tokens[row, column], positions[row, column] = query + (first_relation if i else 0), i
                for other in range(base, base + QUERY_TOKENS):
                    visible[row, column, other] = True
                continue
            before = base + pieces.parent[start + i]
            depth = node_depth[node]
            token = node_token[node] + (first_relation if depth % 2 else 0)
            is_masked = depth % 2 == 0 and masked[seen + i]
            tokens[row, column], positions[row, column] = substitute[seen + i] if is_masked else token, 1 + depth
            for other in range(base, column):
                visible[row, column, other] = visible[row, before, other]
            if pieces.is_new[start + i]:
                if not is_masked:
                    targets[found, 0], targets[found, 1] = row * row_tokens + before, token
                    weights[found] = through[node]
                    found += 1
                if ending[node] > 0:
                    targets[found, 0], targets[found, 1], weights[found] = (
                        row * row_tokens + column,
                        end,
                        ending[node],
                    )
                    found += 1
        used[row] += size
        seen += size
    return tokens, positions, visible, targets[:found], weights[:found]
