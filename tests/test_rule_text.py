"""Rules as text: what is written is read back, AnyBURL's own lines are understood, mistakes name file and line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import fresh_folder, make_graph
from hypothesis import given, settings
from hypothesis import strategies as st

from squire.core.run_files import RULES, RULES_TEXT
from squire.errors import RuleError
from squire.graph.labels import LabelIndex, Labels
from squire.rules.anyburl import Sidecar, is_writable, read_rules, read_run_rules, rule_text, write_rules
from squire.rules.mining import MiningOptions, mine_rules
from squire.rules.rules import NONE, PSEUDO_COUNT, ClosedIndex, Rules, mirrored

NAMES = Labels(
    LabelIndex(["Austria", "German", "Washington, D.C.", "St. Martin (French part)"], "entity"),
    LabelIndex(["borders", "language", "located in (old)"], "relation"),
)
BORDERS, LANGUAGE, LOCATED = 0, 1, 2
INVERSE = 3  # added to a relation
AUSTRIA, GERMAN, MARTIN, WASHINGTON = 0, 1, 2, 3

# No tab or line end: a line of the file could not hold it. No lone capital: that is a variable.
labels = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).filter(
    lambda text: text.strip() == text and text.upper() != text
)


EVERYTHING = MiningOptions(min_support=1, min_confidence=1e-6, constant_support=1, constant_confidence=1e-6)


def same_rules(one: Rules, other: Rules) -> bool:
    columns = ("head", "body", "head_constant", "body_constant", "body_count", "support")
    return all(np.array_equal(getattr(one, column), getattr(other, column)) for column in columns)


def one_rule(tmp_path: Path, text: str) -> Rules:
    path = tmp_path / "rules.tsv"
    path.write_text(f"10\t4\t0.4\t{text}\n", encoding="utf-8")
    return read_rules(path, NAMES).rules


@pytest.mark.parametrize(
    ("text", "head", "body", "c", "d"),
    [
        ("language(X,Y) <= borders(X,A), language(A,Y)", LANGUAGE, [BORDERS, LANGUAGE, -1], -1, -1),
        ("language(X,Y) <= language(A,Y), borders(A,X)", LANGUAGE, [BORDERS + INVERSE, LANGUAGE, -1], -1, -1),
        ("borders(X,Y) <= borders(Y,X)", BORDERS, [BORDERS + INVERSE, -1, -1], -1, -1),
        (
            "borders(X,Y) <= borders(X,A), borders(B,A), located in (old)(B,Y)",
            BORDERS,
            [BORDERS, BORDERS + INVERSE, LOCATED],
            -1,
            -1,
        ),
        ("language(X,German) <= borders(X,Austria)", LANGUAGE, [BORDERS, -1, -1], GERMAN, AUSTRIA),
        ("language(X,German) <= borders(A,X)", LANGUAGE, [BORDERS + INVERSE, -1, -1], GERMAN, -1),
        ("language(Austria,Y) <= language(A,Y)", LANGUAGE + INVERSE, [LANGUAGE + INVERSE, -1, -1], AUSTRIA, -1),
        (
            "located in (old)(X,Washington, D.C.) <= borders(St. Martin (French part),X)",
            LOCATED,
            [BORDERS + INVERSE, -1, -1],
            WASHINGTON,
            MARTIN,
        ),
    ],
)
def test_anyburl_lines_are_understood(
    tmp_path: Path, text: str, head: int, body: list[int], c: int, d: int
) -> None:
    rules = one_rule(tmp_path, text)
    assert rules.head.tolist() == [head]
    assert rules.body.tolist() == [body]
    assert (rules.head_constant[0], rules.body_constant[0]) == (c, d)
    assert (rules.body_count[0], rules.support[0], rules.confidence[0]) == (10, 4, 0.4)


def test_a_rule_is_written_as_anyburl_writes_it(tmp_path: Path) -> None:
    text = "language(X,Y) <= borders(A,X), language(A,Y)"
    assert rule_text(one_rule(tmp_path, text), 0, NAMES) == text


@pytest.mark.parametrize(
    "text",
    [
        "language(X,German) <= ",
        "language(X,German) <= borders(X,A), borders(A,B)",
        "language(X,Y) <= borders(X,A), borders(A,B), borders(B,C), language(C,Y)",
        "language(X,Y) <= borders(X,A), borders(X,Y)",
        "language(X,Y) <= borders(X,X), language(X,Y)",
        "language(X,Y) <= borders(X,Y), borders(Y,X), borders(X,Y)",
        "language(X,X) <= borders(X,A), borders(A,X)",
        "language(X,Y) <= borders(X,Austria), borders(Austria,Y)",
        "language(X,German) <= borders(X,X)",
        "language(X,me_myself_i) <= borders(X,A)",
    ],
)
def test_forms_that_are_not_used_are_counted_not_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rules.tsv"
    path.write_text(f"10\t4\t0.4\t{text}\n")
    read = read_rules(path, NAMES)
    assert (len(read.rules), read.skipped) == (0, 1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "10\t4\tlanguage(X,Y) <= borders(X,Y)",
            r"rules\.tsv:2: expected 4 fields separated by tabs, found 3\. Correct or delete",
        ),
        ("ten\t4\t0.4\tlanguage(X,Y) <= borders(X,Y)", r"rules\.tsv:2: expected a count, found 'ten'"),
        (
            "4\t10\t0.4\tlanguage(X,Y) <= borders(X,Y)",
            r"rules\.tsv:2: support 10 must not exceed .* 4\. Correct",
        ),
        (f"{10**20}\t4\t0.4\tlanguage(X,Y) <= borders(X,Y)", r"rules\.tsv:2: the count 10+ is too large"),
        ("10\t4\thigh\tlanguage(X,Y) <= borders(X,Y)", r"rules\.tsv:2: expected a confidence, found 'high'"),
        ("10\t4\t0.4\tlanguage(X,Y)", r"rules\.tsv:2: expected 'head <= body'"),
        ("10\t4\t0.4\tlanguage(X,Y) <= borders X,Y", r"rules\.tsv:2: expected 'relation\(X,Y\)'"),
        (
            "10\t4\t0.4\tlanguage(X,Y) <= bordrs(X,Y)",
            r"rules\.tsv:2: unknown relation 'bordrs'. Nearest: 'borders'",
        ),
        (
            "10\t4\t0.4\tlanguage(X,Germn) <= borders(X,A)",
            r"rules\.tsv:2: unknown entity 'Germn'. Nearest: 'German'",
        ),
        ("10\t4\t0.4\tlanguage(x,y) <= borders(x,y)", r"rules\.tsv:2: expected a variable \(a capital letter\)"),
    ],
)
def test_a_malformed_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "rules.tsv"
    path.write_text(f"10\t4\t0.4\tlanguage(X,Y) <= borders(X,Y)\n{line}\n")
    with pytest.raises(RuleError, match=words):
        read_rules(path, NAMES)


def test_a_byte_order_mark_is_no_part_of_the_first_count(tmp_path: Path) -> None:
    path = tmp_path / "rules.tsv"
    path.write_text("10\t4\t0.4\tlanguage(X,Y) <= borders(X,Y)\n", encoding="utf-8-sig")
    assert len(read_rules(path, NAMES).rules) == 1


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_broken_archive_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rules.tsv{suffix}"
    path.write_bytes(b"no archive")
    with pytest.raises(RuleError, match=r"rules\.tsv\.\w+: cannot be read"):
        read_rules(path, NAMES)


def test_labels_may_look_like_variables_and_arrows(tmp_path: Path) -> None:
    films = [("I, Robot", "a <= b", "good"), ("I, Robot", "kind", "x <= y"), ("Up", "kind", "x <= y")]
    graph = make_graph({"train": [*films, ("Up", "a <= b", "good")]})
    rules = mine_rules(graph.train, EVERYTHING).rules
    write_rules(rules, graph.labels, tmp_path / "rules.tsv")
    read = read_rules(tmp_path / "rules.tsv", graph.labels).rules
    assert len(rules) > 0
    assert same_rules(read, rules)


@pytest.mark.parametrize("label", ["C", "two\nlines", "a\ttab"])
def test_names_that_the_format_cannot_hold_are_found_out(tmp_path: Path, label: str) -> None:
    triples = [(f"p{i}", relation, end) for i in range(3) for relation, end in (("in", label), ("from", "Bell"))]
    graph = make_graph({"train": triples})
    rules = mine_rules(graph.train).rules
    fits = is_writable(rules, graph.labels)
    own = graph.labels.entity_id(label)
    assert fits.tolist() == ((rules.head_constant != own) & (rules.body_constant != own)).tolist()
    assert not fits.all()
    with pytest.raises(RuleError, match=r"some labels do not fit the format"):
        write_rules(rules, graph.labels, tmp_path / "rules.tsv")
    write_rules(rules.take(fits), graph.labels, tmp_path / "rules.tsv")
    assert len(read_rules(tmp_path / "rules.tsv", graph.labels).rules) == np.count_nonzero(fits)


def test_a_relation_may_begin_like_another_with_brackets(tmp_path: Path) -> None:
    facts = [(f"p{i}", relation, f"q{i}") for i in range(4) for relation in ("a", "a(b)", "a(b),c", "a(b)(c)")]
    graph = make_graph({"train": facts})
    rules = mine_rules(graph.train).rules
    assert set(rules.head.tolist()) >= {0, 1, 2, 3}
    write_rules(rules, graph.labels, tmp_path / "rules.tsv")
    assert same_rules(read_rules(tmp_path / "rules.tsv", graph.labels).rules, rules)


def test_a_line_with_two_meanings_is_not_written(tmp_path: Path) -> None:
    """`a(b)(X,A)` is both a relation called `a(b)`, and the relation `a` of an entity called `b)(X`."""
    facts = [("b)(X", "a", f"p{i}") for i in range(4)]
    facts += [(f"p{i}", "a(b)", f"q{i}") for i in range(4)] + [(f"p{i}", "c", "d") for i in range(4)]
    graph = make_graph({"train": facts})
    rules = mine_rules(graph.train).rules
    texts = [rule_text(rules, i, graph.labels) for i in range(len(rules))]
    two = [i for i, text in enumerate(texts) if text == "c(X,d) <= a(b)(X,A)"]
    assert len(two) == 1
    fits = is_writable(rules, graph.labels)
    assert not fits[two].any()
    with pytest.raises(
        RuleError, match=r"rules\.tsv: some labels do not fit the format, or make a line ambiguous"
    ):
        write_rules(rules, graph.labels, tmp_path / "rules.tsv")
    write_rules(rules.take(fits), graph.labels, tmp_path / "rules.tsv")
    assert same_rules(read_rules(tmp_path / "rules.tsv", graph.labels).rules, rules.take(fits))


def test_names_in_brackets_are_read_without_a_look_for_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The nearest of a million labels take a second to find, for each line.
    monkeypatch.setattr(LabelIndex, "nearest", lambda *_: pytest.fail("looked for the nearest"))
    text = "located in (old)(X,Washington, D.C.) <= borders(X,St. Martin (French part))"
    assert len(one_rule(tmp_path, text)) == 1


def test_writing_a_rule_takes_no_look_at_all_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # FB15K237 has millions of rules: a column computed anew for each took hours.
    seen: list[Rules] = []

    def confidence(rules: Rules) -> object:
        seen.append(rules)
        return rules.support / rules.body_count

    monkeypatch.setattr(Rules, "confidence", property(confidence))
    count = np.full(9, 3)
    body = np.tile(np.array([BORDERS, -1, -1], np.int32), (9, 1))
    rules = Rules.closed(INVERSE, np.full(9, LANGUAGE, np.int32), body, count, count)
    write_rules(rules, NAMES, tmp_path / "rules.tsv")
    assert len(seen) == 1


def test_a_missing_file_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match=r"no such file. Run `squire mine GRAPH"):
        read_rules(tmp_path / "rules.tsv", NAMES)


@given(st.lists(st.tuples(labels, labels, labels), min_size=2, max_size=14, unique=True))
@settings(max_examples=80)
def test_what_is_written_is_read_back(triples: list[tuple[str, str, str]]) -> None:
    graph = make_graph({"train": triples})
    rules = mine_rules(graph.train, EVERYTHING).rules
    with fresh_folder() as folder:
        write_rules(rules, graph.labels, folder / "rules.tsv.gz")
        read = read_rules(folder / "rules.tsv.gz", graph.labels)
    assert read.skipped == 0
    assert same_rules(read.rules, rules)


hostile = st.lists(st.sampled_from(["a", "b", "X", "A", "(", ")", ",", " ", "<="]), min_size=1, max_size=7)


@given(st.lists(st.tuples(*(hostile.map("".join) for _ in range(3))), min_size=2, max_size=10, unique=True))
@settings(max_examples=150)
def test_what_looks_like_syntax_is_read_back_or_not_written(triples: list[tuple[str, str, str]]) -> None:
    graph = make_graph({"train": triples})
    rules = mine_rules(graph.train, EVERYTHING).rules
    rules = rules.take(is_writable(rules, graph.labels))
    with fresh_folder() as folder:
        write_rules(rules, graph.labels, folder / "rules.tsv")
        read = read_rules(folder / "rules.tsv", graph.labels)
    assert read.skipped == 0
    assert same_rules(read.rules, rules)


def test_mirrored_bodies_are_walked_from_the_other_end() -> None:
    body = np.array([[0, 4, -1], [1, -1, -1], [0, 1, 2]], np.int32)
    assert mirrored(body, 3).tolist() == [[1, 3, -1], [4, -1, -1], [5, 4, 3]]


def test_the_index_holds_each_rule_and_its_mirror_most_trusted_first(tmp_path: Path) -> None:
    path = tmp_path / "rules.tsv"
    path.write_text(
        "10\t4\t0.4\tborders(X,Y) <= borders(Y,X)\n"
        "100\t90\t0.9\tborders(X,Y) <= borders(X,A), borders(A,Y)\n"
        "10\t9\t0.9\tlanguage(X,German) <= borders(X,A)\n"
    )
    index = ClosedIndex.from_rules(read_rules(path, NAMES).rules)
    assert index.offsets.tolist() == [0, 2, 2, 2, 4, 4, 4]
    assert index.rule.tolist() == [1, 0, 1, 0]
    assert index.body[:2].tolist() == [[0, 0, -1], [3, -1, -1]]
    assert index.body[2:].tolist() == [[3, 3, -1], [0, -1, -1]]
    assert index.smoothed_confidence.tolist() == pytest.approx(
        [90 / (100 + PSEUDO_COUNT), 4 / (10 + PSEUDO_COUNT)] * 2
    )


def test_the_sidecar_tells_graph_and_estimates_and_a_foreign_one_is_ignored(tmp_path: Path) -> None:
    rules = tmp_path / "rules.tsv"
    assert Sidecar.load(rules) is None
    Sidecar("world", {"length": 2}, False, {"borders(X,Y) <= borders(Y,X)": 0.25}).save(rules)
    assert Sidecar.load(rules) == Sidecar("world", {"length": 2}, False, {"borders(X,Y) <= borders(Y,X)": 0.25})
    Sidecar.path_of(rules).write_text('{"graph": 3}')
    assert Sidecar.load(rules) is None


def test_a_run_keeps_arrays_and_an_old_run_text(tmp_path: Path) -> None:
    assert read_run_rules(tmp_path, NAMES) is None
    body = np.array([[0, 0, NONE], [1, NONE, NONE]], np.int32)
    rules = Rules.closed(3, np.array([1, 0], np.int32), body, np.array([10, 100]), np.array([4, 90]))
    rules.error[0] = 0.25
    write_rules(rules, NAMES, tmp_path / RULES_TEXT)
    text = read_run_rules(tmp_path, NAMES)
    rules.save(tmp_path / RULES)
    arrays = read_run_rules(tmp_path, NAMES)
    assert text is not None
    assert arrays is not None
    assert (text.error.tolist(), arrays.error.tolist()) == ([0, 0], [0.25, 0])
    for found in (text, arrays):
        assert found.num_relations == 3
        for name in ("head", "body", "head_constant", "body_constant", "body_count", "support"):
            assert np.array_equal(getattr(found, name), getattr(rules, name)), name
            assert getattr(found, name).dtype == getattr(rules, name).dtype
