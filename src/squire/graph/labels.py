"""The labels of entities and relations, and their ids: an id is the position in the sorted labels.

Entities that were added after training come after all others, sorted among themselves.

Labels are stored in one Arrow buffer rather than in a million Python strings. A look-up by id is one read, a
look-up by label one binary search (UTF-8 bytes sort like Unicode code points).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from rapidfuzz import fuzz, process

from squire.errors import UnknownName

# Namespaces that RDF files use without declaring them (N-Triples cannot), shortened for display only.
WELL_KNOWN_PREFIXES = {
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "owl": "http://www.w3.org/2002/07/owl#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "schema": "http://schema.org/",
    "dbr": "http://dbpedia.org/resource/",
    "dbo": "http://dbpedia.org/ontology/",
    "wd": "http://www.wikidata.org/entity/",
    "wdt": "http://www.wikidata.org/prop/direct/",
}


class LabelIndex(Sequence[str]):
    """Distinct labels in sorted order, then those added later; a label's id is its position."""

    def __init__(self, labels: Iterable[str] | pa.Array, kind: str, added: Sequence[str] = ()) -> None:
        array = labels if isinstance(labels, pa.Array) else pa.array(sorted(set(labels)), pa.large_string())
        self._num_sorted = len(array)
        if added:
            array = pa.concat_arrays([array, pa.array(added, array.type)])
        self.array: pa.Array = array  # large_string, distinct
        self.kind = kind  # "entity" or "relation", for messages
        # Labels that were looked up: a rule file looks up the same few a million times.
        self._found = {label: self._num_sorted + i for i, label in enumerate(added)}

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return list(self.array[index].to_pylist())
        return str(self.array[int(index)].as_py())

    def __iter__(self) -> Iterator[str]:
        return iter(self.array.to_pylist())

    def find(self, label: str) -> int | None:
        """The id of a label, or None."""
        found = self._found.get(label)
        if found is None and (found := self._search(label)) is not None:
            self._found[label] = found  # misses are not cached: a server gets arbitrary queries
        return found

    def _search(self, label: str) -> int | None:
        low, high = 0, self._num_sorted
        while low < high:
            middle = (low + high) // 2
            if self[middle] < label:
                low = middle + 1
            else:
                high = middle
        return low if low < self._num_sorted and self[low] == label else None

    @property
    def is_sorted(self) -> bool:
        """Whether nothing was added."""
        return self._num_sorted == len(self)

    def extended(self, added: Sequence[str]) -> LabelIndex:
        """The same labels with the same ids, and new ones after them."""
        assert self.is_sorted
        return LabelIndex(self.array, self.kind, added)

    def find_in_any_case(self, label: str) -> int | None:
        """The id of the only label that differs at most in case, or None. Looks at all labels."""
        wanted = label.casefold()
        found = [i for i, folded in enumerate(self._folded) if folded == wanted]
        return found[0] if len(found) == 1 else None

    def __contains__(self, label: object) -> bool:
        return isinstance(label, str) and self.find(label) is not None

    def nearest(self, label: str, count: int = 3) -> list[str]:
        """The labels most similar to `label`, best first."""
        found = process.extract(label.casefold(), self._folded, scorer=fuzz.WRatio, limit=count, score_cutoff=60)
        return [self[position] for _, _, position in found]

    @cached_property
    def _folded(self) -> list[str]:
        return [label.casefold() for label in self]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelIndex) and bool(self.array.equals(other.array))


@dataclass(frozen=True)
class Labels:
    """The labels of a graph's entities and relations, and their short forms for display."""

    entities: LabelIndex
    relations: LabelIndex
    prefixes: Mapping[str, str] = field(default_factory=dict)  # prefix -> namespace, from RDF input

    def entity(self, entity: int) -> str:
        """The label of an entity, shortened for display."""
        return self.shorten(self.entities[entity])

    def relation(self, relation: int) -> str:
        """The label of a relation or of its inverse, shortened for display."""
        return self.shorten(self.relations[relation % len(self.relations)])

    def entity_id(self, label: str) -> int:
        """The id of an entity by its label or its shortened form; `vienna` is Vienna if there is but one."""
        return self._id(self.entities, label)

    def relation_id(self, label: str) -> int:
        """The id of a relation, found like an entity."""
        return self._id(self.relations, label)

    def columns(self, triples: npt.NDArray[np.int32]) -> list[pa.Array]:
        """The labels of heads, relations and tails.  (triple, 3) -> 3 × (triple)"""
        parts = (self.entities.array, self.relations.array, self.entities.array)
        return [labels.take(pa.array(triples[:, i])) for i, labels in enumerate(parts)]

    def _id(self, labels: LabelIndex, label: str) -> int:
        for candidate in (label, self.expand(label)):
            found = labels.find(candidate)
            if found is not None:
                return found
        if (found := labels.find_in_any_case(label)) is not None:
            return found
        raise UnknownName(labels.kind, label, [self.shorten(near) for near in labels.nearest(label)])

    def shorten(self, label: str) -> str:
        """`http://www.w3.org/2002/07/owl#sameAs` -> `owl:sameAs`; other labels stay as they are."""
        if "://" not in label and not label.startswith("urn:"):
            return label
        matches = [(ns, prefix) for prefix, ns in self._all_prefixes.items() if label.startswith(ns)]
        namespace, prefix = max(matches, key=lambda match: len(match[0]), default=("", ""))
        local = label[len(namespace) :]
        return f"{prefix}:{local}" if namespace and local else label

    def expand(self, short: str) -> str:
        """Inverse of `shorten`."""
        prefix, colon, local = short.partition(":")
        namespace = self._all_prefixes.get(prefix) if colon else None
        return f"{namespace}{local}" if namespace else short

    @cached_property
    def _all_prefixes(self) -> dict[str, str]:
        return {**WELL_KNOWN_PREFIXES, **self.prefixes}
