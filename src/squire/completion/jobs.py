"""Bulk completion: many questions, their new answers with evidence, one file.

The questions are cut into parts of a fixed size. A finished part is a file in OUT.parts beside the output, where
`job.json` says which job it belongs to. So a stopped or killed job continues with the missing parts, and any
number of processes can share them: what a part holds depends on its questions alone. When all parts are there
they are joined, and the folder is removed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from squire.completion.predictions import Prediction, Predictions, check_suffix, format_for
from squire.completion.questions import FileQuestions, HeadQuestions, Questions
from squire.core import __version__
from squire.core.files import ensure_creatable, replacing
from squire.core.processes import interruptions, locked
from squire.core.progress import Progress, progress_bar
from squire.core.relations import is_inverse
from squire.core.run_files import LOCK
from squire.core.team import ALONE, Team, team
from squire.errors import Interrupted, SettingError
from squire.graph.adjacency import Ids
from squire.graph.graph import SPLITS
from squire.ranking.context import Heads
from squire.reasoning.reasoner import RankedBy, Reasoner
from squire.reasoning.restrictions import Restriction, restrict
from squire.search.options import DecodingOptions

PART = 256  # questions: seconds of work, or a minute on a large graph, which is what a stop may cost
JOB = "job.json"
SAMPLE = 10_000  # questions that tell how confident answers must be for a precision
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompletionOptions:
    """Which questions to ask, and which of their answers to keep."""

    relations: Sequence[str] | None = None  # by default all
    heads: Heads | None = None  # known, typical (the default) or all
    queries: Path | None = None  # a file of questions instead
    k: int = 3  # answers per question, at most
    min_score: float = 0.0
    precision: float | None = None  # keep answers of which this share should be true; needs a fusion
    ranking: RankedBy | None = None
    grounded: bool = False
    search: Mapping[str, Any] = field(default_factory=dict)  # beam, aggregate
    among: Sequence[str] | str | Path | None = None  # whom answers may be
    type: str | None = None
    not_linked: bool = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise SettingError(f"k={self.k}: expected 1 or more.")
        if not math.isfinite(self.min_score):
            raise SettingError(f"min_score={self.min_score}: expected a number.")
        if self.precision is not None and not 0 <= self.precision <= 1:
            raise SettingError(f"precision={self.precision}: expected a share from 0 to 1.")
        if self.queries and (self.relations or self.heads):
            other = "relations" if self.relations else "heads"
            raise SettingError(f"queries={str(self.queries)!r}: the file holds all questions. Leave out {other}.")

    def questions(self, reasoner: Reasoner) -> Questions:
        """The questions, by number."""
        if self.queries:
            return FileQuestions(self.queries, reasoner.query)
        graph = reasoner.graph
        chosen = [graph.labels.relation_id(label) for label in self.relations or ()]
        return HeadQuestions(reasoner.run.facts, chosen or range(graph.num_relations), self.heads or "typical")

    def predictor(self, reasoner: Reasoner, questions: Questions) -> Predictor:
        """Answers the questions."""
        least = 0.0
        if self.precision is not None:
            least = reasoner.confidence_for(self.precision, _sample(questions), self.k, self.ranking)
        decoding = reasoner.decoding(grounded=self.grounded, **self.search)
        restriction = restrict(reasoner.graph, reasoner.run.facts, self.among, self.type, self.not_linked)
        return Predictor(reasoner, decoding, self.k, self.min_score, self.ranking, least, restriction)


def _sample(questions: Questions) -> Ids:
    """Questions at equal distances, at most SAMPLE.  (question, 2)"""
    if len(questions) <= SAMPLE:
        return questions.between(0, len(questions))
    numbers = np.linspace(0, len(questions), SAMPLE, endpoint=False).astype(np.int64).tolist()
    return np.concatenate([questions.between(number, number + 1) for number in numbers])


def complete_run(
    folder: Path, output: Path, options: CompletionOptions, device: str = "auto", show_progress: bool = True
) -> Predictions:
    """Predict facts that no split has, with evidence. Under torchrun, processes share the work."""
    with team(device, "run the same command again") as ours, ExitStack() as stack:
        with progress_bar("loading", show_progress and ours.leads, unit="questions") as bar:
            with ours.leader_first():  # so that only the leader complains
                check_suffix(output)
                reasoner = Reasoner.load(folder, ours.device)
                questions = options.questions(reasoner)
                job = Completion(options.predictor(reasoner, questions), questions, output)
                if ours.leads:
                    stack.enter_context(job.begun())
            done = job.work(bar.stage, ours)
        if not done:
            raise Interrupted(
                f"stopped. Finished parts are in {job.folder}; run the same command again to continue."
            )
        count = 0
        if ours.leads:
            count = job.join()
            logger.info("%s predictions from %s questions: %s", f"{count:,}", f"{len(questions):,}", output)
    return Predictions(output, count, len(questions))


@dataclass(frozen=True)
class Predictor:
    """Answers questions in bulk. Facts of any split are not predicted."""

    reasoner: Reasoner
    decoding: DecodingOptions
    k: int = 3
    min_score: float = 0.0
    ranking: RankedBy | None = None
    min_confidence: float = 0.0
    restriction: Restriction | None = None

    def predict(self, questions: Questions, first: int, end: int) -> Iterator[list[Prediction]]:
        """The predictions from each of these questions, in order."""
        queries, graph = questions.between(first, end), self.reasoner.graph
        found = self.reasoner.candidates(
            queries, self.decoding, k=self.k, ranking=self.ranking, min_confidence=self.min_confidence,
            restriction=self.restriction,
        )  # fmt: skip
        n = graph.num_relations
        for (entity, relation), answers in zip(queries.tolist(), found, strict=True):
            rows = []
            for other, answer in answers:
                head, tail = (other, entity) if is_inverse(relation, n) else (entity, other)
                if answer.score >= self.min_score:
                    rows.append(Prediction(head, relation % n, tail, answer))
            yield rows

    @property
    def about(self) -> dict[str, object]:
        """Everything that determines the answers, for JSON."""
        decoding = self.decoding
        return {
            "squire": __version__,
            "model": checksum(self.reasoner),
            "answers": self.k,
            "min_score": self.min_score,
            "ranking": "paths" if self.ranking == "paths" or not self.reasoner.fusion else "fused",
            "min_confidence": self.min_confidence,
            **({"decisions": self.reasoner.decisions} if self.reasoner.decisions else {}),
            "grounded": decoding.constraint is not None,
            "beam": decoding.beam,
            "aggregate": decoding.aggregate,
            "prune": decoding.prune,
            "hops": decoding.hops,
            "known_share": decoding.known_share,
            "edge_ends": decoding.edge_ends,
            **(self.restriction.about if self.restriction else {}),
        }


def checksum(reasoner: Reasoner) -> str:
    """Checksum of everything that a run's answers depend on: weights, facts of all splits, names, rules."""
    run, fusion = reasoner.run, reasoner.fusion
    rules = fusion.features.rules if fusion else run.rules
    digest = hashlib.sha256("\0".join(run.graph.labels.entities).encode())
    tensors = fusion.ranker.tensors() if fusion else {}
    if reasoner.has_model:
        tensors = {**reasoner.trained.model.state_dict(), **tensors}
    if fusion and fusion.pool:
        digest.update(fusion.pool.scorer.fingerprint.encode())
    for name, weights in sorted(tensors.items()):
        digest.update(name.encode())
        digest.update(weights.cpu().contiguous().numpy().data)
    counted = rules.head, rules.body, rules.head_constant, rules.body_constant, rules.support, rules.body_count
    for array in (*(run.graph.triples(split) for split in SPLITS), *counted):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


