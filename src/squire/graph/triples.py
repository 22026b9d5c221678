"""Triples on their way into a graph: read from Python objects, numbered, and divided into splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from squire.errors import DataError, SettingError
from squire.graph.adjacency import Ids, Offsets
from squire.graph.labels import LabelIndex, Labels

# What header lines and tables call the three columns.
HEADER_WORDS = {
    "h": {"head", "h", "subject", "subj", "s", "source", "src", "from", "start", "head_id", "subject_id", "x_id"},
    "r": {"relation", "r", "rel", "predicate", "pred", "p", "property", "edge", "type", "relation_id"},
    "t": {"tail", "t", "object", "obj", "o", "target", "dst", "to", "end", "tail_id", "object_id", "y_id"},
}
ROLES = ("head", "relation", "tail")
HOLDOUT = (0.05, 0.05)  # shares of valid and test when a single file is divided


@dataclass(frozen=True)
class Block:
    """Some triples of an input, as positions in an array of labels."""

    labels: pa.Array  # large_string, of entities and relations
    codes: Ids  # (triple, 3): head, relation, tail as positions in labels
    positions: Offsets  # (triple): line, row or statement, from 1

    @classmethod
    def from_fields(cls, fields: pa.DictionaryArray, positions: Offsets, order: str = "hrt") -> Block:
        """From the three fields of each triple, one after the other.  fields: (3 * triple)"""
        codes = fields.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False).reshape(-1, 3)
        if order != "hrt":
            codes = codes[:, [order.index(role) for role in "hrt"]]
        return cls(fields.dictionary, codes, positions)

    @classmethod
    def from_rows(cls, rows: list[tuple[str, str, str]], positions: list[int], order: str = "hrt") -> Block:
        """From rows of three labels."""
        fields = pa.array(chain.from_iterable(rows), pa.large_string()).dictionary_encode()
        return cls.from_fields(fields, np.array(positions, np.int64), order)

    @classmethod
    def from_columns(cls, columns: list[pa.Array], positions: Offsets) -> Block:
        """From Arrow arrays of the heads, relations and tails."""
        fields = pa.concat_arrays(columns).dictionary_encode()
        codes = fields.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False).reshape(3, -1).T
        return cls(fields.dictionary, codes, positions)


def header_order(fields: Iterable[str]) -> str | None:
    """`subject, object, predicate` -> "htr"; None if these are not the words of a header."""
    order = ""
    for field in fields:
        order += next((role for role, words in HEADER_WORDS.items() if field.strip().casefold() in words), "?")
    return order if sorted(order) == ["h", "r", "t"] else None


def named_columns(names: list[str]) -> list[str] | None:
    """The columns of a table that are named like head, relation and tail; None unless there is one of each."""
    found = [[name for name in names if name.casefold() in words] for words in HEADER_WORDS.values()]
    return [name for (name,) in found] if all(len(own) == 1 for own in found) else None


# ------------------------------------------------------------------------------------------ Python objects


def block_from_object(data: Any, what: str) -> Block:
    """The triples of a list of rows, a pandas or polars frame or an Arrow table; `what` names it in errors.

    Rows are counted from 0 in errors, as Python does.
    """
    if isinstance(data, str | bytes | Mapping) or hasattr(data, "__fspath__"):
        hint = "" if isinstance(data, Mapping) else " To read a file, use load_graph."
        raise DataError(
            f"{what}: expected rows of (head, relation, tail) or a table, found {type(data).__name__}.{hint}"
        )
    if hasattr(data, "columns") and hasattr(data, "itertuples"):  # pandas: its columns may mix types
        names = [str(name) for name in data.columns]
        chosen = [names.index(name) for name in _choose_columns(names, what)]
        rows: Iterable[Any] = zip(*(data.iloc[:, i].tolist() for i in chosen), strict=True)
        return _block_from_rows(rows, what)
    if hasattr(data, "__arrow_c_stream__"):  # Arrow and polars
        table = pa.table(data)
        columns = [table.column(name) for name in _choose_columns(table.column_names, what)]
        if not all(_is_text(column.type) for column in columns):
            return _block_from_rows(zip(*(column.to_pylist() for column in columns), strict=True), what)
        texts = [column.cast(pa.large_string()).combine_chunks() for column in columns]
        for role, text in zip(ROLES, texts, strict=True):
            wrong = pc.or_(pc.equal(text, ""), pc.match_substring(text, "\0"))
            bad = pc.index(pc.fill_null(wrong, True), True).as_py()
            if bad >= 0:
                _check_label(text[bad].as_py(), role, what, bad)
        return Block.from_columns(texts, np.arange(1, len(table) + 1))
    return _block_from_rows(data, what)


def _choose_columns(names: list[str], what: str) -> list[str]:
    if len(names) < 3 or len(set(names)) < len(names):
        raise DataError(
            f"{what}: its columns are {', '.join(names) or 'none'}; expected three different ones, named head, "
            "relation and tail."
        )
    return named_columns(names) or names[:3]


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _block_from_rows(data: Any, what: str) -> Block:
    rows: list[tuple[str, str, str]] = []
    try:
        items = iter(data)
    except TypeError:
        raise DataError(
            f"{what}: expected rows of (head, relation, tail) or a table, found {type(data).__name__}."
        ) from None
    for number, row in enumerate(items):
        try:
            if isinstance(row, str | bytes):
                raise TypeError
            head, relation, tail = row
        except (TypeError, ValueError):
            raise DataError(f"{what}, row {number}: expected (head, relation, tail), found {row!r:.80}.") from None
        for role, label in zip(ROLES, (head, relation, tail), strict=True):
            _check_label(label, role, what, number)
        rows.append((head, relation, tail))
    return Block.from_rows(rows, list(range(1, len(rows) + 1)))


def _check_label(label: object, role: str, what: str, row: int) -> None:
    if not isinstance(label, str):
        raise DataError(f"{what}: {role}={label!r:.80} in row {row}: labels are text (str).")
    if not label:
        raise DataError(f"{what}: {role}='' in row {row}: a label cannot be empty.")
    if "\0" in label:
        raise DataError(f"{what}: {role}={label!r:.80} in row {row}: a label cannot contain a NUL character.")


# ------------------------------------------------------------------------------------------ ids and splits


def number(blocks: Iterable[Block], prefixes: Mapping[str, str]) -> tuple[Labels, Ids]:
    """The labels, numbered in sorted order, and the triples of all blocks in these ids.  (triple, 3)"""
    blocks = list(blocks)
    encoded = pa.concat_arrays([block.labels for block in blocks]).dictionary_encode()
    labels, code_of = encoded.dictionary, encoded.indices.to_numpy(zero_copy_only=False)
    triples = np.empty((sum(len(block.codes) for block in blocks), 3), np.int32)
    row = first = 0
    for block in blocks:
        triples[row : row + len(block.codes)] = code_of[first + block.codes]
        row, first = row + len(block.codes), first + len(block.labels)

    kinds: dict[str, LabelIndex] = {}
    for kind, columns in (("entity", [0, 2]), ("relation", [1])):
        occurs = np.zeros(len(labels), bool)
        for column in columns:
            occurs[triples[:, column]] = True
        used = np.flatnonzero(occurs)
        own = labels.take(pa.array(used))
        order = pc.sort_indices(own).to_numpy()
        id_of = np.full(len(labels), -1, np.int32)
        id_of[used[order]] = np.arange(len(used), dtype=np.int32)
        for column in columns:
            triples[:, column] = id_of[triples[:, column]]
        kinds[kind] = LabelIndex(own.take(pa.array(order)), kind)
    return Labels(kinds["entity"], kinds["relation"], prefixes), triples


def divide(triples: Ids, holdout: tuple[float, float], rng: np.random.Generator) -> dict[str, Ids]:
    """Divide distinct triples into train, valid and test; `holdout` gives the shares of valid and test.

    Fewer are held out if train would lose an entity or a relation: in a shuffled order, the first triple of each
    entity and relation stays in train.
    """
    try:
        valid, test = (float(share) for share in holdout)
    except (TypeError, ValueError):
        valid = test = np.nan
    if not (min(valid, test) >= 0 and valid + test < 1):  # refuses nan too
        raise SettingError(f"holdout={holdout}: expected two shares, at least 0, together below 1.")
    shuffled = triples[rng.permutation(len(triples))]
    free = np.ones(len(shuffled), bool)
    free[_first_rows(shuffled[:, 0], shuffled[:, 2])] = False
    free[_first_rows(shuffled[:, 1])] = False
    wanted = [round(share * len(triples)) for share in (valid, test)]
    moved = np.flatnonzero(free)[: sum(wanted)]
    num_valid = round(len(moved) * wanted[0] / sum(wanted)) if sum(wanted) else 0
    is_train = np.ones(len(shuffled), bool)
    is_train[moved] = False
    return {"train": shuffled[is_train], "valid": shuffled[moved[:num_valid]], "test": shuffled[moved[num_valid:]]}


def _first_rows(*columns: Ids) -> Offsets:
    """The first row that mentions each id; 10× as fast as np.unique, which sorts."""
    size = len(columns[0])
    first = np.full(max(column.max(initial=-1) for column in columns) + 1, size)
    for column in columns:
        np.minimum.at(first, column, np.arange(size))
    return first[first < size]
