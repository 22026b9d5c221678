"""Every format reads the same graph, plain or compressed, as a file or as a folder of splits."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from graphs import LabelTriple, facts_of, write

from squire.core import files as streams
from squire.errors import SettingError
from squire.graph.checking import Fault
from squire.graph.formats.delimited import ReadOptions
from squire.graph.graph import SPLITS, Graph
from squire.graph.loading import check_graph, load_graph

NS = "http://example.org/"
FACTS: dict[str, list[LabelTriple]] = {
    "train": [
        (f"{NS}a", f"{NS}likes", f"{NS}b"),
        (f"{NS}b", f"{NS}knows", f"{NS}c"),
        ("_:x", f"{NS}knows", f"{NS}a"),
    ],
    "valid": [(f"{NS}a", f"{NS}knows", f"{NS}c")],
    "test": [(f"{NS}c", f"{NS}likes", "_:x")],
}
EVERYTHING = {fact for facts in FACTS.values() for fact in facts}


def tsv(facts: list[LabelTriple]) -> bytes:
    return "".join("\t".join(fact) + "\n" for fact in facts).encode()


def csv(facts: list[LabelTriple]) -> bytes:
    return "".join(",".join(f'"{field}"' for field in fact) + "\r\n" for fact in facts).encode()


def ntriples(facts: list[LabelTriple], graph: str = "") -> bytes:
    def term(label: str) -> str:
        return label if label.startswith("_:") else f"<{label}>"

    return "".join(" ".join(map(term, fact)) + f" {graph}.\n" for fact in facts).encode()


def nquads(facts: list[LabelTriple]) -> bytes:
    return ntriples(facts, graph=f"<{NS}source> ")


def turtle(facts: list[LabelTriple]) -> bytes:
    short = ["  ".join(label.replace(NS, "ex:") for label in fact) for fact in facts]
    return (f"@prefix ex: <{NS}> .\n" + "".join(f"{line} .\n" for line in short)).encode()


def rdf_xml(facts: list[LabelTriple]) -> bytes:
    def attribute(label: str, name: str) -> str:
        return f'rdf:nodeID="{label[2:]}"' if label.startswith("_:") else f'rdf:{name}="{label}"'

    lines = "".join(
        f"<rdf:Description {attribute(h, 'about')}><ex:{r.removeprefix(NS)} {attribute(t, 'resource')}/>"
        "</rdf:Description>\n"
        for h, r, t in facts
    )
    rdf = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    return f'<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="{rdf}" xmlns:ex="{NS}">\n{lines}</rdf:RDF>\n'.encode()


def parquet(facts: list[LabelTriple], names: tuple[str, ...] = ("head", "relation", "tail")) -> bytes:
    sink = io.BytesIO()
    columns = [pa.array(column) for column in zip(*facts, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, names=list(names)), sink)
    return sink.getvalue()


WRITERS = {
    ".tsv": tsv,
    ".txt": tsv,
    ".csv": csv,
    ".nt": ntriples,
    ".nq": nquads,
    ".ttl": turtle,
    ".trig": turtle,
    ".rdf": rdf_xml,
    ".owl": rdf_xml,
    ".parquet": parquet,
}
COMPRESSIONS = ["", ".gz", ".xz", ".zst"]


def whole(path: Path, **options: Any) -> Graph:
    """A file with nothing held out."""
    return load_graph(path, holdout=(0, 0), **options)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_splits(tmp_path: Path, suffix: str, compression: str) -> None:
    for split, facts in FACTS.items():
        write(tmp_path / f"{split}{suffix}{compression}", WRITERS[suffix](facts))
    graph = load_graph(tmp_path)
    assert {split: facts_of(graph, split) for split in SPLITS} == {s: set(f) for s, f in FACTS.items()}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("suffix", WRITERS)
def test_every_format_gives_the_same_single_file(tmp_path: Path, suffix: str, compression: str) -> None:
    facts = [fact for facts in FACTS.values() for fact in facts]
    graph = whole(write(tmp_path / f"all{suffix}{compression}", WRITERS[suffix](facts)))
    assert facts_of(graph, "train") == EVERYTHING
    assert graph.name == "all"


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_openke_folder(tmp_path: Path, compression: str) -> None:
    entities = sorted({label for h, _, t in EVERYTHING for label in (h, t)})
    relations = sorted({r for _, r, _ in EVERYTHING})
    for kind, labels in (("entity", entities), ("relation", relations)):
        lines = "".join(f"{label}\t{number}\n" for number, label in enumerate(labels))
        write(tmp_path / f"{kind}2id.txt{compression}", f"{len(labels)}\n{lines}")
    for split, facts in FACTS.items():
        ids = "".join(f"{entities.index(h)} {entities.index(t)} {relations.index(r)}\n" for h, r, t in facts)
        write(tmp_path / f"{split}2id.txt{compression}", f"{len(facts)}\n{ids}")
    graph = load_graph(tmp_path)
    assert {split: facts_of(graph, split) for split in SPLITS} == {s: set(f) for s, f in FACTS.items()}


def test_openke_labels_with_spaces(tmp_path: Path) -> None:
    write(tmp_path / "entity2id.txt", "2\nNew York\t0\nUnited States 1\n")
    write(tmp_path / "relation2id.txt", "1\nlies in\t0\n")
    write(tmp_path / "train2id.txt", "1\n0\t1\t0\n")
    assert facts_of(load_graph(tmp_path)) == {("New York", "lies in", "United States")}


def test_a_single_openke_file_is_the_one_that_is_read(tmp_path: Path) -> None:
    write(tmp_path / "entity2id.txt", "2\na 0\nb 1\n")
    write(tmp_path / "relation2id.txt", "1\nr 0\n")
    write(tmp_path / "train2id.txt", "1\n0 1 0\n")
    path = write(tmp_path / "test2id.txt", "1\n1 0 0\n")
    assert facts_of(whole(path)) == {("b", "r", "a")}


@pytest.mark.parametrize(
    "names", [("train", "valid", "test"), ("training", "dev", "testing"), ("TRAIN", "val", "Test")]
)
def test_splits_go_by_several_names(tmp_path: Path, names: tuple[str, str, str]) -> None:
    for name, facts in zip(names, FACTS.values(), strict=True):
        write(tmp_path / f"{name}.txt", tsv(facts))
    graph = load_graph(tmp_path)
    assert [facts_of(graph, split) for split in SPLITS] == [set(facts) for facts in FACTS.values()]


def test_splits_may_be_of_different_formats(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv.gz", tsv(FACTS["train"]))
    write(tmp_path / "valid.nt", ntriples(FACTS["valid"]))
    write(tmp_path / "test.parquet", parquet(FACTS["test"]))
    assert facts_of(load_graph(tmp_path)) == EVERYTHING


def test_files_that_are_no_split_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", "a\tr\tb\n")
    write(tmp_path / "published_rules.tsv", "not a triple")
    write(tmp_path / "train.md", "not a triple")
    assert facts_of(load_graph(tmp_path)) == {("a", "r", "b")}


def test_a_graph_is_named_after_its_folder(tmp_path: Path) -> None:
    write(tmp_path / "Kinship.v2" / "train.txt", "a\tr\tb\n")
    assert load_graph(tmp_path / "Kinship.v2").name == "Kinship.v2"


# ------------------------------------------------------------------------------------------------ TSV and CSV


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
@pytest.mark.parametrize("order", ["hrt", "htr", "rht", "rth", "thr", "trh"])
def test_the_order_of_columns_can_be_chosen(tmp_path: Path, order: str, suffix: str) -> None:
    cells = {"h": "a", "r": "likes", "t": "b"}
    separator = "," if suffix == ".csv" else "\t"
    path = write(tmp_path / f"x{suffix}", separator.join(cells[role] for role in order) + "\n")
    assert facts_of(whole(path, order=order)) == {("a", "likes", "b")}


@pytest.mark.parametrize("order", ["hht", "hr", "HRT", ""])
def test_an_order_that_is_none_is_refused(order: str) -> None:
    with pytest.raises(SettingError, match=f"order='{order}': expected the letters h, r and t"):
        ReadOptions(order=order)


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("head\trelation\ttail", "a\tlikes\tb"),
        ("Subject\tObject\tPredicate", "a\tb\tlikes"),
        ("type\tsource\ttarget\r", "likes\ta\tb"),
        ("\nh\tr\tt", "a\tlikes\tb"),  # a blank line above it
    ],
)
@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_a_header_is_detected_and_its_order_used(tmp_path: Path, header: str, row: str, suffix: str) -> None:
    text = f"{header}\n{row}\n"
    path = write(tmp_path / f"x{suffix}", text.replace("\t", ",") if suffix == ".csv" else text)
    assert facts_of(whole(path)) == {("a", "likes", "b")}
    assert check_graph(path).findings[Fault.HEADER].count == 1


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_a_triple_that_reads_like_a_header_can_be_kept(tmp_path: Path, suffix: str) -> None:
    text = "h\tr\tt\n"
    path = write(tmp_path / f"x{suffix}", text.replace("\t", ",") if suffix == ".csv" else text)
    assert facts_of(whole(path, header=False)) == {("h", "r", "t")}


@pytest.mark.parametrize("suffix", [".tsv", ".csv"])
def test_a_header_of_other_words_can_be_announced(tmp_path: Path, suffix: str) -> None:
    text = "von\twie\tnach\na\tr\tb\n"
    path = write(tmp_path / f"x{suffix}", text.replace("\t", ",") if suffix == ".csv" else text)
    assert facts_of(whole(path, header=True)) == {("a", "r", "b")}


def test_the_chosen_order_goes_before_the_header(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "head\trelation\ttail\na\tb\tr\n")
    assert facts_of(whole(path, order="htr")) == {("a", "r", "b")}


@pytest.mark.parametrize("separator", [";", "|", " ", ","])
@pytest.mark.parametrize("suffix", [".txt", ".csv"])
def test_the_separator_can_be_chosen(tmp_path: Path, separator: str, suffix: str) -> None:
    path = write(tmp_path / f"x{suffix}", separator.join(["a", "likes", "b"]))
    assert facts_of(whole(path, separator=separator)) == {("a", "likes", "b")}


@pytest.mark.parametrize("separator", ["", "::", "·"])
def test_a_separator_of_another_length_is_refused(separator: str) -> None:
    with pytest.raises(SettingError, match=f"separator='{separator}': expected one ASCII character"):
        ReadOptions(separator=separator)


@pytest.mark.parametrize("separator", ["\n", "\r", '"'])
def test_a_separator_with_another_meaning_is_refused(separator: str) -> None:
    with pytest.raises(SettingError, match=r"separator=.*: line ends and quotes have other meanings"):
        ReadOptions(separator=separator)


def test_csv_quoting(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", '"Paris, ""la ville""",is,"a\nb"\n')
    assert facts_of(whole(path)) == {('Paris, "la ville"', "is", "a\nb")}