class Completion:
    """One job: questions, a predictor, and the output file."""

    def __init__(self, predictor: Predictor, questions: Questions, out: Path, part: int | None = None) -> None:
        self.predictor, self.questions, self.out, self.part = predictor, questions, out, part or PART
        self.folder = out.with_name(f"{out.name}.parts")
        self._format = format_for(out, predictor.reasoner.graph)
        self._num_parts = -(-len(questions) // self.part)
        self._joined = False

    def missing(self) -> list[int]:
        """The parts that do not exist yet."""
        there = {file.name for file in self.folder.iterdir()}
        return [number for number in range(self._num_parts) if self._file(number).name not in there]

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Create or open the folder of parts, locked for the duration of the body."""
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
        """Answer this process's share of the missing parts. Returns whether all are done; False after Ctrl-C."""
        missing = self.missing()
        team.total(0.0)  # a barrier: all processes must share out the same list
        total = len(self.questions)
        done = total - sum(self._size(number) for number in missing)
        progress("answering", done, total)
        # torchrun forwards Ctrl-C to processes that already got it from the terminal, so it may arrive twice.
        with interruptions(patient=team.launched) as interrupted:
            for number in missing[team.rank :: team.size]:
                rows: list[Prediction] = []
                first = number * self.part
                for found in self.predictor.predict(self.questions, first, first + self._size(number)):
                    rows += found
                    done = min(done + team.size, total)  # assuming that the others are as fast
                    progress("answering", done, total)
                    if interrupted:
                        team.any(True)
                        return False
                self._format.write(rows, self._file(number))
            return not team.any(bool(interrupted))

    def join(self) -> int:
        """Join all parts to the output. Returns the number of predictions."""
        if missing := self.missing():
            raise SettingError(
                f"{self.out}: {len(missing):,} of {self._num_parts:,} parts are not in {self.folder}. Let all "
                "processes write to one file system, then run the same command again."
            )
        found = self._format.join(map(self._file, range(self._num_parts)), self.out)
        self._joined = True
        return found

    def _about(self) -> dict[str, object]:
        questions = {"questions": len(self.questions), "part": self.part, **self.questions.about}
        return {**self.predictor.about, **questions}

    def _check_folder(self, own: dict[str, object]) -> None:
        """Raise SettingError if the folder holds parts of another job, or other files."""
        if not self.folder.exists() or {file.name for file in self.folder.iterdir()} <= {LOCK}:
            return
        try:
            found = json.loads((self.folder / JOB).read_text(encoding="utf-8"))
            others = [key for key in {**found, **own} if found.get(key) != own.get(key)]
        except (OSError, ValueError, TypeError):
            raise SettingError(
                f"{self.out}: {self.folder} is needed for its parts but holds something else. Move that away, or "
                "choose another output."
            ) from None
        if others:
            differ = ", ".join(f"{key} {_short(found.get(key))}, now {_short(own.get(key))}" for key in others)
            raise SettingError(
                f"{self.out}: {self.folder} holds parts of another job ({differ}). Finish that with its own "
                "command, remove the folder, or choose another output."
            )

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:08}.part"

    def _size(self, number: int) -> int:
        return min(self.part, len(self.questions) - number * self.part)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:12]}…"
