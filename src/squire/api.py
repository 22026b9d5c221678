"""The public API: whatever a command does is one call here, with the same names."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from squire.core.files import ensure_creatable
from squire.core.processes import has_companions
from squire.core.progress import progress_bar
from squire.core.run_files import GRAPH, RECIPE, check_run, evaluation_files, fingerprints
from squire.errors import Interrupted, SettingError
from squire.graph.changes import Action, Change, load_changes, record_change
from squire.graph.graph import Graph
from squire.graph.loading import is_divided, load_graph
from squire.graph.triples import HOLDOUT
from squire.rules.mining import MiningOptions, mine_rules, mining_of
from squire.rules.ruleset import RuleSet

if TYPE_CHECKING:
    from typing import Unpack

    from squire.completion.doubts import DoubtfulFacts
    from squire.completion.predictions import Predictions
    from squire.evaluation.report import Evaluation
    from squire.ranking.context import Heads
    from squire.reasoning.answers import Answers
    from squire.reasoning.checks import FactCheck
    from squire.reasoning.connections import Connections
    from squire.reasoning.reasoner import RankedBy, Reasoner
    from squire.reasoning.reasons import Reasons

logger = logging.getLogger(__name__)


class SearchSettings(TypedDict, total=False):
    """Changes to the recipe's beam search."""

    beam: int | None  # paths kept at each step
    aggregate: Literal["sum", "max", "pool"] | None  # how the paths of an answer are scored


class PathSettings(SearchSettings, total=False):
    """Changes to the recipe's beam search that an evaluation may make."""

    prune: float | None  # drop paths below this share of the tenth new answer
    constraint: str | None  # the edges that paths may use: "graph", or the name or file of another graph
    edge_ends: bool | None  # a path always ends after the queried relation
    unlinked: bool | None  # leave out entities that have an edge with the head


# ------------------------------------------------------------------------------------------------- graphs


def fetch_dataset(name: str, *, progress: bool = True) -> Path:
    """Download a named benchmark and verify it, unless it is on this machine. Returns its folder."""
    from squire.graph.benchmarks import datasets

    with progress_bar(f"fetch {name}", progress, in_bytes=True) as bar:
        return datasets.fetch_dataset(name, progress=bar.stage)


# ------------------------------------------------------------------------------------------------- rules and paths


def mine(
    graph: Graph | str | Path, *, save_to: str | Path | None = None, progress: bool = True, **options: Any
) -> RuleSet:
    """Mine rules from the train split, and save them if a file is named. `options` are those of `MiningOptions`.

    After Ctrl-C, or when the time of `minutes` is up, the rules found so far are returned, with `complete` set to
    False. If they are saved, the same call later goes on from there: until all rules are found, what was mined is
    kept in a folder beside the file. Under torchrun, several processes share the work.

    >>> rules = squire.mine("world", length=2)
    """
    with _together() as leads:
        source = graph.name if isinstance(graph, Graph) else str(graph)
        graph, chosen = _graph(graph), MiningOptions(**options)
        done = None
        if save_to is not None:
            ensure_creatable(Path(save_to))
            done = mining_of(Path(save_to), graph.train, chosen)
        with progress_bar("mining", progress and leads) as bar:
            rules = RuleSet.from_mined(graph, mine_rules(graph.train, chosen, bar.stage, done), chosen, source)
        if save_to is not None and leads:
            rules.save(save_to)
        if done is not None and rules.complete:
            done.remove()
    return rules


def evaluate_rules(
    rules: RuleSet, *, split: str = "test", side: str = "tail", aggregate: str = "noisy-or", best: int = 5,
    progress: bool = True,
) -> Evaluation:  # fmt: skip
    """Rank a split's queries by rules alone, beside the tail frequency. `best` rules count for each answer."""
    from squire.evaluation.report import evaluate_rules

    with progress_bar("ranking", progress) as bar:
        return evaluate_rules(rules, split, side, aggregate, best, bar.stage)


def sample_paths(
    graph: Graph | str | Path, output: str | Path, *, rules: RuleSet | None = None, hops: int = 3, per_fact: int
    = 6, confidence: float = 0.01, seed: int = 0, threads: int | None = None, progress: bool = True,
) -> dict[str, int]:  # fmt: skip
    """Write evidence paths of every train fact and its inverse to a Parquet file: along rules first, then random.

    Rules below `confidence` are not followed. Returns the number of paths from each source.
    """
    from squire.paths.table import sample_to_file

    with progress_bar("sampling paths", progress) as bar:
        return sample_to_file(
            _graph(graph), Path(output), rules.rules if rules else None,
            hops=hops, per_fact=per_fact, confidence=confidence, seed=seed, threads=threads,
            progress=bar.of("sampling paths"),
        )  # fmt: skip


