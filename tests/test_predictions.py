"""Predictions are new facts with their evidence, the same in every kind of file."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow.parquet as pq
import pyoxigraph as ox
import pytest
from complete_cases import ODD, a_job, a_reasoner, complete, facts, finish, make_run, rows_of
from graphs import facts_of, write

from squire.cli.runs import path_text
from squire.completion.jobs import Predictor
from squire.completion.predictions import SCHEMA
from squire.completion.questions import FileQuestions
from squire.graph.formats.rdf import label_of
from squire.graph.loading import load_graph
from squire.reasoning.answers import Edge, Evidence


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def whole(run: Path) -> Path:
    """Everything that can be asked of it."""
    out = run.parent / "whole.tsv"
    finish(a_job(run, out))
    return out


def test_predictions_are_the_answers_without_what_any_split_knows(run: Path, tmp_path: Path) -> None:
    reasoner = a_reasoner(run)
    known, labels = facts_of(reasoner.graph), reasoner.labels
    entities = [label for label in labels.entities if label not in ODD[:2]]  # TSV cannot ask about these
    asked = [(label, relation, None) for relation in labels.relations for label in entities]
    asked += [(None, relation, label) for relation in labels.relations for label in entities]  # type: ignore[misc]
    file = write(tmp_path / "asked.tsv", "".join("\t".join(part or "?" for part in one) + "\n" for one in asked))
    questions = FileQuestions(file, reasoner.query)
    found = Predictor(reasoner, reasoner.decoding(), 4).predict(questions, 0, len(asked))
    for question, predictions in zip(asked, found, strict=True):
        answers = reasoner.answer(*question, k=99)
        rows = [(tuple(part or labels.expand(one.entity) for part in question), one) for one in answers]
        assert not any(fact in known for fact, _ in rows)
        assert len(predictions) == min(4, len(rows))
        for rank, (prediction, (fact, one)) in enumerate(zip(predictions, rows, strict=False), 1):
            head, tail = labels.entities[prediction.head], labels.entities[prediction.tail]
            assert (head, labels.relations[prediction.relation], tail) == fact
            assert (prediction.answer.rank, prediction.answer.evidence.text) == (rank, one.evidence.text)
            assert prediction.answer.score == pytest.approx(one.score, rel=1e-4)


def test_a_smallest_score_leaves_out_the_worse_and_nothing_else(run: Path, whole: Path, tmp_path: Path) -> None:
    rows = rows_of(whole)[1:]
    scores = sorted({float(row[4]) for row in rows})
    least = (scores[len(scores) // 2] + scores[len(scores) // 2 + 1]) / 2
    finish(a_job(run, tmp_path / "best.tsv", {"min_score": least}))
    best = rows_of(tmp_path / "best.tsv")[1:]
    assert best == [row for row in rows if float(row[4]) > least]
    assert 0 < len(best) < len(rows)


def test_a_path_reads_the_same_in_a_file_and_on_the_screen() -> None:
    known = Edge("Austria", "borders", "Germany", backwards=False, is_fact=True, probability=0.5)
    inferred = Edge("Germany", "speaks", "German", backwards=False, is_fact=False, probability=0.823)
    back = Edge("Swiss", "speaks", "German", backwards=True, is_fact=True, probability=0.5)
    evidence = Evidence((known, inferred, back), "completed", 0.1, 0.5, None)
    assert evidence.text == "Austria ──borders──▶ Germany ╌╌speaks 0.82╌╌▶ German ◀──speaks── Swiss"
    assert path_text(evidence).plain == evidence.text


def test_tsv_has_a_header_and_escapes_what_would_break_a_line(whole: Path) -> None:
    header, *rows = rows_of(whole)
    names = ["head", "relation", "tail", "rank", "score", "grade", "path", "rule", "hops", "confidence", "basis"]
    assert header == SCHEMA.names == names
    assert {len(row) for row in rows} == {len(names)}
    assert set(ODD[:4]) <= {label for row in rows for label in (row[0], row[2])}
    assert {row[3] for row in rows} == {"1", "2", "3"}
    assert not {tuple(row[:3]) for row in rows} & {fact for split in facts().values() for fact in split}


def test_parquet_holds_the_same_with_types(run: Path, whole: Path, tmp_path: Path) -> None:
    count = finish(a_job(run, tmp_path / "all.parquet"))
    table = pq.read_table(tmp_path / "all.parquet")
    assert table.schema.equals(SCHEMA)
    rows, expected = table.to_pylist(), rows_of(whole)[1:]
    assert count == len(rows) == len(expected)
    for row, cells in zip(rows, expected, strict=True):
        text = {name: "" if value is None else value for name, value in row.items()}
        text["score"] = f"{row['score']:.6g}"
        assert [str(text[name]) for name in SCHEMA.names] == cells
        assert row["hops"] == row["path"].count("▶") + row["path"].count("◀")
    assert finish(a_job(run, tmp_path / "more.parquet", {"k": 99})) > count
    rules = pq.read_table(tmp_path / "more.parquet")["rule"].to_pylist()
    assert set(rules) == {None, "likes(X, Y) ⇐ knows(A, X) ∧ likes(A, Y)"}


def test_row_groups_are_larger_than_parts(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squire.completion.predictions.ROWS", 50)
    count = finish(a_job(run, tmp_path / "all.parquet"))
    about = pq.ParquetFile(tmp_path / "all.parquet").metadata
    sizes = [about.row_group(i).num_rows for i in range(about.num_row_groups)]
    assert sum(sizes) == count
    assert len(sizes) > 1
    assert min(sizes[:-1]) >= 50


def test_n_triples_can_be_read_back(run: Path, whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "all.nt.gz"
    expected = rows_of(whole)[1:]
    assert finish(a_job(run, out)) == len(expected)
    said: dict[tuple[str, ...], dict[str, str]] = {}
    statements = list(ox.parse(gzip.decompress(out.read_bytes()), ox.RdfFormat.N_TRIPLES))
    asserted = {quad.triple for quad in statements}
    triple_of = {}
    for quad in statements:
        if quad.predicate.value.endswith("#reifies"):
            assert isinstance(quad.object, ox.Triple)
            assert quad.object in asserted
            triple_of[quad.subject] = quad.object
    for quad in statements:
        if quad.subject in triple_of and isinstance(quad.object, ox.Literal):
            triple = triple_of[quad.subject]
            labels = tuple(label_of(term) or "" for term in (triple.subject, triple.predicate, triple.object))
            said.setdefault(labels, {})[quad.predicate.value.rpartition(":")[2]] = quad.object.value
    plain = [row for row in expected if not {"\\", "\n", "\t"} & set("".join(row))]
    once = [row for row in plain if [other[:3] for other in expected].count(row[:3]) == 1]
    assert once
    for row in once:
        own = said[tuple(row[:3])]
        assert float(own["score"]) == pytest.approx(float(row[4]), rel=1e-5)
        assert (own["rank"], own["grade"], own["path"], own.get("rule", "")) == (row[3], row[5], row[6], row[7])
        assert "by squire" in own["//purl.org/dc/terms/provenance"]
    assert facts_of(load_graph(out, literals=True)) == {tuple(row[:3]) for row in expected}


def test_a_literal_is_one_as_a_tail_and_is_given_a_name_as_a_head(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.nt"
    asked = write(tmp_path / "asked.tsv", "p00\tknows\n?\tknows\tp00\n")
    result = complete(run, "-o", out, "--queries", asked, "-k", 99, "--beam", 99)
    assert result.exit_code == 0, result.output
    assert f"<p00> <knows> {ODD[-1]} .\n".replace("<", "<urn:squire:") in out.read_text()
    assert {("p00", "knows", ODD[-1]), (ODD[-1], "knows", "p00")} <= facts_of(load_graph(out, literals=True))
