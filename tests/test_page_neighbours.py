"""The neighbourhood on the page: it grows by clicks and keys, nothing in it touches, facts can be doubted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from graphs import LabelTriple, make_graph
from page_visit import FAULTS_IN, Visit, asked, serving, visiting
from playwright.sync_api import Browser, Locator, expect
from test_doubts import right_and_wrong

import squire

LONG = "the quick brown fox jumps over the lazy dog and the cat that sat upon the mat 12"
RELATIONS = 14  # further ones of the hub
FACTS, WRONG = right_and_wrong()


def hub() -> list[LabelTriple]:
    facts = [("hub", "often", f"b{i}") for i in range(20)]
    facts += [("hub", "borders", f"b{i}") for i in range(3)] + [(f"b{i}", "borders", "hub") for i in range(5)]
    facts += [(LONG, "leads to", "hub"), ("hub", LONG, "جمهورية مصر العربية"), ("hub", "x" * 90, "中" * 60)]
    return facts + [("hub", f"relation {i}", f"b{i}") for i in range(RELATIONS)]


@pytest.fixture(scope="module")
def address(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("neighbours") / "run"
    squire.train(make_graph({"train": FACTS + WRONG + hub()}), folder, model=False, progress=False)
    with serving(f"hub={folder}") as where:
        yield where


AROUND = "#/ask?model=hub&head=a1&relation=r2&around="


def nodes(visit: Visit) -> Locator:
    return visit.page.locator("#neighbours .node")


def node(visit: Visit, name: str) -> Locator:
    return visit.page.locator("#neighbours").get_by_role("button", name=name, exact=True)


def look(visit: Visit, entity: str) -> None:
    visit.open(f"{AROUND}{entity}")
    expect(nodes(visit).first).to_be_visible()


def faults(visit: Visit) -> list[str]:
    found: list[str] = visit.page.locator("#neighbours svg").evaluate(FAULTS_IN)
    return found


def test_relations_have_counts_and_both_directions_are_one(visit: Visit) -> None:
    look(visit, "hub")
    expect(node(visit, "often (20), from hub")).to_have_attribute("aria-expanded", "false")
    expect(node(visit, "borders (3), from and to hub")).to_be_visible()
    expect(node(visit, "borders (2), to hub")).to_be_visible()
    groups: list[dict[str, Any]] = asked(visit.address, "models/hub/neighbourhood?entity=hub")["groups"]
    expect(visit.page.locator("#neighbours .group")).to_have_count(12)
    node(visit, f"+ {len(groups) - 12} more of hub").click()
    expect(visit.page.locator("#neighbours .group")).to_have_count(len(groups))
    middle, left, right = (node(visit, one).bounding_box() for one in (
        "hub: unfold", "borders (2), to hub", "borders (3), from and to hub"))  # fmt: skip
    assert middle
    assert left
    assert right
    assert left["x"] < middle["x"] < right["x"]


def test_a_group_shows_some_then_more_and_keeps_what_is_there(visit: Visit) -> None:
    look(visit, "hub")
    before = nodes(visit).count()
    often = node(visit, "often (20), from hub")
    often.click()
    expect(nodes(visit)).to_have_count(before + 7)
    node(visit, "+ 14 more of often").click()
    expect(nodes(visit)).to_have_count(before + 13)
    own = visit.page.locator("#neighbours .between")
    names = own.locator("title").all_text_contents()
    one = node(visit, "b1: unfold").first
    one.click()
    expect(node(visit, "r1, to b1")).to_be_visible()
    assert set(names) <= set(own.locator("title").all_text_contents())
    expect(node(visit, "often, to b1")).to_have_count(0)  # where it came from
    grown = nodes(visit).count()
    one.click()
    expect(nodes(visit)).to_have_count(before + 13)
    one.click()  # as it was
    expect(nodes(visit)).to_have_count(grown)
    often.click()
    expect(nodes(visit)).to_have_count(before)


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_nothing_touches_however_it_grows(browser: Browser, address: str, width: int) -> None:
    with visiting(browser, address, viewport={"width": width, "height": 900}) as visit:
        look(visit, "hub")
        assert faults(visit) == []
        more, often = "+ 8 more of hub", "often (20), from hub"
        for name in (more, often, "borders (3), from and to hub", "borders (2), to hub"):
            before = nodes(visit).count()
            node(visit, name).click()
            expect(nodes(visit)).not_to_have_count(before)
            assert faults(visit) == []
        for name in ("b1: unfold", "b3: unfold", f"{LONG}: unfold"):
            before = nodes(visit).count()
            node(visit, name).first.click()
            if name[0] == "b":
                expect(nodes(visit)).not_to_have_count(before)
            assert faults(visit) == []
        assert not visit.is_wider_than_the_screen()


def test_by_keys_the_focus_stays_and_questions_follow(visit: Visit) -> None:
    page = visit.page
    look(visit, "a1")
    group = node(visit, "b1: unfold").first
    group.focus()
    page.keyboard.press("Enter")
    expect(node(visit, "colour, from b1")).to_be_visible()
    expect(group).to_be_focused()
    expect(group).to_have_attribute("aria-expanded", "true")
    page.keyboard.press(" ")
    expect(group).to_have_attribute("aria-expanded", "false")
    expect(group).to_be_focused()
    page.get_by_role("group", name="b1 as subject").get_by_role("button", name="colour").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page).to_have_url(re.compile("head=b1&relation=colour"))


def test_a_node_can_be_the_middle_and_one_end_of_a_connection(visit: Visit) -> None:
    page = visit.page
    look(visit, "a1")
    node(visit, "b1: unfold").first.click()
    page.get_by_role("button", name="Look around b1").click()
    expect(page.get_by_role("dialog", name="b1")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("dialog", name="a1")).to_be_visible()
    node(visit, "b1: unfold").first.click()
    field = page.get_by_role("combobox", name="How is b1 connected to …")
    field.fill("hub")
    field.press("Enter")
    expect(page.get_by_role("dialog", name="How are b1 and hub connected?")).to_be_visible()


def test_the_list_has_the_same_facts(visit: Visit) -> None:
    look(visit, "b1")
    visit.page.get_by_text("As a list").click()
    found = asked(visit.address, "models/hub/neighbourhood?entity=b1&limit=60")
    rows = visit.page.locator(".kinds .kind")
    expect(rows).to_have_count(len(found["groups"]))
    expect(visit.page.locator(".kinds .entity")).to_have_count(len(found["edges"]))


def test_doubtful_facts_of_an_entity_are_named(visit: Visit) -> None:
    head, relation, tail = WRONG[0]
    look(visit, head)
    visit.page.get_by_text("Doubtful facts").click()
    found = asked(visit.address, f"models/hub/doubt?entity={head}")
    worst = found["facts"][0]
    assert [worst[part] for part in ("head", "relation", "tail")] == [head, relation, tail]
    row = visit.page.locator(".reason li").first
    expect(row).to_contain_text("likely without itself")
    row.get_by_role("button", name=f"{head} · {relation} · {tail}").click()
    expect(visit.page.locator(".sentence")).to_contain_text("Without this fact it would be only")