# ------------------------------------------------------------------------------------------------- runs


def train(
    graph: Graph | str | Path | None,
    folder: str | Path,
    *,
    recipe: str | Path = "auto",
    settings: Mapping[str, Any] | Sequence[str] = (),
    rules: RuleSet | None = None,
    minutes: float | None = None,
    device: str = "auto",
    resume: bool = False,
    fuse: bool = True,
    model: bool = True,
    holdout: float | None = None,
    missing: float | None = None,
    progress: bool = True,
) -> Run:
    """Learn from a graph: rules, the fusion, paths and the model, all kept in a run folder.

    recipe: a name, a TOML file, or "auto" to choose by the graph's size.
    settings: changes to the recipe, as {"train.epochs": 5}.
    minutes: time limit for training the model, or without a model for the fusion; `resume=True` continues later.
    fuse, model: leave out the fusion, or the model.
    holdout: the share of a single file that is set aside for validation, and as much for testing; 0.05 by default.
    Answers know these facts, too. With 0 nothing is set aside, and there is nothing to evaluate on.
    missing: the share of true facts that the graph is assumed to lack; see `fuse`.

    Ctrl-C saves and raises `Interrupted`. Under torchrun, several processes train together.

    >>> run = squire.train("world", "runs/world")
    """
    from squire.model.recipe import load_recipe, recipe_for
    from squire.ranking.fusion import FusionOptions
    from squire.training.pipeline import TrainingOptions, new_run, resumed_run, train_run

    folder, overrides = Path(folder), _overrides(settings)
    fusion = FusionOptions(missing=missing, minutes=None if model else minutes)
    options = TrainingOptions(rules.rules if rules else None, minutes, device, fuse, model, progress, fusion)
    if resume and (overrides or recipe != "auto" or rules or holdout is not None):
        raise SettingError("resume=True: the run keeps its recipe, settings, rules and splits. Leave them out.")
    if graph is None and not resume:
        raise SettingError("graph=None: name a graph, or resume a run.")

    def open_folder() -> Any:
        loaded = None if graph is None else _graph_to_train(graph, holdout)
        if resume:
            return resumed_run(folder, loaded)
        assert loaded is not None
        chosen = load_recipe(recipe_for(loaded.stats()) if recipe == "auto" else recipe, overrides)
        logger.info("recipe %s: %s", chosen.name, chosen.about)
        return new_run(folder, loaded, chosen)

    outcome = train_run(folder, open_folder, options)
    if outcome.interrupted:
        raise Interrupted(f"{outcome.message} Resume to continue.")
    run = Run(folder)
    run.is_finished = outcome.finished
    return run


def fuse(
    run: Run | str | Path, *, folds: int | None = None, edges: bool = True, names: bool = True,
    missing: float | None = None, minutes: float | None = None, seed: int = 0, progress: bool = True,
) -> Run:  # fmt: skip
    """Fit the fusion of a run: a ranker that weighs rules, frequency, similar entities, connections and names.

    folds: parts of train that are hidden in turn; by default 20.
    edges: also fit edge embeddings and weigh their opinion, unless the graph is large or the recipe has none.
    names: words that the names of entities share are evidence.
    missing: the share of true facts that the graph is assumed to lack, on which confidence depends. By default
    that of valid and test, at most 0.1.
    minutes: a time limit, within which fewer rules are mined and fewer questions asked if need be. `is_finished`
    is False then, and the next call goes on with the rules that were mined.
    Under torchrun, several processes share the work.
    """
    from squire.graph.folds import FOLDS, MAX_FOLDS
    from squire.ranking.fusion import FusionOptions
    from squire.training.pipeline import existing_run, fuse_run, is_unfinished

    if folds is not None and not 2 <= folds <= MAX_FOLDS:
        raise SettingError(f"folds={folds}: expected 2 to {MAX_FOLDS}.")
    folder = run.folder if isinstance(run, Run) else Path(run)
    options = FusionOptions(seed, folds or FOLDS, names, missing=missing, minutes=minutes)
    with _together() as leads, existing_run(folder) if leads else nullcontext():
        check_run(folder)
        with progress_bar("fusing", progress and leads) as bar:
            fuse_run(folder, options, bar.stage, edges=edges)
    fused = Run(folder)
    fused.is_finished = not is_unfinished(folder)
    return fused


