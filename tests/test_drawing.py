"""The picture of a path: well-formed, no letters over each other, arrows that point and dash as they should."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squire.reasoning.answers import Edge, Evidence
from squire.reasoning.drawing import GAP, LONGEST, Step, draw_path, percent, rounded

SVG = ElementTree.Element
names = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn", "Co"]), min_size=1, max_size=40)
paths = st.lists(st.builds(Step, names, names, st.booleans(), st.none() | st.floats(0, 1)), min_size=1, max_size=3)
KNOWN = Step("borders", "Germany", False, None)
INFERRED = Step("capital", "Berlin", True, 0.824)


def parsed(start: str, steps: list[Step]) -> SVG:
    """As an XML reader sees it, which forgives nothing."""
    return ElementTree.fromstring(draw_path(start, steps))


def numbers(element: SVG, *keys: str) -> list[float]:
    return [float(element.attrib[key]) for key in keys]


@given(start=names, steps=paths)
def test_any_names_make_a_whole_picture_of_boxes_side_by_side(start: str, steps: list[Step]) -> None:
    picture = parsed(start, steps)
    boxes = [numbers(box, "x", "width") for box in picture.iter("rect")]
    lines = [numbers(line, "x1", "x2") for line in picture.iter("line")]
    assert (len(boxes), len(lines)) == (len(steps) + 1, len(steps))
    for (x, width), (first, end), (after, _) in zip(boxes, lines, boxes[1:], strict=False):
        assert x + width == pytest.approx(first, abs=0.11)  # a line joins the box before it to the one after
        assert end == pytest.approx(after, abs=0.11)
        assert end - first >= GAP - 0.2
    last = boxes[-1]
    assert last[0] + last[1] <= float(picture.attrib["width"]) + 0.5
    assert picture.attrib["viewBox"] == f"0 0 {picture.attrib['width']} {picture.attrib['height']}"


@given(start=names, steps=paths)
def test_names_are_whole_in_tooltips_and_for_screen_readers(start: str, steps: list[Step]) -> None:
    picture = parsed(start, steps)
    titles = [title.text or "" for title in picture.iter("title")]
    expected = [start] + [name for step in steps for name in (step.relation, step.goal)]
    assert titles == [re.sub(r"\r\n?", "\n", name) for name in expected]
    assert picture.attrib["role"] == "img"
    shown = [text.text or "" for text in picture.iter("text")]
    assert all(len(text) <= LONGEST for text in shown)


def test_known_edges_are_solid_and_inferred_ones_dashed_with_their_probability() -> None:
    known, inferred = parsed("Austria", [KNOWN, INFERRED]).iter("line")
    assert "stroke-dasharray" not in known.attrib
    assert "stroke-dasharray" in inferred.attrib
    texts = [text.text for text in parsed("Austria", [KNOWN, INFERRED]).iter("text")]
    assert texts == ["Austria", "borders", None, "Germany", "capital", "0.82", "Berlin"]


def test_arrows_point_along_the_fact() -> None:
    picture = parsed("Austria", [KNOWN, INFERRED])
    forward, backward = (
        [float(x) for x in re.findall(r"[ML]([\d.]+)", tip.attrib["d"])] for tip in picture.iter("path")
    )
    lines = [numbers(line, "x1", "x2") for line in picture.iter("line")]
    assert lines[0][1] - 2 <= forward[0] <= lines[0][1]  # the tip is at the end
    assert forward[0] > forward[1]
    assert lines[1][0] <= backward[0] <= lines[1][0] + 2  # the tip is at the beginning
    assert backward[0] < backward[1]


def test_what_a_screen_reader_says() -> None:
    label = parsed("Austria", [KNOWN, INFERRED]).attrib["aria-label"]
    assert label == "Austria borders (known): Germany is the capital of (inferred, probability 0.82): Berlin"


def test_wide_letters_get_wider_boxes() -> None:
    wide, plain, narrow = (
        numbers(next(parsed(name, [KNOWN]).iter("rect")), "width")[0] for name in ("WWWW", "aaaa", "iiii")
    )
    assert wide > plain > narrow
    assert numbers(next(parsed("日本日本", [KNOWN]).iter("rect")), "width")[0] >= 4 * 12


def test_hostile_names_stay_text() -> None:
    hostile = """"><script>alert('1')</script>&amp;"""
    text = draw_path(hostile, [Step(hostile, hostile, False, None)])
    assert "<script" not in text
    assert parsed(hostile, [KNOWN]).attrib["aria-label"].startswith(hostile)


@pytest.mark.parametrize(
    ("probability", "text"), [(1.0, "1.00"), (0.824, "0.82"), (0.006, "0.01"), (0.004, "<0.01"), (0.0, "<0.01")]
)
def test_small_probabilities_are_not_called_nothing(probability: float, text: str) -> None:
    assert rounded(probability) == text
    assert rounded(0.0006, 3) == "0.001"
    assert rounded(0.0004, 3) == "<0.001"


def test_evidence_draws_its_edges() -> None:
    edges = (
        Edge("Danube", "flows through", "Austria", True, True, 0.5),
        Edge("Danube", "flows through", "Serbia", False, False, 0.25),
    )
    evidence = Evidence(edges, "completed", 0.1, 0.3, None)
    assert evidence.start == "Austria"
    steps = [Step("flows through", "Danube", True, None), Step("flows through", "Serbia", False, 0.25)]
    assert evidence.svg() == draw_path("Austria", steps)


@pytest.mark.parametrize(
    ("share", "words"), [(0, "0%"), (0.004, "<1%"), (0.005, "<1%"), (0.0051, "1%"), (0.826, "83%")]
)
def test_small_shares_are_not_rounded_to_none(share: float, words: str) -> None:
    assert percent(share) == words
