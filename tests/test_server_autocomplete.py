"""Labels found as they are typed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from squire.server.autocomplete import LabelSearch, folded

NAMES = ["São Tomé", "Sao Paulo", "Tomé de Souza", "south_korea", "North Korea", "dbr:Korea_(peninsula)", "Paul"]
WEIGHTS = np.array([3, 9, 1, 5, 5, 2, 4])


def find(text: str, limit: int = 10) -> list[tuple[str, int]]:
    search = LabelSearch(NAMES, WEIGHTS)
    return [(NAMES[match.id], match.tier) for match in search.find(text, limit)]


def test_case_and_accents_do_not_count() -> None:
    assert folded("SÃO Tomé") == "sao tome"
    assert find("sao", 2) == [("Sao Paulo", 0), ("São Tomé", 0)]
    assert find("TOMÉ", 2) == [("Tomé de Souza", 0), ("São Tomé", 1)]


def test_words_begin_after_anything_that_is_no_letter() -> None:
    assert find("kor", 3) == [("south_korea", 1), ("North Korea", 1), ("dbr:Korea_(peninsula)", 1)]
    assert find("penin", 1) == [("dbr:Korea_(peninsula)", 1)]


def test_typing_errors_and_other_orders_are_forgiven() -> None:
    assert find("Sao Pualo", 1) == [("Sao Paulo", 2)]
    assert find("korea north", 1) == [("North Korea", 2)]
    assert find("qqqqqqqq") == []


def test_no_text_gives_the_heaviest() -> None:
    assert [name for name, _ in find("  ", 3)] == ["Sao Paulo", "south_korea", "North Korea"]


def test_no_names_no_matches() -> None:
    empty = LabelSearch([], np.empty(0, np.int64))
    assert empty.find("x", 5) == empty.find("", 5) == []


words = st.text(st.sampled_from("abAé _:(ü"), max_size=6)


@given(st.lists(words, unique=True, max_size=12), words, st.integers(1, 6), st.data())
def test_beginnings_are_those_that_a_loop_finds(
    names: list[str], text: str, limit: int, data: st.DataObject
) -> None:
    weights = data.draw(st.lists(st.integers(0, 3), min_size=len(names), max_size=len(names)))
    found = LabelSearch(names, np.array(weights, np.int64)).find(text, limit)
    assert len(found) == len({match.id for match in found}) <= limit
    wanted = folded(text).strip()
    by_weight = sorted(range(len(names)), key=lambda number: -weights[number])
    begins = [number for number in by_weight if folded(names[number]).startswith(wanted)]
    assert [match.id for match in found if match.tier == 0] == begins[:limit]
    if wanted[:1].isalnum():
        later = [
            number
            for number in by_weight
            if number not in begins
            and any(
                folded(names[number])[at:].startswith(wanted) and not folded(names[number])[at - 1].isalnum()
                for at in range(1, len(folded(names[number])))
            )
        ]
        assert [match.id for match in found if match.tier == 1] == later[: max(0, limit - len(begins))]
