"""The drawing itself, measured as it is painted: no line touches a label, no label another, all of it readable."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from page_visit import FAULTS_IN, Visit, asked
from playwright.sync_api import expect

ENTITIES = [f"{name}{end}" for name in ("ada", "ben", "cleo", "dan", "eve", "finn") for end in ("", " 1", " 2")]
QUESTIONS = [(head, relation) for head in ENTITIES for relation in ("grandparent", "likes", "ex:parent")][:50]
LONG = "the quick brown fox jumps over the lazy dog and the cat that sat upon the mat 12"
RIGHT_TO_LEFT, OVERRIDE = "جمهورية مصر العربية", "abc\u202edcba\u2066x"

# Draws the paths of each answer at some widths and says what touches what.
FAULTS = f"""async (lists) => {{
  const {{sceneOf}} = await import("/static/js/scene.js");
  const {{drawSvg}} = await import("/static/js/draw.js");
  const faultsIn = {FAULTS_IN};
  const stage = document.body.appendChild(document.createElement("div"));
  const faults = [];
  let texts = 0;
  for (const [name, paths] of lists) for (const room of [1200, 760, 320]) for (const all of [false, true]) {{
    const svg = drawSvg(sceneOf(paths, room, {{all, caption: name}}));
    stage.replaceChildren(svg);
    texts += svg.querySelectorAll("text").length;
    faults.push(...faultsIn(svg).map((what) => `${{name}} at ${{room}}: ${{what}}`));
  }}
  stage.remove();
  return [faults, texts];
}}"""


def path(*stops: str) -> dict[str, Any]:
    edges = [
        {"head": b if turn else a, "relation": f"relation {i} of {a[:40]}", "tail": a if turn else b,
         "backwards": bool(turn), "is_fact": not i, "probability": 0.5}
        for i, (a, b) in enumerate(pairwise(stops)) for turn in [i % 2]
    ]  # fmt: skip
    return {"edges": edges, "grade": "completed", "probability": 0.1, "score": 0.1, "rule": None}


def test_nothing_touches_in_the_drawings_of_fifty_questions(visit: Visit) -> None:
    visit.open()
    lists = []
    for head, relation in QUESTIONS:
        found = asked(visit.address, "models/family/answer", {"head": head, "relation": relation, "k": 1})
        lists += [
            (f"{head} {relation} {one['entity']}", [one["evidence"], *one["further"]]) for one in found["answers"]
        ]
    assert len(lists) >= 50
    faults, texts = visit.page.evaluate(FAULTS, lists)
    assert faults == []
    assert texts > 1000


@pytest.mark.parametrize("name", [LONG, RIGHT_TO_LEFT, OVERRIDE, "x" * 200, "中" * 80])
def test_nor_in_drawings_of_any_shape_with_any_name(visit: Visit, name: str) -> None:
    """Through the same nodes, in a circle, back to the start, from a node to itself."""
    visit.open()
    shapes = [
        [path("a", "b", name, "z"), path("a", name, "b", "z"), path("a", "z"), path("a", "b", "z")],
        [path(name, "b", name), path(name, name)],
        [path("a", "a", name), path("a", name, "b", name)],
        [path("a", "b", "a", name), path("a", *"bcdefg", name)],
    ]
    lists = [(f"shape {number}", shape) for number, shape in enumerate(shapes)]
    assert visit.page.evaluate(FAULTS, lists)[0] == []


def test_the_best_path_stays_where_it_is_when_others_are_shown(visit: Visit) -> None:
    answers = asked(visit.address, "models/family/answer", {"head": "cleo", "relation": "grandparent"})["answers"]
    most = max(answers, key=lambda one: len(one["further"]))
    visit.open(f"#/ask?model=family&head=cleo&relation=grandparent&answer={most['entity']}")
    page, lit = visit.page, visit.page.locator("#drawing .edge.lit .line")
    expect(lit).to_have_count(len(most["evidence"]["edges"]))
    before = lit.evaluate_all("lines => lines.map((line) => line.getAttribute('d'))")
    expect(page.locator("#drawing .edge")).to_have_count(len(most["evidence"]["edges"]))  # the best one first
    page.get_by_role("button", name=f"+ {len(most['further'])} more").click()
    every = sum(len(one["edges"]) for one in (most["evidence"], *most["further"]))
    expect(page.locator("#drawing .edge")).to_have_count(every)
    assert lit.evaluate_all("lines => lines.map((line) => line.getAttribute('d'))") == before
    page.get_by_role("button", name="Path 2").click()
    expect(lit).to_have_count(len(most["further"][0]["edges"]))
    assert "path=2" in page.url


def test_a_part_of_the_sentence_lights_up_its_step(visit: Visit) -> None:
    visit.open("#/ask?model=family&head=cleo&relation=grandparent")
    part = visit.page.locator(".sentence .clause").first
    part.focus()
    expect(visit.page.locator("#drawing .edge.hot")).to_have_attribute("data-step", "0")
    part.blur()
    expect(visit.page.locator("#drawing .edge.hot")).to_have_count(0)


def test_marks_that_turn_text_around_are_spelled_out(visit: Visit) -> None:
    visit.open()
    said = visit.page.evaluate(
        """async (name) => {
          const {el} = await import("/static/js/dom.js");
          return el("b", {title: name}, name).outerHTML;
        }""",
        OVERRIDE,
    )
    assert said == '<b title="abc⟨U+202E⟩dcba⟨U+2066⟩x">abc⟨U+202E⟩dcba⟨U+2066⟩x</b>'
