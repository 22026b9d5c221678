"""What was noted is never lost, never doubled, and never continued with other work."""

from __future__ import annotations

from pathlib import Path

import pytest

from squire.errors import DataError, SettingError
from squire.studies.journal import Journal, read_journal

HEADER = {"study": "made", "seed": 0}


def test_entries_come_back_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new" / "notes.jsonl", HEADER)
    for entry in ({"a": 1}, ["ü", 0.1], {"a": 2}):
        journal.append(entry)
    again = Journal(journal.file, HEADER)
    assert again.entries == journal.entries == [{"a": 1}, ["ü", 0.1], {"a": 2}]
    assert again.header == HEADER


def test_wherever_writing_was_cut_off_whole_lines_stay_and_work_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    journal = Journal(file, HEADER)
    for entry in ("ä", "b", "c"):
        journal.append(entry)
    whole = file.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        again = Journal(file, HEADER)
        left = max(sum(end <= cut for end in ends) - 1, 0)
        assert again.entries == ["ä", "b", "c"][:left]
        again.append("next")
        assert Journal(file, HEADER).entries == [*["ä", "b", "c"][:left], "next"]


def test_other_work_is_not_continued(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    Journal(file, HEADER).append(1)
    before = file.read_bytes()
    with pytest.raises(SettingError, match=r"notes.jsonl: holds another study \(seed is 0 there and 1 here\)"):
        Journal(file, {**HEADER, "seed": 1})
    with pytest.raises(SettingError, match="beam is None there and 4 here"):
        Journal(file, {**HEADER, "beam": 4})
    assert file.read_bytes() == before


def test_what_is_said_beside_the_header_stays_as_it_was(tmp_path: Path) -> None:
    Journal(tmp_path / "notes.jsonl", HEADER, {"signature": "old"}).append(1)
    again = Journal(tmp_path / "notes.jsonl", HEADER, {"signature": "new"})
    assert again.header["signature"] == "old"
    assert again.entries == [1]


@pytest.mark.parametrize("content", [b"{\n", b"[]\n", b'{"study": 1}\n\xff\n{}\n'])
def test_a_broken_line_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "notes.jsonl").write_bytes(content)
    with pytest.raises(DataError, match=r"notes.jsonl:[12]: not a line of a study's journal"):
        read_journal(tmp_path / "notes.jsonl")


def test_two_cannot_write_at_once(tmp_path: Path) -> None:
    one, other = (Journal(tmp_path / "notes.jsonl", HEADER) for _ in range(2))
    one.append(1)
    with pytest.raises(SettingError, match="another process is writing to it"):
        other.append(1)
    one.append(2)
    assert Journal(tmp_path / "notes.jsonl", HEADER).entries == [1, 2]
