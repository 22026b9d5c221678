"""Missing facts in bulk: many questions, their new answers with evidence, one file.

The questions are cut into parts of a fixed size. A finished part is a file in OUT.parts beside the output, and
`job.json` there tells which job it belongs to. So a job that was stopped, or killed, goes on with the parts that
are missing, and any number of processes can share them out. What a part holds depends on its questions alone. When
all are there they are joined, and the folder goes. Which questions are asked, and how a file looks, is decided
elsewhere.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from squire.completion.predictions import Prediction, format_for
from squire.completion.questions import Questions
from squire.core.files import ensure_creatable, replacing
from squire.core.processes import interruptions, locked
from squire.core.relations import is_inverse
from squire.core.run_files import LOCK
from squire.core.team import ALONE, Team
from squire.core.version import __version__
from squire.errors import SettingError
from squire.graph.graph import SPLITS
from squire.reasoning.reasoner import RankedBy, Reasoner
from squire.search.options import DecodingOptions

PART = 256  # questions: seconds of work, a minute on a large graph, which is what a stop may cost
JOB = "job.json"
Progress = Callable[[int, int | None], None]  # questions done, of how many


@dataclass(frozen=True)
class Wanted:
    """Which answers to a question are worth a row."""

    answers: int = 3
    min_score: float = 0.0
    ranking: RankedBy | None = None
    min_confidence: float = 0.0


class Predictor:
    """Answers questions in bulk; what any split of the graph knows already is no answer."""

    def __init__(self, reasoner: Reasoner, decoding: DecodingOptions, wanted: Wanted) -> None:
        self.reasoner, self.decoding, self.wanted = reasoner, decoding, wanted
        self._known = reasoner.graph.known(*SPLITS)

    def predict(self, questions: Questions, first: int, end: int) -> Iterator[list[Prediction]]:
        """The predictions from each of these questions, in order."""
        queries, wanted = questions.between(first, end), self.wanted
        found = self.reasoner.answers(
            queries, self.decoding, k=wanted.answers, without=self._known,
            ranking=wanted.ranking, min_confidence=wanted.min_confidence,
        )  # fmt: skip
        n = self.reasoner.graph.num_relations
        for (entity, relation), answers in zip(queries.tolist(), found, strict=True):
            rows = []
            for other, answer in answers:
                head, tail = (other, entity) if is_inverse(relation, n) else (entity, other)
                if answer.score >= wanted.min_score:
                    rows.append(Prediction(head, relation % n, tail, answer))
            yield rows

    @property
    def about(self) -> dict[str, object]:
        """What decides the answers, for JSON."""
        decoding = self.decoding
        return {
            "squire": __version__,
            "model": checksum(self.reasoner),
            "answers": self.wanted.answers,
            "min_score": self.wanted.min_score,
            "ranking": "paths" if self.wanted.ranking == "paths" or not self.reasoner.fusion else "fused",
            "min_confidence": self.wanted.min_confidence,
            "grounded": decoding.constraint is not None,
            "beam": decoding.beam,
            "aggregate": decoding.aggregate,
            "prune": decoding.prune,
            "hops": decoding.hops,
            "known_share": decoding.known_share,
            "edge_ends": decoding.edge_ends,
        }


def checksum(reasoner: Reasoner) -> str:
    """Of all that a run's answers depend on: weights, facts of all splits, rules."""
    run, fusion = reasoner.run, reasoner.fusion
    digest = hashlib.sha256()
    for name, weights in sorted({**run.model.state_dict(), **(fusion.ranker.tensors() if fusion else {})}.items()):
        digest.update(name.encode())
        digest.update(weights.cpu().contiguous().numpy().data)
    for array in (*(run.graph.triples(split) for split in SPLITS), run.rules.head, run.rules.body):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class Completion:
    """One job: questions, who answers them, and the file that is to be."""

    def __init__(self, predictor: Predictor, questions: Questions, out: Path, part: int | None = None) -> None:
        self.predictor, self.questions, self.out, self.part = predictor, questions, out, part or PART
        self.folder = out.with_name(f"{out.name}.parts")
        self._format = format_for(out, predictor.reasoner.graph)
        self._num_parts = -(-len(questions) // self.part)
        self._joined = False

    def missing(self) -> list[int]:
        """The parts that are not there yet."""
        there = {file.name for file in self.folder.iterdir()}
        return [number for number in range(self._num_parts) if self._file(number).name not in there]

    @contextmanager
    def begun(self) -> Iterator[None]:
        """The folder of parts, made or found again, is this job's for as long as the body lasts."""
        ensure_creatable(self.out)
        job = json.dumps(self._about(), indent=1)
        self._check_folder(json.loads(job))
        with locked(self.folder, "working"):
            with replacing(self.folder / JOB) as temporary:
                temporary.write_text(job, encoding="utf-8")
            yield
        if self._joined:
            shutil.rmtree(self.folder)

    def work(self, progress: Progress, team: Team = ALONE) -> bool:
        """Answer this process's share of the missing parts. Gives whether it is done, False after a Ctrl-C."""
        missing = self.missing()
        # Nobody begins before all have looked: they would share out different lists.
        team.total(0.0)
        total = len(self.questions)
        done = total - sum(self._size(number) for number in missing)
        progress(done, total)
        # torchrun passes Ctrl-C on to processes that the terminal has told already: they may hear it twice.
        with interruptions(patient=team.launched) as interrupted:
            for number in missing[team.rank :: team.size]:
                rows: list[Prediction] = []
                first = number * self.part
                for found in self.predictor.predict(self.questions, first, first + self._size(number)):
                    rows += found
                    done = min(done + team.size, total)  # the others are taken to be as fast
                    progress(done, total)
                    if interrupted:
                        team.any(True)
                        return False
                self._format.write(rows, self._file(number))
            return not team.any(bool(interrupted))

    def join(self) -> int:
        """All parts as the output; gives the number of predictions."""
        if missing := self.missing():
            raise SettingError(
                f"--output {self.out}: {len(missing):,} of {self._num_parts:,} parts are not in {self.folder}. "
                "To do: let all processes write to one file system, then run the same command again."
            )
        found = self._format.join(map(self._file, range(self._num_parts)), self.out)
        self._joined = True
        return found

    def _about(self) -> dict[str, object]:
        asked = {"questions": len(self.questions), "part": self.part, **self.questions.about}
        return {**self.predictor.about, **asked}

    def _check_folder(self, own: dict[str, object]) -> None:
        """SettingError if there are parts of another job, or things that are no parts at all."""
        if not self.folder.exists() or {file.name for file in self.folder.iterdir()} <= {LOCK}:
            return
        try:
            found = json.loads((self.folder / JOB).read_text(encoding="utf-8"))
            others = [key for key in {**found, **own} if found.get(key) != own.get(key)]
        except (OSError, ValueError, TypeError):
            raise SettingError(
                f"--output {self.out}: {self.folder} is needed for its parts, but holds something else. To do: "
                "move that away, or choose another --output."
            ) from None
        if others:
            differ = ", ".join(f"{key} {_short(found.get(key))}, now {_short(own.get(key))}" for key in others)
            raise SettingError(
                f"--output {self.out}: {self.folder} holds parts of another job ({differ}). To do: finish that "
                "with its own command, remove the folder, or choose another --output."
            )

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:08}.part"

    def _size(self, number: int) -> int:
        return min(self.part, len(self.questions) - number * self.part)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