def plot(runs: Sequence[Run | str | Path], output: str | Path | None = None) -> Path:
    """Draw loss and valid MRR of runs over the steps, beside the tail frequency. Returns the picture's file."""
    from squire.evaluation.plots import check_picture, draw, read_history

    folders = [run.folder if isinstance(run, Run) else Path(run) for run in runs]
    if output is None and len(folders) != 1:
        raise SettingError("output=None: name a file for the picture of several runs.")
    file = folders[0] / "curves.png" if output is None else Path(output)
    check_picture(file)
    histories = [read_history(folder) for folder in folders]
    ensure_creatable(file)
    draw(histories, file)
    return file


class Run:
    """A run folder: a graph and what was learned from it. Loads what it needs when it is needed.

    >>> run = squire.Run("runs/world")
    >>> run.answer("Austria", "official language")
    """

    def __init__(self, folder: str | Path, device: str = "cpu") -> None:
        self.folder, self.device = Path(folder), device
        self.is_finished = True  # False after `train` or `fuse` has stopped before the end
        check_run(self.folder)

    @cached_property
    def graph(self) -> Graph:
        """The graph, with all splits and with what was added and removed after training."""
        return load_changes(self.folder).apply(self._base)

    @property
    def _base(self) -> Graph:
        """The graph of the training."""
        return Graph.load(self.folder / GRAPH)

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """The settings of the run, by section."""
        content: dict[str, Any] = json.loads((self.folder / RECIPE).read_text(encoding="utf-8"))
        return content

    @property
    def is_trained(self) -> bool:
        """Whether the run has a model."""
        from squire.model.recipe import has_model

        return has_model(self.folder)

    @property
    def is_fused(self) -> bool:
        """Whether the run has a fusion, which ranks answers and gives their confidence."""
        from squire.ranking.fusion_file import has_fusion

        return has_fusion(self.folder)

    @cached_property
    def reasoner(self) -> Reasoner:
        """The loaded model and fusion."""
        from squire.reasoning.reasoner import Reasoner

        return Reasoner.load(self.folder, self.device)

    def answer(
        self,
        head: str | None,
        relation: str,
        tail: str | None = None,
        *,
        k: int = 10,
        grounded: bool = False,
        new_only: bool = False,
        ranking: RankedBy | None = None,
        facts: Any = (),
        among: Sequence[str] | str | Path | None = None,
        type: str | None = None,
        not_linked: bool = False,
        **search: Unpack[SearchSettings],
    ) -> Answers:
        """Answer (head, relation, ?), or (?, relation, tail) if `head` is None, with evidence.

        The facts of all splits are known: those that answer the question are in `facts`, the others are evidence.
        The k best candidates that are not in the graph are the answers.

        grounded: use known edges only. new_only: leave out the facts.
        ranking: "fused", the default if the run has a fusion, or "paths", the paper's ranking.
        facts: what if these were true? Rows of labels, a frame or a file, for this question only.
        among: whom an answer may be: labels, or a file with one per line. type: only entities that have this value
        of a relation like `is a`, or occur where such entities do. not_linked: only entities without a fact that
        links them to the one asked about. Confidence stays that of the fact; ranks are among these.
        """
        from squire.reasoning.restrictions import restrict

        reasoner = self.reasoner.supposing(facts)
        restriction = restrict(reasoner.graph, reasoner.run.facts, among, type, not_linked)
        return reasoner.answer(
            head, relation, tail, k=k, grounded=grounded, new_only=new_only, ranking=ranking,
            restriction=restriction, **search,
        )  # fmt: skip

    def check(self, head: str, relation: str, tail: str, *, beam: int | None = None, facts: Any = ()) -> FactCheck:
        """How likely a fact is, the evidence for it and what speaks against it. Needs a fusion.

        A fact of the graph is judged as if it were not there.

        beam: paths kept at each step, if the run has a model. facts: as for `answer`.

        >>> squire.Run("runs/world").check("France", "borders", "Mexico")
        """
        from squire.reasoning.checks import check_fact

        return check_fact(self.reasoner.supposing(facts), head, relation, tail, beam)

    def add(self, facts: Any, *, refresh_rules: bool = False, progress: bool = True) -> Change:
        """Add facts to the graph, without training. Entities may be new; relations must be those of the graph.

        facts: rows of (head, relation, tail), a frame, or a file of any format that `load_graph` reads. If one of
        them is wrong, nothing is changed, and the error says where.
        refresh_rules: also mine the rules again. Otherwise they keep their counts.

        `train` with `resume=True` learns what has changed.

        >>> run = squire.Run("runs/world")
        >>> run.add([("Freedonia", "borders", "Austria"), ("Freedonia", "in region", "Europe")])
        """
        return self._change("add", facts, refresh_rules, progress)

    def remove(self, facts: Any, *, refresh_rules: bool = False, progress: bool = True) -> Change:
        """Remove facts from the graph, as `add` adds them. All must be in the graph.

        >>> squire.Run("runs/world").remove([("Austria", "borders", "Italy")])
        """
        return self._change("remove", facts, refresh_rules, progress)

    def _change(self, action: Action, facts: Any, refresh: bool, progress: bool) -> Change:
        from squire.training.changes import check_refreshable, refresh_rules

        if refresh:
            check_refreshable(self.folder)
        change = record_change(self.folder, self._base, action, facts)
        self.__dict__.pop("graph", None)
        if refresh:
            with progress_bar("mining", progress) as bar:
                refresh_rules(self.folder, bar.stage)
            self.__dict__.pop("reasoner", None)
        elif "reasoner" in self.__dict__:
            self.reasoner = self.reasoner.changed(load_changes(self.folder))
        return change

    def connect(self, first: str, second: str, *, hops: int = 3, facts: Any = ()) -> Connections:
        """How two entities are connected: paths by relation pattern, most telling first, and what they suggest.

        hops: facts in a path, at most 3. facts: as for `answer`. Needs no model.

        >>> squire.Run("runs/world").connect("Austria", "Germany")
        """
        from squire.reasoning.connections import find_connections

        return find_connections(self.reasoner.supposing(facts), first, second, hops=hops)

    def why(self, head: str, relation: str, tail: str, *, facts: Any = ()) -> Reasons:
        """What an answer hangs on: its confidence without each fact, and what is behind its sources.

        The facts are really left out, so `remove` leads to the same figures. facts: as for `answer`. Needs a
        fusion.

        >>> squire.Run("runs/world").why("Niger", "official language", "French")
        """
        from squire.reasoning.reasons import find_reasons

        return find_reasons(self.reasoner.supposing(facts), head, relation, tail)

    def doubt(
        self,
        output: str | Path | None = None,
        *,
        relations: Sequence[str] | None = None,
        entity: str | None = None,
        most: int | None = None,
        k: int = 1000,
        seed: int = 0,
        force: bool = False,
        progress: bool = True,
    ) -> DoubtfulFacts:
        """The k least likely facts of the graph, each judged as if it were not there. Needs a fusion.

        output: a .tsv or .parquet file to write, which may be compressed. force: replace it if it exists.
        relations: judge facts of these only. entity: judge facts of this one only. most: judge so many, drawn by
        the seed. seed: of the parts that are left out together, too.

        >>> squire.Run("runs/world").doubt("suspects.tsv", relations=["currency"], k=20)
        """
        from squire.completion.doubts import check_output, doubt_facts

        if output is not None:
            _refuse_existing(Path(output), force)
            check_output(Path(output))
        with progress_bar("judging facts", progress) as bar:
            found = doubt_facts(
                self.reasoner, k=k, relations=relations, entity=entity, most=most, seed=seed, progress=bar.stage
            )
        if output is not None:
            found.save(output)
        return found

    def evaluate(
        self,
        *,
        split: str = "test",
        side: str = "tail",
        ranking: RankedBy | None = None,
        weights: str = "best",
        sample: int | None = None,
        seed: int = 0,
        evidence: bool = True,
        graph: Graph | str | Path | None = None,
        progress: bool = True,
        **search: Unpack[PathSettings],
    ) -> Evaluation:
        """Filtered MRR and Hits on a split, beside rules and tail frequency; kept in the run folder.

        side: "tail", as in the paper, or "both". weights: those of the "best" epoch, or the "last".
        sample: rank only so many queries, drawn by `seed`. evidence: grade the evidence of some answers.
        graph: rank a split of this graph instead, whose train facts are known. It has the same relations and other
        entities, so rules with constants and the model have no say.
        Under torchrun, several processes share the questions.
        """
        from squire.evaluation.inductive import evaluate_on
        from squire.evaluation.report import EvaluationOptions, evaluate_run

        options = EvaluationOptions(split, side, ranking, weights, sample, seed, evidence, _given(search))
        with _together() as leads, progress_bar("loading", progress and leads) as bar:
            if graph is not None:
                return evaluate_on(self.folder, _graph(graph), options, bar.stage)
            return evaluate_run(self.folder, options, bar.stage)

    def complete(
        self,
        output: str | Path | None = None,
        *,
        relations: Sequence[str] | None = None,
        heads: Heads | None = None,
        queries: str | Path | None = None,
        k: int = 3,
        min_score: float = 0.0,
        precision: float | None = None,
        ranking: RankedBy | None = None,
        grounded: bool = False,
        among: Sequence[str] | str | Path | None = None,
        type: str | None = None,
        not_linked: bool = False,
        force: bool = False,
        device: str | None = None,
        progress: bool = True,
        **search: Unpack[SearchSettings],
    ) -> Predictions:
        """Predict missing facts in bulk, each with the path that supports it.

        output: a .parquet, .tsv or .nt file; without one the predictions are returned in memory.
        relations: ask for these only. heads: whom to ask: "known" (those that have the relation), "typical" (also
        entities like them; the default), or "all". queries: a TSV file of questions instead.
        k: answers per question. precision: keep answers of which this share should be true.
        among, type, not_linked: whom an answer may be, as in `answer`.

        After Ctrl-C or a crash, the same call continues.
        """
        from squire.completion.jobs import CompletionOptions, complete_run

        options = CompletionOptions(
            relations, heads, Path(queries) if queries else None, k, min_score, precision, ranking, grounded,
            _given(search), among, type, not_linked,
        )  # fmt: skip
        file = self.folder / "predictions.parquet" if output is None else Path(output)
        if output is not None:
            _refuse_existing(file, force)
        predictions = complete_run(self.folder, file, options, device or self.device, progress)
        if output is None:
            predictions = predictions.in_memory()
            file.unlink()
        return predictions

    def evaluations(self, of: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """The evaluations kept in the run folder, as JSON.

        `outdated` is True for those of a model or a fusion that has been replaced since. of: compare with these
        fingerprints, such as `Reasoner.fingerprints`, instead of those in the folder.
        """
        current, found = fingerprints(self.folder) if of is None else of, []
        for file in evaluation_files(self.folder):
            try:
                content = json.loads(file.read_text(encoding="utf-8"))
                content["rows"], content.get("step")
                # Without fingerprints, from an earlier version, nobody knows which model it was.
                of_these = content.get("fingerprints", {"": "unknown"})
                content["outdated"] = not of_these.items() <= current.items()
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                logger.warning("%s: not a result of `squire evaluate` (%s)", file, error)
            else:
                found.append(content)
        return found

    def plot(self, output: str | Path | None = None) -> Path:
        """Draw the training curves. Returns the picture's file."""
        return plot([self], output)

    def serve(self, **options: Any) -> None:
        """Serve this run over HTTP, with a page; see `squire.serve`."""
        import squire

        squire.serve([self], **options)

    def __repr__(self) -> str:
        parts = [name for name, there in (("fusion", self.is_fused), ("model", self.is_trained)) if there]
        about = " and ".join(parts) or "nothing trained yet"
        return f"Run({str(self.folder)!r}, graph {self.graph.name!r}, {about})"


def _together() -> AbstractContextManager[bool]:
    """Loops of the body are shared by the processes that torchrun started; gives whether this one leads."""
    if not has_companions():
        return nullcontext(True)
    from squire.core.team import together

    return together()


def _graph(graph: Graph | str | Path) -> Graph:
    if isinstance(graph, Graph):
        return graph
    if isinstance(graph, str | Path):
        return load_graph(graph)
    raise SettingError(f"graph={graph!r}: expected a Graph, a file, or a dataset's name.")


def _graph_to_train(graph: Graph | str | Path, holdout: float | None) -> Graph:
    """The graph; a single file is divided."""
    if isinstance(graph, Graph) or not is_divided(graph):
        if holdout is not None:
            raise SettingError(f"holdout={holdout:g}: this graph has its splits; only a single file is divided.")
        return _graph(graph)
    share = HOLDOUT[0] if holdout is None else holdout
    if not 0 <= share < 0.5:
        raise SettingError(f"holdout={share:g}: expected a share from 0 to less than 0.5.")
    loaded = load_graph(graph, holdout=(share, share))
    if len(loaded.valid) + len(loaded.test):
        part = f"{100 * share:g} %"
        say = "Set aside %s for validation and %s for testing; they count as facts when you ask."
        logger.info(say, part, part)
    return loaded


def _refuse_existing(output: Path, force: bool) -> None:
    if output.exists() and not force:
        raise SettingError(f"output={str(output)!r}: exists. Choose another name, or force=True to replace it.")


def _overrides(settings: Mapping[str, Any] | Sequence[str]) -> list[str]:
    """Settings as `key=value` strings, with TOML values."""
    if isinstance(settings, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in settings.items()]
    return list(settings)


def _given(search: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in search.items() if value is not None}
