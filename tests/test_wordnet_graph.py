"""A WordNet database becomes a graph of synsets, with the relations of WN18RR."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from graphs import facts_of

from squire.graph.loading import load_graph

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "wordnet_graph.py"
NOUNS = """  1 This line is the licence.
00000001 05 n 01 animal 0 002 ~ 00000002 n 0000 + 00000009 v 0101 | a living thing
00000002 05 n 02 dog 0 domestic_dog 0 002 @ 00000001 n 0000 %p 00000003 n 0000 | a pet | that barks
00000003 05 n 0a tail 0 tail 1 tail 2 tail 3 tail 4 tail 5 tail 6 tail 7 tail 8 tail 9 000 | ten words
"""
VERBS = "00000009 30 v 01 animalise 0 001 + 00000001 n 0101 01 + 08 00 | to make so\n"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def test_pointers_become_facts_in_one_direction(tmp_path: Path) -> None:
    for name, text in (("noun", NOUNS), ("verb", VERBS), ("adj", ""), ("adv", "")):
        (tmp_path / f"data.{name}").write_text(text)
    done = run(str(tmp_path / "out"), "--wordnet", str(tmp_path))
    assert done.returncode == 0, done.stderr
    animal, dog, tail = (f"{name}.n.0000000{i}" for i, name in enumerate(("animal", "dog", "tail"), 1))
    verb = "animalise.v.00000009"
    assert facts_of(load_graph(tmp_path / "out")) == {
        (dog, "hypernym", animal),
        (dog, "has part", tail),
        (animal, "derivationally related form", verb),
        (verb, "derivationally related form", animal),
    }


def test_without_wordnet_it_says_how_to_get_it(tmp_path: Path) -> None:
    done = run(str(tmp_path / "out"), "--wordnet", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "apt install wordnet-base" in done.stderr
