"""The figures of Table 1: of made graphs whose figures are known, and of the paper's own where they are there."""

from pathlib import Path

import pytest
from graphs import LabelTriple, make_graph, write

from squire.graph.loading import load_graph
from squire.graph.statistics import Stats

SHARED = Path(__file__).resolve().parents[2] / "shared" / "kg"
# entities, relations, facts, mean degree, median degree
TABLE_1 = {
    "NELL23K": (22_925, 200, 25_445, 1.11, 1),
    "FB15K237": (14_505, 237, 272_115, 18.71, 13),
    "NELL995": (62_706, 198, 117_937, 1.88, 1),
    "FB15K237-20": (13_166, 237, 54_423, 4.13, 3),
}
MADE = "a\tr\tb\na\tr\tc\na\tq\tb\nb\tr\tc\n", "a\tr\td\n", "c\tr\te\n"


def table_1(stats: Stats) -> tuple[int, int, int, float, float]:
    return stats.entities, stats.relations, stats.facts, stats.degree_mean, stats.degree_median


def test_table_1_of_the_paper(tmp_path: Path) -> None:
    """Of a made folder always, of the paper's graphs where they lie beside the repository."""
    for split, text in zip(("train", "valid", "test"), MADE, strict=True):
        write(tmp_path / "made" / f"{split}.txt", text)
    expected = {tmp_path / "made": (3, 2, 4, 0.8, 0)}
    expected |= {SHARED / name: row for name, row in TABLE_1.items() if (SHARED / name).is_dir()}
    assert {path.name: table_1(Stats.from_graph(load_graph(path))) for path in expected} == {
        path.name: row for path, row in expected.items()
    }


def test_all_figures_of_a_small_graph() -> None:
    train: list[LabelTriple] = [("a", "r", "b"), ("a", "r", "c"), ("a", "q", "b"), ("b", "r", "b")]
    graph = make_graph({"train": train, "valid": [("a", "s", "d")], "test": [("d", "r", "e"), ("a", "r", "e")]})
    assert Stats.from_graph(graph).as_dict() == {
        "name": "made",
        "entities": 3,  # of train: d and e are counted apart
        "relations": 2,  # of train
        "facts": 4,
        "degree_mean": 0.8,  # 4 facts over 5 entities
        "degree_median": 0.0,  # a has 3, b 1, the others none
        "valid": 1,
        "test": 2,
        "unseen_entities": 2,
        "max_degree": 4,  # b: two edges in, its loop both ways
    }


@pytest.mark.parametrize("split", ["valid", "test"])
def test_a_graph_without_train_facts_has_figures_too(split: str) -> None:
    stats = Stats.from_graph(make_graph({split: [("a", "r", "b")]}))
    assert table_1(stats) == (0, 0, 0, 0.0, 0.0)
    assert stats.unseen_entities == 2
