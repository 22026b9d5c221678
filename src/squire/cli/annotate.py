"""The dialogue of `squire study annotate`: shows one path after another and reads a person's judgements."""

from __future__ import annotations

from rich.text import Text

from squire import studies
from squire.cli.console import errors

REPLIES = {"1": 1.0, "1.0": 1.0, "0.5": 0.5, "0,5": 0.5, ".5": 0.5, "5": 0.5, "0": 0.0, "0.0": 0.0}


def converse(study: studies.Annotations) -> None:
    """Asks until everything is judged or the person stops. Every judgement is on disk before the next question."""
    numbers = study.to_judge
    at = next((at for at, number in enumerate(numbers) if number not in study.scores), len(numbers))
    if at < len(numbers):
        _print_help()
    while at < len(numbers):
        number = numbers[at]
        before = study.scores.get(number)
        _print_question(study, number, f"{at + 1} of {len(numbers)}")
        reply = _read_reply(before)
        if reply == "q":
            return
        if reply == "b":
            at = max(at - 1, 0)
        elif reply == "?":
            _print_help()
        elif reply in REPLIES:
            study.judge(number, REPLIES[reply])
            at += 1
        elif not reply and before is not None:
            at += 1
        else:
            _print("expected 1, 0.5, 0, b, q or ?")


def _print_help() -> None:
    _print(
        "Does the path convince you that the answer is correct? (Appendix C of the paper)",
        *(f"  {score:<4g} {meaning}" for score, meaning in studies.MEANINGS.items()),
        "       A path that only repeats the question deduces nothing: 0 (our reading; also counted separately)",
        "  b    back to the previous path; there, Enter keeps your judgement",
        "  q    stop; everything is saved, and the same command continues",
        "  ?    this help",
    )


def _print_question(study: studies.Annotations, number: int, count: str) -> None:
    """Only question, answer and path: scores or grades would bias the annotator."""
    question = study.questions[number]
    _print("")
    errors.print(Text.assemble((count, "dim"), "  ", (question.text, "bold"), " ", (question.tail, "bold green")),
                 soft_wrap=True)  # fmt: skip
    _print(f"  {question.path()}")


def _read_reply(before: float | None) -> str:
    """The line typed; the end of the input and Ctrl-C mean stop."""
    errors.print(Text("  1 / 0.5 / 0 > " if before is None else f"  1 / 0.5 / 0 (was {before:g}) > "), end="")
    try:
        return input().strip().lower()
    except (EOFError, KeyboardInterrupt):
        _print("")
        return "q"


def _print(*lines: str) -> None:
    for line in lines:
        errors.print(line, markup=False, highlight=False, soft_wrap=True)
