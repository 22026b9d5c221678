"""What is written is what is read, in every format; a single file is divided fairly; no half file is ever seen."""

from pathlib import Path

import numpy as np
import pytest
from graphs import LabelTriple, facts_of, fresh_folder, make_graph, write
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from squire.core.files import create_bytes, replacing
from squire.errors import DataError, SettingError, UnknownName
from squire.graph.graph import SPLITS, Graph
from squire.graph.labels import LabelIndex, Labels
from squire.graph.loading import load_graph, write_graph
from squire.graph.triples import divide

Splits = dict[str, list[LabelTriple]]

NASTY = [
    "head",
    "relation",
    "tail",
    "h",
    "New York",
    " edge ",
    "a,b",
    '"quoted"',
    '"',
    "50%",
    "%41",
    "A",
    "http://example.org/a",
    "http://example.org/a b",
    "urn:squire:x",
    "urn:squire:",
    "_:x",
    "_:x y",
    "_:",
    '"lit"@en',
    '"lit"',
    '"a" . <b:b> <c:c> "d"',
    '"1"^^<http://www.w3.org/2001/XMLSchema#integer>',
    "\ufeff",
    "\ufeffa",
    "\u2028",
    "\x85",
    "\x01",
    "\x0b",
    "\\",
    "\\t",
    "NaN",
    "null",
    "#",
    "é",
    "e\u0301",
    "日本",
    "🜁",
    "\U0010ffff",
]
any_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=8)
labels = st.sampled_from(NASTY) | any_text
# What TSV can hold: no tab, no line end.
plain_labels = labels.filter(lambda label: not set(label) & set("\t\r\n"))
COMPRESSIONS = ["", ".gz", ".xz", ".zst"]


def splits_of(label: st.SearchStrategy[str]) -> st.SearchStrategy[Splits]:
    """Few different labels, so that names occur in several places."""

    def facts(pool: list[str]) -> st.SearchStrategy[Splits]:
        triple = st.tuples(*[st.sampled_from(pool)] * 3)
        some = st.lists(triple, max_size=5)
        return st.fixed_dictionaries(
            {"train": st.lists(triple, min_size=1, max_size=8), "valid": some, "test": some}
        )

    return st.lists(label, min_size=1, max_size=8).flatmap(facts)


def round_trip(splits: Splits, suffix: str) -> None:
    graph = make_graph(splits)
    with fresh_folder() as folder:
        files = write_graph(graph, folder / "out", suffix)
        assert [file.name for file in files] == [f"{split}{suffix}" for split in SPLITS]
        assert load_graph(folder / "out", literals=True) == graph


@settings(max_examples=150)
@given(splits_of(plain_labels), st.sampled_from(COMPRESSIONS))
def test_tsv_keeps_the_graph(splits: Splits, compression: str) -> None:
    round_trip(splits, f".tsv{compression}")


@settings(max_examples=150)
@given(splits_of(labels), st.sampled_from(COMPRESSIONS))
def test_ntriples_keep_the_graph(splits: Splits, compression: str) -> None:
    round_trip(splits, f".nt{compression}")


@settings(max_examples=60)
@given(splits_of(labels), st.sampled_from(COMPRESSIONS))
def test_parquet_keeps_the_graph(splits: Splits, compression: str) -> None:
    round_trip(splits, f".parquet{compression}")


@settings(max_examples=60)
@given(splits_of(labels), st.dictionaries(any_text, any_text, max_size=3))
def test_saved_form_keeps_the_graph_and_its_prefixes(splits: Splits, prefixes: dict[str, str]) -> None:
    graph = make_graph(splits, prefixes)
    with fresh_folder() as folder:
        write_graph(graph, folder / "x.graph")
        loaded = load_graph(folder / "x.graph")
    assert loaded == graph
    assert (loaded.labels.prefixes, loaded.name) == (prefixes, "made")


@settings(max_examples=40)
@given(splits_of(plain_labels), st.sampled_from([".tsv", ".nt", ".parquet"]), st.sampled_from(COMPRESSIONS))
def test_one_file_holds_the_facts_of_all_splits(splits: Splits, suffix: str, compression: str) -> None:
    graph = make_graph(splits)
    with fresh_folder() as folder:
        [file] = write_graph(graph, folder / f"x{suffix}{compression}")
        read = load_graph(file, literals=True, holdout=(0, 0))
    assert facts_of(read) == facts_of(graph)


def test_a_graph_with_empty_held_out_splits_comes_back(tmp_path: Path) -> None:
    graph = make_graph({"train": [("a", "r", "b")]})
    for suffix in (".tsv", ".nt", ".parquet"):
        write_graph(graph, tmp_path / suffix[1:], suffix)
        assert load_graph(tmp_path / suffix[1:]) == graph


