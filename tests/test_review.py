"""Cards are predictions that nobody has decided about; decisions lead to files that `squire add` takes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_run import copy_of_run
from typer.testing import CliRunner

import squire
from squire.cli import app
from squire.errors import DataError, UnknownName
from squire.studies import Review
from squire.studies.review import Card


def all_cards(review: Review) -> list[Card]:
    found: list[Card] = []
    start: int | None = 0
    while start is not None:
        cards, start = review.cards(start)
        found += cards
    return found


def test_cards_are_new_facts_and_those_decided_do_not_come_again(tmp_path: Path) -> None:
    run = squire.Run(copy_of_run(tmp_path / "family"))
    review = Review(run.reasoner)
    cards = all_cards(review)
    facts = {(one.head, one.relation) for one in cards}
    assert len(facts) == len(cards) > 5
    for one in cards[:20]:
        best = run.answer(one.head, one.relation, k=1).answers[0]
        assert (best.entity, best.sentence, best.confidence) == (one.tail, one.why, one.confidence)
    first, second, third = cards[:3]
    for card, decision in ((first, "accept"), (second, "skip"), (third, "reject"), (third, "undo")):
        review.decide(card.head, card.relation, card.tail, decision)  # type: ignore[arg-type]
    assert all_cards(Review(run.reasoner)) == [third, *cards[3:]]
    assert review.progress() == {"accepted": 1, "rejected": 0, "skipped": 1, "counted": 0}


def test_accepted_facts_can_be_added_and_rejected_ones_removed(tmp_path: Path) -> None:
    folder = copy_of_run(tmp_path / "family")
    review = Review(squire.Run(folder).reasoner)
    card = review.cards(0)[0][0]
    review.decide(card.head, card.relation, card.tail, "accept")
    review.decide("ada", "likes", "ben", "reject")
    for command, file in (("add", "accepted.csv"), ("remove", "rejected.csv")):
        done = CliRunner().invoke(app, [command, str(folder), str(folder / "review" / file)])
        assert done.exit_code == 0, done.output
    run = squire.Run(folder)
    assert card.tail in [one.entity for one in run.answer(card.head, card.relation).facts]
    assert "ben" not in [one.entity for one in run.answer("ada", "likes").facts]
    again = Review(run.reasoner)
    again.decide("ben", "likes", "cleo", "skip")  # what is done already is no longer in the files
    assert [(folder / "review" / file).read_text() for file in ("accepted.csv", "rejected.csv")] == ["", ""]


def test_an_unknown_name_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    review = Review(squire.Run(copy_of_run(tmp_path / "family")).reasoner)
    with pytest.raises(UnknownName, match="nobody"):
        review.decide("nobody", "likes", "ben", "accept")
    assert not review.folder.exists()


def test_doubtful_facts_come_first_if_they_were_listed(tmp_path: Path) -> None:
    review = Review(squire.Run(copy_of_run(tmp_path / "family")).reasoner)
    review.folder.mkdir()
    rows = [("ada", "likes", "ben", 0.01, "Odd."), ("ada", "likes", "someone who is gone", 0.02, "Odd.")]
    names = ["head", "relation", "tail", "confidence", "against"]
    pq.write_table(pa.table([*map(list, zip(*rows, strict=True))], names), review.folder / "doubtful.parquet")
    assert review.cards(0) == ([Card(*rows[0][:3], True, *rows[0][3:])], 1)
    review.decide("ada", "likes", "ben", "reject")
    assert not any(card.is_fact for card in all_cards(review))
    (review.folder / "doubtful.parquet").write_text("no table")
    with pytest.raises(DataError, match="squire doubt"):
        review.cards(0)
