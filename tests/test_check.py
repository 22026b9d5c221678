"""Every fault of dirty data: its kind, its number, its place; what stops a load, and what is only said."""

import logging
import re
from pathlib import Path

import pytest
from dirty import FATAL, GOOD, HARMLESS, SUSPICIOUS, Case, folder, lay_out, parquet
from graphs import facts_of, make_graph, write

from squire.core import files as streams
from squire.errors import DataError
from squire.graph.checking import EXAMPLES_KEPT, Fault, Report
from squire.graph.loading import check_graph, load_graph


def case_id(case: Case) -> str:
    return case.name


def places_of(report: Report, fault: Fault, home: Path) -> list[str]:
    """Where the examples are, below the folder."""
    pattern = re.compile(re.escape(str(home)) + r"/?(.*?(?:, (?:row|statement) \d+|:\d+)?)(?:: .*)?$")
    found = [pattern.match(example) for example in report.findings[fault].examples]
    return [match.group(1) if match else "?" for match in found]


@pytest.mark.parametrize("case", FATAL + HARMLESS + SUSPICIOUS, ids=case_id)
def test_check_reports_kind_count_and_place(case: Case, tmp_path: Path) -> None:
    report = check_graph(lay_out(case, tmp_path))
    assert set(report.findings) == {case.fault}
    assert report.findings[case.fault].count == case.count
    assert places_of(report, case.fault, tmp_path) == case.places
    assert re.search(case.detail, report.findings[case.fault].examples[0])


@pytest.mark.parametrize("case", FATAL, ids=case_id)
def test_loading_stops_with_the_same_words(case: Case, tmp_path: Path) -> None:
    path = lay_out(case, tmp_path)
    report = check_graph(path)
    assert not report.usable
    [line] = report.lines(fatal=True)
    assert report.findings[case.fault].examples[0] in line
    with pytest.raises(DataError, match=f"^{re.escape(line)}$"):
        load_graph(path)