def test_csv_quoting_after_a_byte_order_mark(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", '\ufeff"Paris, Texas",in,Texas\n')
    assert facts_of(whole(path)) == {("Paris, Texas", "in", "Texas")}


def test_tsv_takes_quotes_commas_and_spaces_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", '"a\tr, s\t b"" \n')
    assert facts_of(whole(path)) == {('"a', "r, s", ' b"" ')}


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_blocks_may_end_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, end: str, last: str
) -> None:
    monkeypatch.setattr(streams, "BLOCK_BYTES", block_bytes)
    facts = [(f"é{i}", "r", f"e{i + 1}") for i in range(12)]
    path = write(
        tmp_path / "x.tsv", end.join("\t".join(fact) for fact in facts) + end.strip("\n") * bool(last) + last
    )
    report = check_graph(path)
    assert facts_of(whole(path)) == set(facts)
    windows = report.findings.get(Fault.CRLF)
    assert (windows.count if windows else 0) == (0 if end == "\n" else 12 if last else 11)


# ---------------------------------------------------------------------------------------------------- Parquet


def test_parquet_columns_by_name_among_others(tmp_path: Path) -> None:
    names = ("source_file", "Object", "Subject", "predicate")
    path = write(tmp_path / "x.parquet", parquet([("f", "b", "a", "r")], names))  # type: ignore[list-item]
    assert facts_of(whole(path)) == {("a", "r", "b")}


def test_parquet_columns_by_position(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", parquet([("a", "b", "r")], ("c0", "c1", "c2")))
    assert facts_of(whole(path, order="htr")) == {("a", "r", "b")}


def test_parquet_numbers_and_categories_become_labels(tmp_path: Path) -> None:
    categories = pa.array(["likes"]).dictionary_encode()
    table = pa.table({"head": np.array([7]), "relation": categories, "tail": pa.array([8], pa.uint8())})
    pq.write_table(table, tmp_path / "x.parquet")
    assert facts_of(whole(tmp_path / "x.parquet")) == {("7", "likes", "8")}
