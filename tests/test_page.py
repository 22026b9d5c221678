"""The page as a person uses it: type, choose, read, click on, come back, take along."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree

import pytest
from page_visit import Visit, asked, visiting
from playwright.sync_api import Browser, Locator, Request, Route, expect
from small_run import HOSTILE

QUESTION = "#/ask?model=family&head=cleo&relation=grandparent"
ANSWER = {"head": "cleo", "relation": "grandparent", "tail": None, "k": 10}


# ------------------------------------------------------------------------------------------------ asking


def test_type_choose_from_completion_and_read_the_path(visit: Visit) -> None:
    page = visit.page
    visit.open()
    page.locator("#entity").press_sequentially("cle")
    options = page.locator("#entity-list [role=option]")
    expect(options.first).to_contain_text("cleo")
    options.first.click()
    expect(page.locator("#relation")).to_be_focused()  # what comes next
    expect(page.locator("#relation-list .group").first).to_have_text("Fits cleo")
    page.locator("#relation-list [role=option]", has_text="grandparent").click()
    visit.settle()

    found = asked(visit.address, "models/family/answer", ANSWER)
    assert visit.names() == [one["entity"] for one in found["answers"]]
    expect(visit.chosen).to_have_text("cleo 1")
    expect(page.locator("#evidence h2")).to_have_text("cleograndparentcleo 1")
    best = found["answers"][0]["evidence"]
    page.get_by_text("step by step").click()
    steps = page.locator(".step")
    expect(steps).to_have_count(len(best["edges"]))
    for place, edge in enumerate(best["edges"]):
        said = steps.nth(place).inner_text()
        assert all(edge[part] in said for part in ("head", "relation", "tail"))
        assert ("inferred" in said) != edge["is_fact"]
    expect(page.locator("#evidence")).to_contain_text("No mined rule has this form")


def test_a_path_names_the_rule_it_follows(visit: Visit) -> None:
    answers = asked(visit.address, "models/family/answer", {**ANSWER, "relation": "likes"})["answers"]
    place, rule = next(
        (place, one["evidence"]["rule"]) for place, one in enumerate(answers) if one["evidence"]["rule"]
    )
    visit.open(QUESTION.replace("grandparent", "likes"))
    visit.answers.nth(place).click()
    visit.page.get_by_text("step by step").click()
    expect(visit.page.locator(".path-words")).to_contain_text(f"of cases ({rule['support']} known examples)")


def test_what_the_graph_says_comes_first(visit: Visit) -> None:
    page = visit.page
    visit.open(QUESTION)
    known = page.get_by_role("region", name="The graph says").get_by_role("button")
    expect(known).to_have_text(["cleo 2"])
    assert "cleo 2" not in visit.names()
    known.click()
    expect(known).to_have_attribute("aria-pressed", "true")
    expect(visit.chosen).to_have_count(0)
    expect(page.locator("#evidence h2")).to_have_text("cleograndparentcleo 2")
    expect(page.locator("#evidence .fact-tags")).to_have_text("in the graph")
    expect(page.locator(".sentence")).to_have_text("The grandparent of cleo is cleo 2, says the graph.")
    expect(page.locator("#drawing")).to_have_count(0)
    visit.answers.first.click()
    expect(known).to_have_attribute("aria-pressed", "false")


def test_the_drawing_has_every_path_as_a_row(visit: Visit) -> None:
    answers = asked(visit.address, "models/family/answer", ANSWER)["answers"]
    best = next(one for one in answers if one["further"] and one["evidence"]["grade"] == "completed")
    visit.open(f"{QUESTION}&answer={quote(best['entity'])}&path=2")
    paths = [best["evidence"], *best["further"]]
    edges = [edge for path in paths for edge in path["edges"]]
    known = sum(edge["is_fact"] for edge in edges)
    expect(visit.page.locator("#drawing .edge.known")).to_have_count(known)
    expect(visit.page.locator("#drawing .edge.inferred")).to_have_count(len(edges) - known)
    expect(visit.page.locator("#drawing .node")).to_have_count(2 + sum(len(path["edges"]) - 1 for path in paths))
    dashes = visit.page.locator("#drawing .edge.inferred .line").first
    assert dashes.evaluate("line => getComputedStyle(line).strokeDasharray") != "none"
    expect(visit.page.locator("#drawing .edge.lit")).to_have_count(len(best["further"][0]["edges"]))


def test_both_directions_and_the_options(visit: Visit) -> None:
    page = visit.page
    visit.open()
    page.get_by_role("button", name="Flip: ask for the subject").click()
    visit.ask("ada 2", "grandparent")
    expect(page).to_have_url(re.compile("tail=ada\\+2"))
    expect(page.locator("#evidence h2 .entity").last).to_have_text("ada 2")
    page.get_by_role("switch", name="Facts only").check()
    visit.settle()
    expect(page.locator("#answer-list .grade.completed, #answer-list .grade.asserted")).to_have_count(0)
    page.get_by_role("combobox", name="How many answers").select_option("5")
    visit.settle()
    assert len(visit.names()) <= 5
    options = {"k": 5, "grounded": True}
    body = {"head": None, "relation": "grandparent", "tail": "ada 2", **options}
    assert visit.names() == [
        one["entity"] for one in asked(visit.address, "models/family/answer", body)["answers"]
    ]


def test_without_a_fusion_it_says_that_a_score_is_no_probability(visit: Visit) -> None:
    visit.open(QUESTION)
    expect(visit.page.locator(".scale")).to_contain_text("A score is not the probability")
    expect(visit.answers.first).to_contain_text("not a probability")
    expect(visit.page.locator("#ranking")).to_be_hidden()
    expect(visit.page.locator(".answers .legend")).to_contain_text(
        "Every step of the path is a fact of the graph."
    )


def test_a_fused_answer_shows_its_confidence_and_sources(browser: Browser, fused: str) -> None:
    best = asked(fused, "models/family/answer", ANSWER)["answers"][0]
    with visiting(browser, fused) as visit:
        visit.open(f"{QUESTION}&answer={quote(best['entity'])}")
        share = round(100 * best["confidence"])
        shown = f"{share}\u202f%" if share else "<1\u202f%"
        expect(visit.answers.first.locator(".value")).to_contain_text(shown)
        expect(visit.page.locator(".fact-tags")).to_contain_text(f"{shown} likely")
        strong = [one for one in best["sources"] if abs(one["contribution"]) > 0]
        expect(visit.page.locator(".source-name").first).to_have_text(strong[0]["name"])
        visit.page.get_by_label("Ranked by").select_option("paths")
        visit.settle()
        expect(visit.answers.first).to_contain_text("not a probability")
        assert "ranking=paths" in visit.page.url


def test_any_answer_can_be_checked_and_its_link_shared(browser: Browser, fused: str) -> None:
    with visiting(browser, fused) as visit:
        visit.open(QUESTION + "&k=5")
        status = visit.page.locator(".seek [role=status]")
        field = visit.page.get_by_role("combobox", name="Check another answer")
        ranked = [one["entity"] for one in asked(fused, "models/family/answer", {**ANSWER, "k": 50})["answers"]]
        unlisted = next(name for name in ranked if name not in visit.names())
        check = asked(fused, "models/family/check", {"head": "cleo", "relation": "grandparent", "tail": unlisted})
        field.fill(unlisted)
        field.press("Enter")
        expect(status).to_contain_text(f"cleo · grandparent · {unlisted} is not in the graph; ")
        expect(visit.page.locator("#evidence .against li")).to_have_text(check["against"])
        with visiting(browser, fused) as other:
            other.open(visit.page.url.removeprefix(fused + "/"))
            expect(other.page.locator("#evidence h2 .entity").last).to_have_text(unlisted)
            expect(other.page.locator("[aria-selected=true]")).to_have_count(0)  # no other row seems to be meant
        visit.open("#/ask?model=family&relation=grandparent&tail=cleo+2&k=5")
        expect(visit.page.locator("#evidence h2")).to_have_text("cleograndparentcleo 2")


def test_a_fact_is_explained_as_if_it_were_not_there(browser: Browser, fused: str) -> None:
    """And every bar opens: rules, similar entities, paths by their pattern."""
    fact = {"head": "cleo", "relation": "grandparent", "tail": "cleo 2"}
    check, why = (asked(fused, f"models/family/{call}", fact) for call in ("check", "why"))
    with visiting(browser, fused) as visit:
        page = visit.page
        visit.open(QUESTION)
        known = page.get_by_role("region", name="The graph says").get_by_role("button")
        expect(known).to_have_attribute("aria-pressed", "true")  # facts first
        expect(page.locator(".sentence")).to_contain_text("The graph says so. Without this fact it would be")
        expect(page.locator(".sentence .clause")).to_have_count(len(check["answer"]["evidence"]["edges"]))
        rules = page.locator("details.source", has=page.locator(".source-name", has_text="rules"))
        rules.locator("summary").click()
        expect(rules.locator("li")).to_have_count(len(why["rules"]))
        expect(rules.locator("li").first).to_contain_text("True in ")
        assert "log odds" not in page.locator("body").inner_text()


def test_flipping_keeps_the_answer_that_is_looked_at(visit: Visit) -> None:
    visit.open(f"{QUESTION}&answer=cleo+1")
    visit.page.get_by_role("button", name="Flip: ask for the subject").click()
    visit.settle()
    expect(visit.page).to_have_url(re.compile(r"relation=grandparent&tail=cleo\+1"))


def test_the_first_thing_to_see_is_a_question_that_is_answered(browser: Browser, fused: str) -> None:
    (first, *_) = asked(fused, "models/family")["examples"]
    with visiting(browser, fused) as visit:
        visit.open()
        if "answer" not in first:  # too few held-out facts in this graph
            expect(visit.page.locator("#examples .chip").first).to_contain_text(first["head"])
            return
        expect(visit.page.locator("#entity")).to_have_value(first["head"])
        expect(visit.page.locator("#evidence h2 .entity").last).to_have_text(first["answer"])


def test_a_model_without_confidence_offers_no_check(visit: Visit) -> None:
    visit.open(QUESTION)
    expect(visit.page.get_by_role("combobox", name="Check another answer")).to_be_hidden()


# --------------------------------------------------------------------------------- looking around and back


def test_click_an_entity_look_around_and_ask_onward(visit: Visit) -> None:
    page = visit.page
    visit.open(QUESTION)
    page.locator("#drawing").get_by_role("button", name="cleo 1: look around").click()
    sheet = page.get_by_role("dialog", name="cleo 1")
    expect(sheet.get_by_role("heading", name="cleo 1", exact=True)).to_be_focused()
    sheet.get_by_text("As a list").click()
    expect(sheet.locator(".kinds")).to_contain_text("ex:parent")
    sheet.locator(".kinds").get_by_role("button", name="cleo 2").first.click()
    expect(page.get_by_role("dialog", name="cleo 2")).to_be_visible()
    page.go_back()
    page.get_by_role("dialog", name="cleo 1").get_by_role("group", name="cleo 1 as subject").get_by_role(
        "button", name="ex:parent"
    ).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    visit.settle()
    expect(page.locator("#entity")).to_have_value("cleo 1")
    expect(page.locator("#relation")).to_have_value("ex:parent")


def test_how_two_are_connected_from_an_answer_and_from_around(visit: Visit) -> None:
    page = visit.page
    visit.open(f"{QUESTION}&answer=cleo+2")
    page.get_by_role("button", name="How are these two connected?").click()
    sheet = page.get_by_role("dialog", name="How are cleo and cleo 2 connected?")
    found = asked(visit.address, "models/family/connect", {"first": "cleo", "second": "cleo 2"})["groups"]
    said = sheet.locator(".connections li")
    expect(said).to_have_count(len(found))
    expect(said.first).to_contain_text(" – ".join(found[0]["relations"]))
    expect(said.first).to_contain_text(f"{found[0]['count']} such path")
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()

    visit.open(f"{QUESTION}&around=cleo+1")
    page.locator("#connect-to").fill("finn 1")
    page.locator("#connect-to").press("Enter")
    expect(page.get_by_role("dialog", name="How are cleo 1 and finn 1 connected?")).to_be_visible()
    assert "to=finn+1" in page.url


def test_a_supposed_fact_counts_is_marked_and_shared(visit: Visit) -> None:
    page = visit.page
    visit.open("#/ask?model=family&head=finn&relation=likes&answer=zoe")
    page.get_by_role("button", name="What if …").click()
    page.locator("#suppose-head").fill("finn")
    page.locator("#suppose-relation").fill("adores")
    page.locator("#suppose-tail").fill("zoe")
    page.get_by_role("button", name="Suppose it").click()
    expect(page.get_by_text("There is no relation “adores”")).to_be_visible()
    page.locator("#suppose-relation").fill("likes")
    page.get_by_role("button", name="Suppose it").click()
    known = page.locator("#answers .known")
    expect(known).to_contain_text("zoe")
    supposed = page.get_by_role("group", name="Supposed facts").get_by_role("button", name="finn · likes · zoe")
    page.reload()  # it is in the link
    visit.settle()
    expect(known).to_contain_text("zoe")
    supposed.click()
    expect(supposed).to_have_count(0)
    visit.settle()
    expect(known).not_to_contain_text("zoe")
    assert "facts" not in page.url


def test_a_supposed_step_is_called_so_in_the_drawing(browser: Browser, fused: str) -> None:
    with visiting(browser, fused) as visit:
        fact = quote(json.dumps([["cleo 1", "ex:parent", "dan 2"]]))
        visit.open(f"{QUESTION}&answer=dan+2&facts={fact}")
        expect(visit.page.locator("#drawing")).to_contain_text("supposed")
        visit.page.get_by_role("button", name="How are these two connected?").click()
        expect(visit.page.locator(".connections li", has_text="(supposed)").first).to_be_visible()


def test_a_link_restores_the_view_and_back_leads_to_the_last_question(visit: Visit, browser: Browser) -> None:
    page = visit.page
    first = asked(visit.address, "models/family/answer", {**ANSWER, "head": "finn"})["answers"][0]["entity"]
    visit.open()
    visit.ask("cleo", "grandparent")
    visit.answers.nth(1).click()
    second = visit.names()[1]
    page.get_by_role("switch", name="Facts only").check()
    visit.settle()
    visit.answers.nth(2).click()
    chosen = visit.names()[2]
    with visiting(browser, visit.address) as other:
        other.open(page.url.removeprefix(visit.address + "/"))
        expect(other.chosen).to_have_text(chosen)
        expect(other.page.locator("#entity")).to_have_value("cleo")
        assert other.page.get_by_role("switch", name="Facts only").is_checked()
        assert other.page.title().startswith("cleo · grandparent · ?")
    visit.ask("finn", "grandparent")
    expect(visit.chosen).to_have_text(first)
    page.go_back()
    expect(visit.chosen).to_have_text(chosen)
    page.go_back()
    expect(visit.chosen).to_have_text(second)
    assert not page.get_by_role("switch", name="Facts only").is_checked()
    page.go_forward()
    page.go_forward()
    expect(visit.chosen).to_have_text(first)


def test_a_second_question_cancels_the_first(visit: Visit) -> None:
    held: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    def was_asked(request: Request) -> bool:
        return request.url.endswith("/answer")  # completions may be cancelled, too

    visit.page.route("**/answer", hold_the_first)
    first = asked(visit.address, "models/family/answer", {**ANSWER, "head": "finn"})["answers"][0]["entity"]
    visit.page.goto(f"{visit.address}/{QUESTION}")
    expect(visit.page.locator("#found")).to_have_attribute("aria-busy", "true")
    with visit.page.expect_event("requestfailed", was_asked) as cancelled:
        visit.ask("finn", "grandparent")
    assert json.loads(cancelled.value.post_data or "")["head"] == "cleo"
    expect(visit.chosen).to_have_text(first)


# ------------------------------------------------------------------------------------------ taking along


def test_exports_are_the_answers_and_the_drawing(visit: Visit, tmp_path: Path) -> None:
    visit.open(QUESTION)
    files = {}
    for button in ("Answers as JSON", "Drawing as SVG", "as PNG"):
        with visit.page.expect_download() as download:
            visit.page.get_by_role("button", name=button, exact=True).click()
        name = download.value.suggested_filename
        download.value.save_as(tmp_path / name)
        files[name] = (tmp_path / name).read_bytes()
    assert set(files) == {"cleo grandparent.json", "cleo grandparent cleo 1.svg", "cleo grandparent cleo 1.png"}
    found = asked(visit.address, "models/family/answer", ANSWER)
    assert json.loads(files["cleo grandparent.json"]) == found
    drawing = ElementTree.fromstring(files["cleo grandparent cleo 1.svg"])
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    words = " ".join(drawing.itertext())
    assert all(edge["relation"] in words for edge in found["answers"][0]["evidence"]["edges"])
    lines = [part.attrib for part in drawing.iter() if part.get("class") == "line"]
    assert all(line["stroke"].startswith("rgb(") for line in lines)  # colours of its own, not of a style sheet
    png = files["cleo grandparent cleo 1.png"]
    assert png.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (2 * float(drawing.attrib["width"]), 2 * float(drawing.attrib["height"]))


def test_names_are_text_whatever_they_consist_of(visit: Visit) -> None:
    visit.open()
    visit.page.locator("#entity").fill(HOSTILE[:7])
    visit.page.locator("#entity-list [role=option]").first.click()
    visit.page.locator("#relation-list [role=option]", has_text="grandparent").click()
    visit.settle()
    expect(visit.page.locator("#evidence h2 .entity").first).to_have_text(HOSTILE)
    visit.page.locator("#evidence h2 .entity").first.click()
    expect(visit.page.get_by_role("heading", name=HOSTILE, exact=True)).to_be_visible()
    assert visit.page.locator("script:not([src])").count() == 0


def test_an_unknown_name_offers_the_nearest(visit: Visit) -> None:
    visit.may_fail = {404}
    visit.open("#/ask?model=family&head=cleoo&relation=grandparent")
    alert = visit.page.get_by_role("alert").filter(has_text="cleoo")
    expect(alert).to_contain_text("Not in the graph")
    alert.get_by_role("button", name="cleo", exact=True).click()
    visit.settle()
    expect(visit.chosen).to_have_text("cleo 1")
    visit.open("#/ask?model=family&head=cleo&relation=grandparents")
    visit.page.get_by_role("button", name="grandparent", exact=True).click()
    visit.settle()
    expect(visit.chosen).to_have_text("cleo 1")


# ------------------------------------------------------------------------------- attention, quality, judging


def test_attention_is_a_table_of_rows_that_add_up(visit: Visit) -> None:
    page = visit.page
    visit.open(QUESTION)
    page.get_by_text("Where the model looked").click()
    table = page.get_by_role("table", name="Attention of the path")
    expect(table).to_be_visible()
    rows = heat_rows(table)
    assert rows
    for row in rows:
        assert sum(row) == pytest.approx(1, abs=0.005 * len(row) + 1e-9)
    page.get_by_label("Attention head").select_option("2")
    assert heat_rows(table) != rows
    cells = table.locator("tbody tr").first.locator("td")
    expect(cells.nth(0)).to_have_attribute("title", re.compile(r"looks at cleo \(asked\): \d"))
    expect(cells.nth(1)).to_have_attribute("title", re.compile(r"looks at grandparent \(asked\): \d"))


def heat_rows(table: Locator) -> list[list[float]]:
    seen = "td:not(.never)"
    return [
        [float(cell) for cell in row.locator(seen).all_inner_texts()] for row in table.locator("tbody tr").all()
    ]


def test_quality_stands_beside_rules_and_the_frequency(visit: Visit) -> None:
    visit.open(QUESTION)
    visit.page.get_by_role("link", name="Quality").first.click()
    table = visit.page.get_by_role("table", name="Quality beside the rules")
    rows = asked(visit.address, "models/family")["quality"][0]["rows"]
    shown = table.locator("tbody tr")
    expect(shown).to_have_count(len(rows))
    for place, row in enumerate(rows):
        expect(shown.nth(place).locator(".figure").first).to_have_text(f"{row['mrr']:.3f}".removeprefix("0"))
        expect(visit.page.locator(".signatures li").nth(place)).to_have_text(row["signature"])
    expect(shown.last).to_contain_text("The most frequent answer")
    visit.page.go_back()
    expect(visit.chosen).to_have_text("cleo 1")


def test_reviewing_by_keys_keeps_decisions_that_squire_add_reads(visit: Visit, page_run: Path) -> None:
    page, card = visit.page, asked(visit.address, "models/family/review")["cards"][0]
    visit.open("#/review")
    title = page.locator("#review-view h1")
    expect(title).to_contain_text(card["tail"])
    expect(page.locator("#review-view .sentence")).to_have_text(card["why"])
    page.keyboard.press("r")
    expect(page.get_by_text("0 accepted · 1 rejected · 0 skipped")).to_be_visible()
    page.keyboard.press("u")
    expect(page.get_by_text("0 accepted · 0 rejected · 0 skipped")).to_be_visible()
    expect(title).to_contain_text(card["tail"])
    page.get_by_role("button", name="Accept").click()
    expect(page.get_by_text("1 accepted · 0 rejected · 0 skipped")).to_be_visible()
    page.reload()  # what is decided does not come again
    visit.settle()
    expect(page.get_by_text("1 accepted · 0 rejected · 0 skipped")).to_be_visible()
    page.keyboard.press("s")
    expect(page.get_by_text("1 accepted · 0 rejected · 1 skipped")).to_be_visible()
    [line] = (page_run / "review" / "accepted.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[0], line.split(",")[-1]] == [card["head"], card["tail"]]


def test_judging_by_keys_resumes_and_ends_with_a_summary(visit: Visit, page_run: Path) -> None:
    page = visit.page
    visit.open("#/judge")
    page.get_by_label("Your name").fill("eve")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("0 of 2 judged", exact=True)).to_be_visible()
    expect(page.locator("#judge-view .grade, #judge-view .inferred")).to_have_count(0)  # nothing that could sway
    page.keyboard.press("5")
    expect(page.get_by_text("1 of 2 judged", exact=True)).to_be_visible()
    page.keyboard.press("b")
    expect(page.get_by_role("button", name="Partially")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("1")
    expect(page.get_by_role("button", name="Partially")).to_have_attribute("aria-pressed", "false")
    page.reload()
    visit.settle()
    expect(page.get_by_label("Your name")).to_have_value("eve")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("1 of 2 judged", exact=True)).to_be_visible()
    page.keyboard.press("0")
    expect(page.get_by_role("heading", name="All paths are judged")).to_be_visible()
    expect(page.get_by_role("table", name="Interpretability")).to_contain_text("50.0")
    lines = (page_run / "annotation" / "judged by eve.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["score"] for line in lines[1:]] == [
        0.5,
        1,
        0,
    ]  # as 'squire study annotate' keeps them
