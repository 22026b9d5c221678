"""Build a graph from an installed WordNet (Debian: `apt install wordnet-base`): a sparse, deep hierarchy.

    python scripts/wordnet_graph.py OUT --entities 40000

Synsets are entities; the relations are the eleven of WN18RR, each in the one direction that WN18RR keeps. With
--entities a connected part of about that size is taken. A twentieth of the facts each becomes valid and test: a
tenth is hidden. Writes train.tsv, valid.tsv and test.tsv to the folder OUT.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from squire.graph.graph import Graph
from squire.graph.loading import write_graph
from squire.studies.graphs import sample_graph

WORDNET = Path("/usr/share/wordnet")
RELATIONS = {
    "@": "hypernym",
    "@i": "instance hypernym",
    "+": "derivationally related form",
    "%m": "member meronym",
    "%p": "has part",
    ";c": "synset domain topic of",
    "^": "also see",
    "$": "verb group",
    "&": "similar to",
    "-r": "member of domain region",
    "-u": "member of domain usage",
}
PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
Fact = tuple[str, str, str]


def read_facts(folder: Path) -> Iterator[Fact]:
    """The facts between synsets, by names such as dog.n.02084071."""
    names: dict[tuple[str, str], str] = {}  # part of speech and offset
    pointers: list[tuple[tuple[str, str], str, tuple[str, str]]] = []
    for file, part in PARTS.items():
        for line in (folder / f"data.{file}").read_text(encoding="utf-8").splitlines():
            if line.startswith(" "):  # the licence
                continue
            fields = line.split(" | ")[0].split()
            offset, words = fields[0], int(fields[3], 16)
            names[part, offset] = f"{fields[4]}.{part}.{offset}"
            rest = fields[4 + 2 * words :]
            for i in range(int(rest[0])):
                symbol, goal, goal_part = rest[1 + 4 * i : 4 + 4 * i]
                if symbol in RELATIONS:
                    pointers.append(((part, offset), RELATIONS[symbol], (goal_part, goal)))
    for start, relation, end in pointers:
        yield names[start], relation, names[end]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--wordnet", type=Path, default=WORDNET)
    parser.add_argument("--entities", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if not (arguments.wordnet / "data.noun").exists():
        parser.error(f"{arguments.wordnet}: no WordNet here. Install it (Debian: apt install wordnet-base).")
    facts = sorted(set(read_facts(arguments.wordnet)))
    if arguments.entities:
        facts = connected(facts, arguments.entities, arguments.seed)
    graph = Graph.from_triples(facts, name="wordnet", holdout=(0.05, 0.05), seed=arguments.seed)
    write_graph(graph, arguments.out)
    print(graph)


def connected(facts: list[Fact], entities: int, seed: int) -> list[Fact]:
    """A connected part with about so many entities."""
    whole = Graph.from_triples(facts, holdout=(0, 0))
    share = min(entities / whole.num_entities, 1.0)
    part = sample_graph(whole, share, seed)
    rows = part.table("train")
    return list(zip(*(rows[name].to_pylist() for name in ("head", "relation", "tail")), strict=True))


if __name__ == "__main__":
    main()