@pytest.mark.parametrize("case", HARMLESS, ids=case_id)
def test_loading_goes_on_and_says_what_it_set_right(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = lay_out(case, tmp_path)
    report = check_graph(path)
    assert report.usable
    with caplog.at_level(logging.WARNING, "squire"):
        graph = load_graph(path)
    assert len(facts_of(graph, "train")) > 0
    assert caplog.messages == report.lines(fatal=False)


@pytest.mark.parametrize("case", SUSPICIOUS, ids=case_id)
def test_what_is_only_suspicious_is_kept_without_a_word(
    case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = lay_out(case, tmp_path)
    assert check_graph(path).usable
    with caplog.at_level(logging.WARNING, "squire"):
        graph = load_graph(path)
    assert caplog.messages == []
    for split in ("train", "valid", "test"):
        text = (tmp_path / f"{split}.txt").read_text()
        assert facts_of(graph, split) == {tuple(line.split("\t")) for line in text.splitlines()}


def test_clean_data_gives_an_empty_report(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = lay_out(Case("clean", folder(), Fault.BROKEN, []), tmp_path)
    assert check_graph(path).findings == {}
    load_graph(path)
    assert caplog.messages == []


def test_a_known_order_is_not_doubted(tmp_path: Path) -> None:
    """Known by `order`, a header or the names of columns: the graph simply has many relations."""
    rows = [(f"h{i % 5}", f"r{i}", f"t{i % 7}") for i in range(30)]
    plain = write(tmp_path / "plain.csv", "".join(",".join(row) + "\n" for row in rows))
    named = write(tmp_path / "named.csv", "head,relation,tail\n" + plain.read_text())
    head, relation, tail = ([row[i] for row in rows] for i in range(3))
    table = write(tmp_path / "x.parquet", parquet(head=[*head], relation=[*relation], tail=[*tail]))
    assert Fault.ORDER in check_graph(plain).findings
    for path, order in ((plain, "hrt"), (named, None), (table, None)):
        assert Fault.ORDER not in check_graph(path, order=order).findings


def test_one_look_shows_every_fault(tmp_path: Path) -> None:
    lines = [b"\xef\xbb\xbfhead\trelation\ttail", b"a\tr\tb\r", b"", b"a\tr", b"\tr\tb", b"\xff\tr\tb", b"a\tr\tb"]
    path = write(tmp_path / "x.tsv", b"\n".join(lines))
    report = check_graph(path)
    assert {fault: found.examples[0].partition(": ")[0] for fault, found in report.findings.items()} == {
        Fault.BOM: f"{path}:1",
        Fault.HEADER: f"{path}:1",
        Fault.CRLF: f"{path}:2",
        Fault.BLANK: f"{path}:3",
        Fault.COLUMNS: f"{path}:4",
        Fault.EMPTY_FIELD: f"{path}:5",
        Fault.ENCODING: f"{path}:6",
    }


def test_a_load_names_every_fatal_fault_at_once(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", "a\tr\n")
    write(tmp_path / "valid.txt", "a\t\tb\n")
    with pytest.raises(
        DataError, match=r"train\.txt:1: .*wrong number of columns.*\n.*valid\.txt:1: .*empty field"
    ):
        load_graph(tmp_path)


def test_an_empty_split_is_named_although_another_is_broken(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", "")
    write(tmp_path / "valid.txt", "a\tr\n")
    assert {Fault.EMPTY, Fault.COLUMNS} <= set(check_graph(tmp_path).findings)


@pytest.mark.parametrize(
    "names", [("train.txt", "train.tsv"), ("valid.txt", "dev.nt"), ("test.txt", "test.txt.gz")]
)
def test_two_files_of_one_split_are_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    for name in {"train.txt", *names}:
        write(tmp_path / name, GOOD)
    split = names[0].partition(".")[0]
    with pytest.raises(DataError, match=rf"are both the {split} split\. Keep one of them\."):
        load_graph(tmp_path)
    with pytest.raises(DataError, match=rf"are both the {split} split"):
        check_graph(tmp_path)


def test_only_the_first_few_places_are_kept_but_all_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "a\tr\n" * 1200)
    report = check_graph(path)
    found = report.findings[Fault.COLUMNS]
    assert (found.count, len(found.examples)) == (1200, EXAMPLES_KEPT)
    assert "(and 1,199 more like it)" in report.lines(fatal=True)[0]


@pytest.mark.parametrize("block_bytes", [1, 5, 6, 7, 8, 23, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_lines_are_counted_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, end: bytes
) -> None:
    monkeypatch.setattr(streams, "BLOCK_BYTES", block_bytes)
    lines = [b"a\tr\tb"] * 30
    lines[3], lines[10], lines[17], lines[29] = b"", b"a\tr", b"a\t\tb", b"a\tr\t\xff"
    path = write(tmp_path / "train.txt", end.join(lines))
    report = check_graph(path)
    expected = {Fault.BLANK: [4], Fault.COLUMNS: [11], Fault.EMPTY_FIELD: [18], Fault.ENCODING: [30]}
    assert {fault: places_of(report, fault, tmp_path) for fault in expected} == {
        fault: [f"train.txt:{number}" for number in numbers] for fault, numbers in expected.items()
    }
    assert (report.findings[Fault.CRLF].count if end == b"\r\n" else 29) == 29


@pytest.mark.parametrize("block_bytes", [1, 24, 1 << 20])
def test_duplicates_are_placed_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr(streams, "BLOCK_BYTES", block_bytes)
    path = write(tmp_path / "x.tsv", "head\trelation\ttail\na\tr\tb\n\nb\tr\tc\na\tr\tb")
    report = check_graph(path)
    assert places_of(report, Fault.DUPLICATE, tmp_path) == ["x.tsv:5"]


def test_ntriples_lines_are_counted_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BLOCK_BYTES", 30)
    path = write(
        tmp_path / "x.nt", "<e:a> <e:p> <e:b> .\n" * 9 + "broken\n" + "<e:a> <e:p> <e:b> .\r\n" * 9 + "broken"
    )
    assert places_of(check_graph(path), Fault.SYNTAX, tmp_path) == ["x.nt:10", "x.nt:20"]


def test_a_quoted_row_of_several_lines_keeps_the_count(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'a,r,"b\nc"\na,r\n')
    assert places_of(check_graph(path), Fault.COLUMNS, tmp_path) == ["x.csv:3"]


def test_rows_of_parquet_are_counted_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squire.graph.formats.delimited.ROWS_PER_BLOCK", 3)
    names: list[str | None] = [f"e{i}" for i in range(10)]
    path = write(tmp_path / "x.parquet", parquet(head=[*names[:7], None, *names[8:]], relation=names, tail=names))
    assert places_of(check_graph(path), Fault.EMPTY_FIELD, tmp_path) == ["x.parquet, row 8"]


@pytest.mark.parametrize("suffix", [".csv", ".nt"])
def test_rows_are_not_lost_between_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str) -> None:
    monkeypatch.setattr("squire.graph.formats.delimited.ROWS_PER_BLOCK", 3)
    monkeypatch.setattr("squire.graph.formats.rdf.ROWS_PER_BLOCK", 3)
    row = "e:{0},e:r,e:{1}\n" if suffix == ".csv" else "<e:{0}> <e:r> <e:{1}> .\n"
    path = write(tmp_path / f"x{suffix}", "".join(row.format(i, i + 1) for i in range(10)))
    graph = load_graph(path, holdout=(0, 0))
    assert facts_of(graph) == {(f"e:{i}", "e:r", f"e:{i + 1}") for i in range(10)}


def test_an_unseen_name_is_counted_once_whatever_the_splits(tmp_path: Path) -> None:
    path = lay_out(Case("", folder(valid="x\tq\ta\n", test="a\tq\tx\n"), Fault.UNSEEN_ENTITY, []), tmp_path)
    report = check_graph(path)
    for fault in (Fault.UNSEEN_ENTITY, Fault.UNSEEN_RELATION):
        assert report.findings[fault].count == 1
        assert places_of(report, fault, tmp_path) == ["valid.txt:1"]


# -------------------------------------------------------------------------------------------- twin relations


def inverse_leaks(home: Path, train: str, test: str) -> int:
    write(home / "train.txt", train)
    write(home / "test.txt", test)
    finding = check_graph(home).findings.get(Fault.INVERSE_LEAK)
    return finding.count if finding else 0


def test_a_wider_relation_gives_nothing_away(tmp_path: Path) -> None:
    """Each capital is a city of its country, but from a city nobody can read off the capital."""
    train = "".join(f"c{i}\tcapital of\tn{i}\nn{i}\thas city\tc{i}\n" for i in range(5))
    train += "".join(f"n{i}\thas city\td{i}\n" for i in range(20))
    assert inverse_leaks(tmp_path, train + "n5\thas city\tc5\n", "c5\tcapital of\tn5\n") == 0
    assert inverse_leaks(tmp_path, train + "c5\tcapital of\tn5\n", "n5\thas city\tc5\n") == 1


def test_one_reversed_pair_makes_no_twins(tmp_path: Path) -> None:
    assert inverse_leaks(tmp_path, "a\tover\tb\nc\tunder\td\n", "b\tunder\ta\n") == 0
    assert inverse_leaks(tmp_path, "a\tover\tb\nc\tunder\td\nd\tover\tc\n", "b\tunder\ta\n") == 1


def test_repeats_make_no_twins(tmp_path: Path) -> None:
    assert inverse_leaks(tmp_path, "a\tover\tb\n" * 5 + "c\tunder\td\n", "b\tunder\ta\n") == 0


def test_self_loops_make_no_twins(tmp_path: Path) -> None:
    loops = "".join(f"e{i}\tnear\te{i}\n" for i in range(5))
    assert inverse_leaks(tmp_path, loops + "a\tnear\tb\n", "b\tnear\ta\n") == 0


def test_a_leak_is_not_told_twice(tmp_path: Path) -> None:
    symmetric = "a\tnear\tb\nb\tnear\ta\nc\tnear\td\nd\tnear\tc\n"
    assert inverse_leaks(tmp_path, symmetric, "a\tnear\tb\n") == 0


# ------------------------------------------------------------------------------------------- the saved form


def test_a_saved_graph_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "x.graph"
    make_graph({"train": [("a", "r", "b"), ("b", "r", "b")], "test": [("a", "r", "b"), ("z", "r", "a")]}).save(
        path
    )
    report = check_graph(path)
    assert {fault: found.examples for fault, found in report.findings.items()} == {
        Fault.EMPTY_SPLIT: [f"{path}, valid"],
        Fault.SELF_LOOP: [f"{path}, train triple 2: b r b"],
        Fault.LEAK: [f"{path}, test triple 1: a r b"],
        Fault.UNSEEN_ENTITY: [f"{path}, test triple 2: z"],
    }
    assert report.usable


def test_a_folder_named_like_a_saved_graph_is_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "x.graph" / "train.txt", GOOD)
    assert facts_of(load_graph(tmp_path / "x.graph")) == {("a", "r", "b"), ("b", "r", "c")}
