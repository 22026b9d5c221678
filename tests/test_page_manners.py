"""The page for everyone: by keyboard, by ear, in the dark, on a small screen, behind a token; and its files."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from page_visit import Visit, asked, serving, visiting
from playwright.sync_api import Browser, expect

import squire

STATIC = Path(squire.__file__).parent / "server" / "static"
QUESTION = "#/ask?model=family&head=cleo&relation=grandparent"
SUPPOSED = f"{QUESTION}&facts=%5B%5B%22cleo%22%2C%22likes%22%2C%22dan%22%5D%5D"
VIEWS = [
    "",
    QUESTION,
    f"{QUESTION}&around=cleo+1",
    f"{SUPPOSED}&around=cleo&to=dan",
    SUPPOSED,
    "#/quality",
    "#/review",
    "#/judge",
]
TOKEN = "open-sesame"
NAMES_TOO = {"label-content-name-mismatch": {"enabled": True}}  # axe calls it experimental
BUDGET = 150_000  # bytes of script and style
NAMED = {
    "button",
    "link",
    "combobox",
    "textbox",
    "option",
    "switch",
    "dialog",
    "listbox",
    "table",
    "img",
    "heading",
}

# Text and what lies behind it, as painted: the least contrast of all texts that can be seen.
CONTRASTS = """() => {
  const pen = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = rgba(getComputedStyle(node).backgroundColor);
      if (found[3] === 255) return found;
    }
    return [255, 255, 255, 255];
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !node.checkVisibility() || node.closest("svg, option, :disabled, .unseen, .skip")) continue;
    const [a, b] = [light(rgba(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) poor.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


def test_a_whole_visit_without_a_mouse(visit: Visit) -> None:
    page = visit.page
    visit.open()
    page.keyboard.press("/")
    expect(page.locator("#entity")).to_be_focused()
    page.keyboard.type("cleo")
    expect(page.locator("#entity")).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator("#relation")).to_be_focused()
    page.keyboard.type("grandp")
    page.keyboard.press("Enter")  # before the completions are there: the first is taken when they come
    visit.settle()
    expect(visit.chosen).to_have_text("cleo 1")
    expect(visit.answers.first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(visit.answers.nth(1)).to_be_focused()
    expect(visit.answers.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("k")
    expect(visit.chosen).to_have_text("cleo 1")
    page.keyboard.press("Enter")
    expect(page.locator("#evidence")).to_be_focused()
    node = page.locator("#drawing [role=button]").first
    node.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#around")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#around")).to_be_hidden()
    page.keyboard.press("f")
    expect(page).to_have_url(re.compile(r"tail=cleo\+1$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="How to read this page")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_completion_follows_the_combobox_pattern(visit: Visit) -> None:
    visit.open()
    field = visit.page.get_by_role("combobox", name="Subject")
    expect(field).to_have_attribute("aria-expanded", "false")
    field.fill("ada")
    options = visit.page.get_by_role("listbox", name="Subject").get_by_role("option")
    expect(options.first).to_have_attribute("aria-selected", "true")
    active = field.get_attribute("aria-activedescendant")
    assert active == options.first.get_attribute("id")
    field.press("ArrowUp")  # round to the last
    expect(options.last).to_have_attribute("aria-selected", "true")
    field.press("Escape")
    expect(field).to_have_attribute("aria-expanded", "false")
    expect(field).to_have_value("ada")
    field.press("Escape")
    expect(field).to_have_value("")


@pytest.mark.parametrize("place", VIEWS)
def test_everything_has_a_name_that_can_be_heard(visit: Visit, place: str) -> None:
    visit.open(place)
    if "around" in place:
        expect(visit.page.locator("#around :is(#neighbours svg, .connections)").first).to_be_visible()
    session = visit.page.context.new_cdp_session(visit.page)
    tree: list[dict[str, Any]] = session.send("Accessibility.getFullAXTree")["nodes"]
    roles = [
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in tree if not node["ignored"]
    ]
    assert [role for role, name in roles if role in NAMED and not name.strip()] == []
    assert any(role == ("dialog" if "around" in place else "main") for role, _ in roles)


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(browser: Browser, address: str, colours: str) -> None:
    with visiting(browser, address, color_scheme=colours, reduced_motion="reduce") as visit:
        for place in VIEWS:
            visit.open(place)
            if place == QUESTION:
                visit.page.get_by_text("Where the model looked").click()
                expect(visit.page.locator(".heat")).to_be_visible()
            assert visit.page.evaluate(CONTRASTS) == [], place


# The last is the first at 200 % zoom. Colours do not depend on the size.
@pytest.mark.parametrize(
    ("colours", "size"), [("light", (1400, 900)), ("dark", (390, 844)), ("light", (700, 450))]
)
def test_axe_finds_nothing(browser: Browser, fused: str, colours: str, size: tuple[int, int]) -> None:
    shape = {"width": size[0], "height": size[1]}
    with visiting(browser, fused, color_scheme=colours, reduced_motion="reduce", viewport=shape) as visit:
        for place in VIEWS:
            visit.open(place)
            if place == "#/review":
                expect(visit.page.locator("#review-view p").first).to_contain_text("accepted")
            if place == SUPPOSED:
                visit.page.get_by_role("button", name="What if …").click()
            if place == QUESTION:
                expect(visit.page.locator(".sentence")).not_to_be_empty()
                for fold in visit.page.locator("#evidence details > summary").all():
                    fold.click()
            if "around" in place:
                expect(visit.page.locator("#around :is(#neighbours svg, .connections)").first).to_be_visible()
            assert not visit.is_wider_than_the_screen(), place
            found = Axe().run(visit.page, options={"rules": NAMES_TOO}).response["violations"]
            said = [f"{place} {one['id']}: {node['html'][:200]}" for one in found for node in one["nodes"]]
            assert said == []


def test_there_is_one_main_heading_and_no_level_is_skipped(browser: Browser, fused: str) -> None:
    with visiting(browser, fused) as visit:
        for place in VIEWS:
            visit.open(place)
            levels = visit.page.locator("main :is(h1, h2, h3, h4):visible").evaluate_all(
                "all => all.map((one) => Number(one.tagName[1]))"
            )
            assert levels.count(1) == 1, place
            assert all(after <= before + 1 for before, after in pairwise(levels)), (place, levels)


def test_the_first_answer_is_there_at_once(browser: Browser, fused: str) -> None:
    """Within 1.5 s; on a busy machine, within twice what the requests and another view take. Once of three times:
    something else may begin in between."""
    question = {"head": "cleo", "relation": "grandparent"}

    def seconds(work: Callable[[], None]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    with visiting(browser, fused) as visit:

        def bare() -> None:
            for path, body in (("models", None), ("models/family", None), ("models/family/answer", question),
                               ("models/family/check", {**question, "tail": "cleo 2"})):  # fmt: skip
                asked(fused, path, body)
            visit.open("#/quality")

        def answered() -> None:
            visit.page.goto("about:blank")
            visit.page.goto(f"{fused}/{QUESTION}")
            expect(visit.page.locator(".sentence")).not_to_be_empty()

        assert any(seconds(answered) <= max(1.5, 2 * allowed) for allowed in (seconds(bare) for _ in range(3)))


def test_an_error_keeps_the_answers_and_offers_to_try_again(browser: Browser, fused: str) -> None:
    with visiting(browser, fused) as visit:
        page = visit.page
        visit.open(QUESTION)
        expect(page.locator(".sentence")).not_to_be_empty()
        page.context.set_offline(True)
        page.locator("#entity").press_sequentially("x")
        expect(page.locator("#entity-list")).to_contain_text("Can’t reach the service")
        page.locator("#entity").fill("finn")
        page.locator("#ask-button").click()
        alert = page.get_by_role("alert").first
        expect(alert).to_contain_text("Can’t reach the service")
        expect(page.locator("#evidence h2")).to_contain_text("cleo")  # what was there before
        page.context.set_offline(False)
        alert.get_by_role("button", name="Try again").click()
        expect(page.locator("#evidence h2")).to_contain_text("finn")
        expect(alert).to_be_empty()
        visit.troubles = [one for one in visit.troubles if "ERR_INTERNET_DISCONNECTED" not in one]


def test_dark_and_light_by_the_system_and_by_choice(browser: Browser, address: str) -> None:
    def ground(visit: Visit) -> str:
        return str(visit.page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor"))

    with visiting(browser, address, color_scheme="light") as visit:
        visit.open()
        light = ground(visit)
        switch = visit.page.get_by_role("button", name="Dark colours")
        expect(switch).to_have_attribute("aria-pressed", "false")
        switch.click()
        dark = ground(visit)
        assert dark != light
        visit.page.reload()
        visit.settle()
        assert ground(visit) == dark
    with visiting(browser, address, color_scheme="dark") as visit:
        visit.open()
        assert ground(visit) == dark


def test_a_small_screen_never_scrolls_sideways(browser: Browser, address: str) -> None:
    with visiting(browser, address, viewport={"width": 360, "height": 740}) as visit:
        for place in VIEWS:
            visit.open(place)
            assert not visit.is_wider_than_the_screen(), place
        visit.open(QUESTION)
        visit.page.locator("#entity").fill("a")
        expect(visit.page.locator("#entity-list [role=option]").first).to_be_visible()
        assert not visit.is_wider_than_the_screen()
        visit.page.locator("#entity").press("Escape")
        visit.answers.nth(1).click()
        expect(visit.page.locator("#evidence")).to_be_in_viewport()
        visit.page.get_by_role("button", name="All answers").click()
        expect(visit.answers.nth(1)).to_be_focused()


def test_all_figures_are_on_a_phone_s_screen(browser: Browser, address: str) -> None:
    with visiting(browser, address, viewport={"width": 390, "height": 844}) as visit:
        visit.open("#/quality")
        hidden = "box => box.scrollWidth - box.clientWidth"
        assert visit.page.locator(".table-scroll").first.evaluate(hidden) <= 0


def test_who_wants_no_motion_gets_none(browser: Browser, address: str) -> None:
    moving = "node => getComputedStyle(node).animationName"
    for wish, motion in (("no-preference", "slide"), ("reduce", "none")):
        with visiting(browser, address, reduced_motion=wish) as visit:
            visit.open(f"{QUESTION}&around=cleo+1")
            assert visit.page.locator("#around").evaluate(moving) == motion


@pytest.fixture(scope="module")
def guarded(page_run: Path) -> Iterator[str]:
    """A service with two models and a token."""
    with serving(f"first={page_run}", f"second={page_run}", env={"SQUIRE_TOKEN": TOKEN}) as where:
        yield where


def test_a_token_is_asked_for_once_a_tab(browser: Browser, guarded: str) -> None:
    with visiting(browser, guarded) as visit:
        visit.may_fail = {401}
        page = visit.page
        page.goto(f"{guarded}/{QUESTION.replace('family', 'first')}")
        dialog = page.get_by_role("dialog", name="This service needs a token")
        dialog.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(dialog.get_by_text("That token was not accepted.")).to_be_visible()
        dialog.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(visit.chosen).to_have_text("cleo 1")
        page.reload()
        expect(visit.chosen).to_have_text("cleo 1")
        assert TOKEN not in page.url


def test_several_models_and_a_service_that_goes_away(browser: Browser, guarded: str) -> None:
    with visiting(browser, guarded) as visit:
        visit.may_fail = {404}
        page = visit.page
        page.add_init_script(f"sessionStorage.setItem('squire-token', '{TOKEN}')")
        visit.open()
        expect(page).to_have_url(re.compile("model=first"))
        page.get_by_label("Model").select_option("second")
        expect(page).to_have_url(re.compile("model=second"))
        visit.open("#/ask?model=third")
        expect(page.get_by_role("alert").first).to_contain_text("third")
        page.get_by_role("link", name="SQUIRE").click()
        expect(page).to_have_url(re.compile("model=first"))
        page.locator("#welcome").get_by_role("link", name="Quality").click()
        expect(page.get_by_role("heading", name="How good is first?")).to_be_visible()
        page.go_back()
        page.context.set_offline(True)
        page.locator("#entity").fill("cleo")
        page.locator("#relation").fill("grandparent")
        page.locator("#ask-button").click()
        expect(page.get_by_role("alert").first).to_contain_text("Can’t reach the service")
        expect(page.get_by_role("button", name="Try again")).to_be_visible()
        visit.troubles = [one for one in visit.troubles if "ERR_INTERNET_DISCONNECTED" not in one]


# ------------------------------------------------------------------------------------------ its modules


def test_addresses_survive_any_name(visit: Visit) -> None:
    visit.open()
    name = "a?b&c=d#e/%20 ü 中"
    found = visit.page.evaluate(
        """async (name) => {
          const {parse, hashOf} = await import("/static/js/state.js");
          const view = {...parse(""), model: name, tail: name, relation: name, reverse: true, grounded: true,
                        k: 25, ranking: "paths", answer: name, path: 2, around: name, to: name,
                        facts: JSON.stringify([[name, name, name]])};
          return [view, parse(hashOf(view)), parse("#/nonsense?k=7&path=x&ranking=odd&facts=[[1,2]]")];
        }""",
        name,
    )
    assert found[0] == found[1]
    assert [found[2][key] for key in ("view", "k", "path", "ranking", "facts")] == ["ask", 10, 0, "", ""]


def test_a_rule_becomes_a_sentence_unless_a_name_breaks_its_form(visit: Visit) -> None:
    visit.open()
    texts = ["r (of) s(X, Y) ⇐ t(A, X) ∧ u(A, Y)", "r(X, Y) ⇐ t(X, Vienna)", "r ⇐ s(X, Y) ⇐ t(X, Y)"]
    found = visit.page.evaluate(
        """async (texts) => {
          const {parseRule} = await import("/static/js/rule-words.js");
          return texts.map(parseRule);
        }""",
        texts,
    )
    assert found[0]["head"] == {"relation": "r (of) s", "from": "X", "to": "Y"}
    assert [atom["from"] for atom in found[0]["body"]] == ["A", "A"]
    assert found[1]["body"] == [{"relation": "t", "from": "X", "to": "Vienna"}]
    assert found[2] is None


# ------------------------------------------------------------------------------------------ its files


def test_files_are_small_and_never_make_markup_of_text() -> None:
    files = [file for file in STATIC.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files if file.suffix in (".js", ".css")) < BUDGET
    assert {file.suffix for file in files} == {".html", ".css", ".js", ".svg"}
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 400, file
        for forbidden in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ):
            assert forbidden not in text, file
        assert not re.search(r"\son\w+=|\sstyle=|javascript:", text), file  # the policy would refuse them
        elsewhere = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", re.sub(r"^\s*(//|\*|/\*).*$", "", text, flags=re.M))
        assert set(elsewhere) <= {"http://www.w3.org"}, file