def test_graphs_that_differ_are_not_equal() -> None:
    graph = make_graph({"train": [("a", "r", "b")], "valid": [("a", "r", "a")]})
    others: list[Splits] = [
        {"train": [("a", "r", "c")], "valid": [("a", "r", "a")]},
        {"train": [("a", "q", "b")], "valid": [("a", "q", "a")]},
        {"train": [("b", "r", "a")], "valid": [("a", "r", "a")]},
        {"train": [("a", "r", "b")], "test": [("a", "r", "a")]},
    ]
    assert all(graph != make_graph(other) for other in others)


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("label", ["a\tb", "a\nb", "a\rb"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_tsv_refuses_what_it_cannot_hold(tmp_path: Path, label: str, place: int) -> None:
    fact = ["a", "r", "b"]
    fact[place] = label
    graph = make_graph({"train": [("a", "r", "b")], "test": [(fact[0], fact[1], fact[2])]})
    kind = "relation" if place == 1 else "entity"
    with pytest.raises(DataError, match=rf"the {kind} 'a\\[tnr]b' contains a tab or a line end.*Write \.parquet"):
        write_graph(graph, tmp_path / "out", ".tsv")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", [".csv", ".ttl", ".json", ".graph.gz"])
def test_formats_that_are_not_written_are_refused(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(DataError, match=r"cannot write '\.\w+'\. Choose one of \.tsv \.nt \.parquet"):
        write_graph(make_graph({"train": [("a", "r", "b")]}), tmp_path / f"x{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_not_there() -> None:
    with pytest.raises(UnknownName, match=r"^unknown path or dataset 'nowhere/x\.tsv'\.$"):
        load_graph("nowhere/x.tsv")


GRAPH_METADATA = {"squire_graph": "2", "state": '{"name": "x", "prefixes": {}}'}


def saved(folder: Path) -> Path:
    write_graph(make_graph({"train": [("a", "r", "b")], "test": [("b", "r", "a")]}), folder / "x.graph")
    return folder / "x.graph"


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_a_truncated_saved_graph(tmp_path: Path, share: float) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match=r"x\.graph: damaged or cut short .*squire data convert"):
        load_graph(path)


def test_a_saved_graph_of_a_newer_version(tmp_path: Path) -> None:
    path = saved(tmp_path)
    save_file(load_file(path), path, {"squire_graph": "99", "state": "{}"})
    with pytest.raises(DataError, match=r"written by a newer squire \(graph file version 99.*Upgrade squire-kg"):
        load_graph(path)


def test_a_foreign_safetensors_file(tmp_path: Path) -> None:
    save_file({"weights": np.zeros(3)}, tmp_path / "x.graph")
    with pytest.raises(DataError, match=r"x\.graph: a safetensors file, but not a graph file saved by squire"):
        load_graph(tmp_path / "x.graph")


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"squire_graph": "one", "state": '{"name": "x", "prefixes": {}}'}, "not a graph file saved by squire"),
        ({"squire_graph": "2", "state": "{"}, "damaged"),
        ({"squire_graph": "2", "state": '{"name": "x"}'}, "not a complete graph file"),
        ({"squire_graph": "1", "name": "x", "prefixes": "{}"}, "written by an older squire"),
    ],
)
def test_a_saved_graph_with_a_damaged_description(tmp_path: Path, about: dict[str, str], words: str) -> None:
    path = saved(tmp_path)
    save_file(load_file(path), path, about)
    with pytest.raises(DataError, match=rf"x\.graph: .*{words}.*Write it again with `squire data convert`"):
        load_graph(path)


def test_a_saved_graph_without_one_of_its_arrays(tmp_path: Path) -> None:
    path = saved(tmp_path)
    arrays = load_file(path)
    del arrays["train.tails"]
    save_file(arrays, path, GRAPH_METADATA)
    with pytest.raises(DataError, match=r"not a complete graph file \('train\.tails'\)"):
        load_graph(path)


def test_a_saved_graph_whose_labels_lead_nowhere(tmp_path: Path) -> None:
    path = saved(tmp_path)
    arrays = load_file(path)
    arrays["entities.offsets"] = arrays["entities.offsets"] + 1_000_000
    save_file(arrays, path, GRAPH_METADATA)
    with pytest.raises(DataError, match="not a complete graph file"):
        load_graph(path)


def test_labels_cut_from_a_longer_array_are_saved_alone(tmp_path: Path) -> None:
    entities = LabelIndex(LabelIndex(["a", "b", "c"], "entity").array.slice(1), "entity")
    names = Labels(entities, LabelIndex(["r"], "relation"))
    graph = Graph.build("cut", names, {"train": np.array([[0, 0, 1]], np.int32)})
    graph.save(tmp_path / "x.graph")
    assert list(load_graph(tmp_path / "x.graph").labels.entities) == ["b", "c"]


def test_loaded_arrays_cannot_be_written(tmp_path: Path) -> None:
    graph = load_graph(saved(tmp_path))
    for array in (graph.train.tails, graph.test, graph.train.triples):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


# ------------------------------------------------------------------------------------- whole files or none


