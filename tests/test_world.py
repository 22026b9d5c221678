"""What the bundled graph `world` promises, read from the shipped files themselves.

Nothing of squire is imported here: a fault in the package must not hide a fault in the data.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "src" / "squire" / "data" / "world"
SCRIPT = ROOT / "scripts" / "build_world.py"
SPLITS = ("train", "valid", "test")

Fact = tuple[str, str, str]


def read(split: str) -> list[Fact]:
    lines = (FOLDER / f"{split}.tsv").read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    facts: list[Fact] = []
    for line in lines:
        head, relation, tail = line.split("\t")
        facts.append((head, relation, tail))
    return facts


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Fact]]:
    return {split: read(split) for split in SPLITS}


@pytest.fixture(scope="module")
def facts(splits: dict[str, list[Fact]]) -> list[Fact]:
    return [fact for split in SPLITS for fact in splits[split]]


def test_size(facts: list[Fact]) -> None:
    assert len(facts) >= 3000
    assert len({relation for _, relation, _ in facts}) >= 12
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 300_000


@pytest.mark.parametrize("split", SPLITS)
def test_files_are_sorted_and_plain(split: str) -> None:
    text = (FOLDER / f"{split}.tsv").read_bytes().decode("utf-8")
    assert text.endswith("\n")
    assert "\r" not in text
    lines = text.removesuffix("\n").split("\n")
    assert lines == sorted(lines)


def test_labels_are_clean(facts: list[Fact]) -> None:
    labels = {label for fact in facts for label in fact}
    assert all(label and label == label.strip() and "  " not in label for label in labels)
    # Two labels that differ in case alone would be read as one thing.
    assert max(Counter(label.casefold() for label in labels).values()) == 1


def test_no_fact_twice_and_none_about_itself(facts: list[Fact]) -> None:
    # Over all splits together, so no fact is in two of them either.
    assert len(set(facts)) == len(facts)
    assert all(head != tail for head, _, tail in facts)


@pytest.mark.parametrize("split", ["valid", "test"])
def test_train_covers_what_is_held_out(splits: dict[str, list[Fact]], split: str) -> None:
    share = len(splits[split]) / sum(map(len, splits.values()))
    assert 0.05 <= share <= 0.12
    entities = Counter(label for head, _, tail in splits["train"] for label in (head, tail))
    answers = {(relation, tail) for _, relation, tail in splits["train"]}
    for head, relation, tail in splits[split]:
        assert entities[head] >= 2
        assert entities[tail] >= 2
        # The answer was seen as an answer to this kind of question.
        assert (relation, tail) in answers


@pytest.mark.parametrize("split", ["valid", "test"])
def test_no_other_fact_joins_the_ends_of_a_held_out_one(
    splits: dict[str, list[Fact]], facts: list[Fact], split: str
) -> None:
    """Neither an inverse twin (borders both ways) nor a second relation between the two gives it away."""
    joined = Counter(frozenset((head, tail)) for head, _, tail in facts)
    assert all(joined[frozenset((head, tail))] == 1 for head, _, tail in splits[split])


def test_borders_are_stored_once(facts: list[Fact]) -> None:
    borders = [(head, tail) for head, relation, tail in facts if relation == "borders"]
    assert all(head < tail for head, tail in borders)


def test_every_country_has_the_basics(facts: list[Fact]) -> None:
    count = Counter((head, relation) for head, relation, _ in facts)
    members = {head for head, relation, tail in facts if (relation, tail) == ("member of", "United Nations")}
    assert len(members) == 193
    for country in members:
        for relation in ("in subregion", "in region", "drives on"):
            assert count[country, relation] == 1, (country, relation)
        assert count[country, "currency"] >= 1


def test_landlocked_countries_have_no_sea(facts: list[Fact]) -> None:
    landlocked = {head for head, _, tail in facts if tail == "landlocked country"}
    shores = {tail for head, relation, tail in facts if relation == "shore on" and head in landlocked}
    assert {shore for shore in shores if not shore.startswith("Lake ")} == {"Caspian Sea"}


TRUE = [
    ("Austria", "official language", "German"),
    ("Austria", "capital", "Vienna"),
    ("France", "borders", "Spain"),
    ("Kenya", "in subregion", "Eastern Africa"),
    ("Eastern Africa", "part of", "Africa"),
    ("Kenya", "in region", "Africa"),
    ("German", "language family", "West Germanic languages"),
    ("West Germanic languages", "part of", "Germanic languages"),
    ("German", "language phylum", "Indo-European languages"),
    ("Russian", "written in", "Cyrillic script"),
    ("Brazil", "official language", "Portuguese"),
    ("Brazil", "member of", "Mercosur"),
    ("Bulgaria", "currency", "Euro"),
    ("Croatia", "member of", "Eurozone"),
    ("Timor-Leste", "member of", "ASEAN"),
    ("Japan", "drives on", "left side of the road"),
    ("India", "gained independence from", "United Kingdom"),
    ("Puerto Rico", "sovereign state", "United States"),
    ("Danube", "flows through", "Hungary"),
    ("Vienna", "lies on", "Danube"),
    ("Danube", "flows into", "Black Sea"),
    ("Luxembourg", "capital", "Luxembourg City"),
    ("Nepal", "mountain range", "Himalayas"),
    ("Georgia", "in subregion", "Western Asia"),
    ("Switzerland", "is a", "landlocked country"),
    ("OPEC", "headquartered in", "Vienna"),
]


@pytest.mark.parametrize("fact", TRUE, ids=" ".join)
def test_holds_what_everybody_knows(facts: list[Fact], fact: Fact) -> None:
    assert fact in facts


FALSE = [
    ("Switzerland", "member of", "European Union"),
    ("United Kingdom", "member of", "European Union"),
    ("Denmark", "currency", "Euro"),
    ("Norway", "member of", "Eurozone"),
    ("Mali", "member of", "ECOWAS"),
    ("Australia", "capital", "Sydney"),
    ("Portugal", "shore on", "Mediterranean Sea"),
    ("Finnish", "language phylum", "Indo-European languages"),
]


@pytest.mark.parametrize("fact", FALSE, ids=" ".join)
def test_does_not_hold_common_mistakes(facts: list[Fact], fact: Fact) -> None:
    assert fact not in facts


def test_readme_gives_the_right_numbers(splits: dict[str, list[Fact]], facts: list[Fact]) -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    entities = {label for head, _, tail in facts for label in (head, tail)}
    relations = Counter(relation for _, relation, _ in facts)
    assert f"{len(facts)} facts, {len(entities)} entities, {len(relations)} relations" in readme
    for split in SPLITS:
        assert f"| `{split}.tsv` | {len(splits[split])} |" in readme
    for relation, count in relations.items():
        assert f"| {relation} | {count} |" in readme
    assert "SPDX-License-Identifier: Unicode-3.0" in readme


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_world", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_building_again_gives_the_same_bytes(script: ModuleType) -> None:
    assert script.differing(script.build(), FOLDER) == []


def test_check_notices_a_change_and_writes_nothing(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write(script.build(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.tsv", "train.tsv", "valid.tsv"]
    monkeypatch.setattr(script, "OUTPUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["build_world.py", "--check"])
    assert script.main() == 0
    (tmp_path / "test.tsv").write_text("Austria\tcapital\tGraz\n", encoding="utf-8")
    assert script.main() == 1
    assert "test.tsv" in capsys.readouterr().out.splitlines()[-1]
    assert (tmp_path / "test.tsv").read_text(encoding="utf-8") == "Austria\tcapital\tGraz\n"


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        ([("Austria", "borders", "Germany")] * 2, "twice"),
        ([("Austria", "borders", "Austria")], "about themselves"),
        ([("Luxembourg", "capital", "Luxembourg City"), ("Peru", "capital", "Luxembourg")], "two kinds"),
        ([("Austria", "official language", "German")], "without a family"),
    ],
)
def test_mistakes_in_the_tables_stop_the_build(script: ModuleType, facts: list[Fact], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        script.refuse_mistakes(facts)
