"""The conversation of `squire study annotate`: shows one path after the other and takes a person's judgement."""

from __future__ import annotations

from rich.text import Text

from squire.cli.console import errors
from squire.studies.annotations import MEANINGS, Annotations
from squire.studies.questions import path_words

SAID = {"1": 1.0, "1.0": 1.0, "0.5": 0.5, "0,5": 0.5, ".5": 0.5, "5": 0.5, "0": 0.0, "0.0": 0.0}
HELP = [
    "Does the path convince you that the answer is right? (Appendix C of the paper)",
    *(f"  {score:<4g} {meaning}" for score, meaning in MEANINGS.items()),
    "       A path that only repeats the question deduces nothing: 0 (our reading; counted apart, too)",
    "  b    back to the path before; Enter there keeps what you said",
    "  q    stop; all is saved, and the same command goes on",
    "  ?    this text",
]


def converse(study: Annotations) -> None:
    """Until all is judged, or the person stops. Every judgement is on the disk before the next question."""
    numbers = study.to_judge
    place = next((place for place, number in enumerate(numbers) if number not in study.scores), len(numbers))
    if place < len(numbers):
        _say(*HELP)
    while place < len(numbers):
        number = numbers[place]
        before = study.scores.get(number)
        _show(study, number, f"{place + 1} of {len(numbers)}")
        said = _listen(before)
        if said == "q":
            return
        if said == "b":
            place = max(place - 1, 0)
        elif said == "?":
            _say(*HELP)
        elif said in SAID:
            study.judge(number, SAID[said])
            place += 1
        elif not said and before is not None:
            place += 1
        else:
            _say("expected 1, 0.5, 0, b, q or ?")


def _show(study: Annotations, number: int, count: str) -> None:
    """Question, answer and path alone: what the model is sure of, or the graph knows, must not sway anyone."""
    question = study.questions[number]
    assert question.evidence is not None  # else there is nothing to judge
    _say("")
    errors.print(Text.assemble((count, "dim"), "  ", (question.text, "bold"), " ", (question.tail, "bold green")),
                 soft_wrap=True)  # fmt: skip
    _say(f"  {path_words(question.evidence)}")


def _listen(before: float | None) -> str:
    """What is typed; the end of the input, or Ctrl-C, is a wish to stop."""
    errors.print(Text("  1 / 0.5 / 0 > " if before is None else f"  1 / 0.5 / 0 (was {before:g}) > "), end="")
    try:
        return input().strip().lower()
    except (EOFError, KeyboardInterrupt):
        _say("")
        return "q"


def _say(*lines: str) -> None:
    for line in lines:
        errors.print(line, markup=False, highlight=False, soft_wrap=True)