def write_half(path: Path) -> None:
    with create_bytes(path) as stream:
        stream.write(b"half")
        raise RuntimeError("disk full")


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "old\n")
    with pytest.raises(RuntimeError, match="disk full"):
        write_half(path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("x.tsv", "old\n")]


@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz", "x.tsv.xz", "x.tsv.zst"])
def test_a_write_that_fails_leaves_nothing_where_nothing_was(tmp_path: Path, name: str) -> None:
    with pytest.raises(RuntimeError, match="disk full"):
        write_half(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_fails_leaves_the_old_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    old = load_graph(path)

    def fail(file: Path, *_: object) -> None:
        file.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("squire.core.tensors._write", fail)
    with pytest.raises(DataError, match=r"could not be saved: disk full\. The previous graph file is intact"):
        make_graph({"train": [("x", "y", "z")]}).save(path)
    assert load_graph(path) == old
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_when_the_new_one_is_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "old\n")
    with replacing(path) as temporary:
        temporary.write_text("new\n")
        assert path.read_text() == "old\n"
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("x.tsv", "new\n")]


# ------------------------------------------------------------------------------------- division of one file

id_triples = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=60)
shares = st.tuples(st.floats(0, 0.45), st.floats(0, 0.45))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(id_triples, shares, st.integers(0, 5))
def test_train_has_seen_every_name(triples: list[LabelTriple], held: tuple[float, float], seed: int) -> None:
    splits = divide(np.array(sorted(set(triples)), np.int32), held, rng(seed))
    train, rest = splits["train"], np.concatenate([splits["valid"], splits["test"]])
    assert set(rest[:, [0, 2]].ravel().tolist()) <= set(train[:, [0, 2]].ravel().tolist())
    assert set(rest[:, 1].tolist()) <= set(train[:, 1].tolist())


@given(id_triples, shares, st.integers(0, 5))
def test_division_loses_and_repeats_nothing(
    triples: list[LabelTriple], held: tuple[float, float], seed: int
) -> None:
    unique = sorted(set(triples))
    splits = divide(np.array(unique, np.int32), held, rng(seed))
    assert sorted(tuple(row) for part in splits.values() for row in part.tolist()) == unique


@given(id_triples, shares)
def test_no_more_is_held_out_than_asked(triples: list[LabelTriple], held: tuple[float, float]) -> None:
    unique = np.array(sorted(set(triples)), np.int32)
    splits = divide(unique, held, rng())
    for split, share in zip(("valid", "test"), held, strict=True):
        assert len(splits[split]) <= round(share * len(unique)) + 1


def test_shares_are_met_where_train_can_spare_them() -> None:
    full = np.array([(h, r, t) for h in range(10) for r in range(2) for t in range(10)], np.int32)
    splits = divide(full, (0.1, 0.2), rng())
    assert [len(splits[split]) for split in SPLITS] == [140, 20, 40]


def test_division_depends_on_the_seed_alone(tmp_path: Path) -> None:
    facts = [f"e{i}\tr\te{j}\n" for i in range(9) for j in range(9)]
    one = write(tmp_path / "one.tsv", "".join(facts))
    turned = write(tmp_path / "turned.tsv", "".join(reversed(facts)))
    assert load_graph(one, seed=3) == load_graph(turned, seed=3)
    assert load_graph(one, seed=3) != load_graph(one, seed=4)


def test_a_single_file_is_divided_by_default(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "".join(f"e{i}\tr\te{j}\n" for i in range(10) for j in range(10)))
    graph = load_graph(path)
    assert [len(graph.triples(split)) for split in SPLITS] == [90, 5, 5]


def test_a_repeated_fact_does_not_leak_into_two_splits(tmp_path: Path) -> None:
    facts = [f"e{i}\tr\te{j}\n" for i in range(6) for j in range(6)]
    graph = load_graph(write(tmp_path / "x.tsv", "".join(facts * 3)), holdout=(0.3, 0.3))
    assert sum(len(graph.triples(split)) for split in SPLITS) == len(facts) == len(facts_of(graph))


def test_what_train_cannot_spare_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    star = "".join(f"hub\tr\te{i}\n" for i in range(50)) + "e0\tr\te1\n"
    graph = load_graph(write(tmp_path / "star.tsv", star))
    assert len(graph.valid) + len(graph.test) == 1
    [told] = caplog.messages
    assert told.startswith(f"{tmp_path}/star.tsv: 1 of 6: fewer triples held out than requested")


@pytest.mark.parametrize("held", [(-0.1, 0.1), (0.5, 0.5), (0.1, 2.0), (float("nan"), 0.1), (0.1, float("nan"))])
def test_shares_that_make_no_sense_are_refused(held: tuple[float, float]) -> None:
    with pytest.raises(SettingError, match=r"holdout=.*: expected two shares, at least 0, together below 1"):
        divide(np.array([[0, 0, 1]], np.int32), held, rng())
