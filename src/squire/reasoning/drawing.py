"""A path as a small SVG: boxes and arrows, solid for known edges, dashed for inferred ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from unicodedata import east_asian_width

NAME, LABEL = 12, 10  # font sizes
PADDING, GAP = 10.0, 34.0  # space beside a label and beside a relation
HEIGHT, MIDDLE = 58.0, 36.0
LONGEST = 32  # characters; the tooltip has the whole label


@dataclass(frozen=True)
class Step:
    """An arrow and the entity it leads to."""

    relation: str
    goal: str
    backwards: bool  # the arrow points back
    probability: float | None  # None: known


def draw_path(start: str, steps: Sequence[Step]) -> str:
    """Draw the path from left to right. Colours follow the page, light or dark."""
    parts, x = [], 1.0
    box, x = _box(start, x)
    parts.append(box)
    for step in steps:
        arrow, x = _arrow(step, x)
        box, x = _box(step.goal, x)
        parts += [arrow, box]
    label = " ".join([start, *(f"{_spoken(step)} {step.goal}" for step in steps)])
    return (
        f'<svg role="img" aria-label="{escape(label)}" width="{x + 1:.0f}" height="{HEIGHT:.0f}" '
        f'viewBox="0 0 {x + 1:.0f} {HEIGHT:.0f}" font-family="sans-serif" font-size="{NAME}" fill="currentColor" '
        f'stroke="none">{"".join(parts)}</svg>'
    )


def _spoken(step: Step) -> str:
    kind = "known" if step.probability is None else f"inferred, probability {rounded(step.probability)}"
    return f"{'is the ' if step.backwards else ''}{step.relation}{' of' if step.backwards else ''} ({kind}):"


def _box(name: str, x: float) -> tuple[str, float]:
    shown = _short(name)
    width = _width(shown, NAME) + 2 * PADDING
    return (
        f"<g><title>{escape(name)}</title>"
        f'<rect x="{x:.1f}" y="{MIDDLE - 14}" width="{width:.1f}" height="28" rx="6" fill="none" '
        f'stroke="currentColor"/><text x="{x + width / 2:.1f}" y="{MIDDLE + 4}" text-anchor="middle">'
        f"{escape(shown)}</text></g>",
        x + width,
    )


def _arrow(step: Step, x: float) -> tuple[str, float]:
    shown = _short(step.relation)
    below = "" if step.probability is None else rounded(step.probability)
    end = x + max(_width(shown, LABEL), _width(below, LABEL)) + GAP
    middle = f"{(x + end) / 2:.1f}"
    dashes = "" if step.probability is None else ' stroke-dasharray="5 4"'
    tip, wing = (x + 1, x + 8) if step.backwards else (end - 1, end - 8)
    return (
        f"<g><title>{escape(step.relation)}</title>"
        f'<line x1="{x:.1f}" y1="{MIDDLE}" x2="{end:.1f}" y2="{MIDDLE}" stroke="currentColor"{dashes}/>'
        f'<path d="M{tip:.1f} {MIDDLE}L{wing:.1f} {MIDDLE - 4}L{wing:.1f} {MIDDLE + 4}Z"/>'
        f'<g text-anchor="middle" font-size="{LABEL}"><text x="{middle}" y="{MIDDLE - 8}">{escape(shown)}</text>'
        f'<text x="{middle}" y="{MIDDLE + 15}">{escape(below)}</text></g></g>',
        end,
    )


def rounded(value: float, digits: int = 2) -> str:
    """`0.82`, and `<0.01` instead of a rounded zero."""
    least = 10.0**-digits
    return f"{value:.{digits}f}" if value >= least / 2 else f"<{least:.{digits}f}"


def percent(share: float) -> str:
    """`82%`, and `<1%` instead of a rounded zero."""
    text = f"{share:.0%}"
    return "<1%" if share > 0 and text == "0%" else text


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _width(text: str, size: int) -> float:
    """Approximate width in a wide sans-serif font; the viewer's fonts are unknown."""
    return size * sum(_share(letter) for letter in text)


def _share(letter: str) -> float:
    """Width of a letter relative to its height."""
    if letter in "MWmw@%…" or east_asian_width(letter) in "WF":
        return 1.0
    if letter in "ijlIrtf.,:;'|!()[] /-":
        return 0.4
    return 0.75 if letter.isupper() else 0.62
