"""Takes the pictures of the page for the documentation: python scripts/page_pictures.py RUN

RUN is a demo run, as `make demo` makes it. Needs Chromium.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from page_visit import Visit, installed_browser, serving, visiting  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, expect, sync_playwright  # noqa: E402

IMAGES = ROOT / "docs" / "images"
WIDE, PHONE = {"width": 1400, "height": 900}, {"width": 390, "height": 844}
NIGER = "#/ask?model=world&head=Niger&relation=official+language&answer=French"
SUPPOSED = quote('[["Niger","gained independence from","Portugal"]]')
WHAT_IF = f"#/ask?model=world&head=Niger&relation=official+language&answer=Portuguese&facts={SUPPOSED}"
AUSTRIA = "#/ask?model=world&head=Austria&relation=borders&answer=Netherlands"
COLOURS = 48  # of the animation, which must be small


def save(visit: Visit, name: str) -> None:
    visit.page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


def still_pictures(browser: Browser, address: str) -> None:
    with visiting(browser, address, viewport=WIDE) as visit:
        visit.open()
        expect(visit.page.locator(".sentence")).not_to_be_empty()
        save(visit, "page-first")
        visit.open(NIGER)
        visit.page.locator(".source summary").first.click()
        expect(visit.page.locator(".reason li").first).to_be_visible()
        save(visit, "page-answer")
        visit.open("#/quality")
        save(visit, "page-quality")
        visit.open(f"{WHAT_IF}&around=Niger&to=Portuguese")
        expect(visit.page.locator(".connections li").first).to_be_visible()
        save(visit, "page-connected")
        visit.open(f"{NIGER}&around=Niger")
        visit.page.get_by_role("button", name="borders (6), to Niger").click()
        expect(visit.page.locator("#neighbours .node").filter(has_text="Chad")).to_be_visible()
        visit.page.get_by_role("button", name="Western Africa: unfold").click()
        expect(visit.page.get_by_role("heading", name="Ask further about Western Africa")).to_be_visible()
        visit.page.mouse.move(5, 5)
        save(visit, "page-neighbours")
        visit.open(WHAT_IF)
        expect(visit.page.locator("#drawing")).to_contain_text("supposed")
        save(visit, "page-what-if")
        visit.open("#/review")
        expect(visit.page.locator("#review-view .sentence")).not_to_be_empty()
        save(visit, "page-review")
    with visiting(browser, address, viewport=WIDE, color_scheme="dark") as visit:
        visit.open(AUSTRIA)
        visit.page.locator("#more-paths").click()
        visit.page.locator(".clause").nth(1).hover()
        save(visit, "page-dark")
    with visiting(browser, address, viewport=PHONE) as visit:
        visit.open(NIGER)
        expect(visit.page.locator(".sentence")).not_to_be_empty()
        visit.page.wait_for_timeout(1000)  # it scrolls to the evidence
        save(visit, "page-narrow")


def animation(browser: Browser, address: str) -> None:
    """Type, answer, the sentence lights up the drawing, click onward."""
    frames: list[tuple[Image.Image, int]] = []
    with visiting(browser, address, viewport=WIDE) as visit:
        page = visit.page

        def frame(milliseconds: int) -> None:
            if not hovering:
                page.mouse.move(5, 5)
            picture = Image.open(io.BytesIO(page.screenshot(animations="disabled")))
            small = picture.convert("RGB").resize((980, 630), Image.Resampling.LANCZOS)
            frames.append((small.quantize(COLOURS, dither=Image.Dither.NONE), milliseconds))

        hovering = False
        visit.open()
        expect(page.locator(".sentence")).not_to_be_empty()
        frame(2000)
        page.locator("#entity").fill("")
        for part in ("Ni", "ge", "r"):
            page.locator("#entity").press_sequentially(part)
            page.wait_for_timeout(400)
            frame(450)
        page.locator("#entity-list [role=option]", has_text="Niger").first.click()
        visit.settle()
        page.locator("#relation").fill("official language")
        page.locator("#ask-button").click()
        visit.settle()
        expect(page.locator(".sentence")).to_contain_text("Niger")
        frame(2500)
        hovering = True
        for place in (0, 1):
            page.locator(".clause").nth(place).hover()
            frame(1800)
        hovering = False
        page.locator("#more-paths").click()
        frame(2200)
        page.locator(".source summary").first.click()
        expect(page.locator(".reason li").first).to_be_visible()
        frame(2200)
        page.locator("#drawing").get_by_role("button", name="France: look around").first.click()
        expect(page.locator("#neighbours svg")).to_be_visible()
        frame(2200)
        page.locator("#around .onward .chip").first.click()
        visit.settle()
        expect(page.locator(".sentence")).to_contain_text("France")
        frame(2600)
    pictures, durations = zip(*frames, strict=True)
    first, *others = pictures
    first.save(IMAGES / "page.gif", save_all=True, append_images=others, duration=list(durations), loop=0)


def main(run: str) -> None:
    with serving(f"world={run}") as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=installed_browser(), args=["--no-sandbox"])
        still_pictures(browser, address)
        animation(browser, address)
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1])
