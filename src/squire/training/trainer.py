"""The training loop: steps, checkpoints and validation. A run can be stopped and resumed at any step.

The order of batches depends on seed, epoch and position, the learning rate on the step, and dropout on seed,
step and process. So a checkpoint holds weights, optimizer and position, and any number of processes can resume
it. Each process has the whole model and a share of every batch; only the leader writes and validates. Iterative
training is a sequence of such trainings, each on more paths than the one before (`iterative`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from squire.core import __version__
from squire.core.files import replacing
from squire.core.processes import interruptions
from squire.core.progress import Progress, no_progress
from squire.core.run_files import BEST, LAST, METRICS, START, tries_file
from squire.core.team import ALONE, Team
from squire.core.tensors import TensorFile, load_checkpoint, save_checkpoint
from squire.errors import CheckpointError, TrainingError
from squire.evaluation.paths import rank_by_paths
from squire.evaluation.queries import QuerySet
from squire.graph.folds import pairs_look_unlinked
from squire.graph.graph import Graph
from squire.model.batches import Batch, Batches, Masking
from squire.model.decoder import TransformerDecoder
from squire.model.fact_batches import FactBatches, Interleaved
from squire.model.negative_sampling import NegativeSampler
from squire.model.precision import training_precision
from squire.model.recipe import Recipe
from squire.model.transformer import Transformer
from squire.paths.tries import Tries
from squire.rules.anyburl import read_run_rules
from squire.rules.rules import Rules
from squire.search.options import DecodingOptions, SearchEdges
from squire.search.trained import new_model, seen_graph
from squire.training.edges import EdgeFit, with_best_penalty
from squire.training.iterative import PathCollection
from squire.training.preparation import sample_again
from squire.training.schedule import Phase, learning_rate, phases

SAVE_SECONDS = 300.0


@dataclass(frozen=True)
class TrainingState:
    """How far training is, for a display."""

    step: int
    total_steps: int  # at the end of this iteration
    iteration: int
    epoch: int
    loss: float
    nodes_per_second: float
    valid_mrr: float | None


OnStep = Callable[[TrainingState], None]


@contextmanager
def _no_denormals() -> Iterator[None]:
    """Flush denormals to zero, since gradients of a large softmax underflow and denormals are slow."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


class _Loss(nn.Module):
    """The loss of a batch as a module, which DistributedDataParallel needs."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> Tensor:
        with training_precision(batch.tokens.device, self.model.config.dim):
            return self.model.loss(batch, self.smoothing)


class Trainer:
    """Trains the model of one run: model, optimizer, data and run folder."""

    def __init__(self, graph: Graph, recipe: Recipe, tries: Tries, folder: Path, team: Team = ALONE) -> None:
        torch.manual_seed(recipe.train.seed)  # initial weights, the same in every process
        self.graph, self.recipe, self.folder, self.team = graph, recipe, folder, team
        self.seen = seen_graph(graph, recipe)  # nothing else reaches the model
        train = recipe.train
        self.model = new_model(graph, recipe).to(team.device)
        self._loss = team.join(_Loss(self.model, train.smoothing))
        self.optimizer = torch.optim.AdamW(
            [parameter for parameter in self.model.parameters() if parameter.requires_grad],
            lr=train.learning_rate,
            weight_decay=train.weight_decay,
            fused=True,
        )
        self._negatives = NegativeSampler.from_adjacency(self.seen.train, train.sampled_entities)
        self.step = self.epoch = self.position = 0
        self.best_mrr: float | None = None
        self.interrupted = False  # by Ctrl-C rather than by the time limit
        self._mrr: float | None = None
        self.phases = phases(recipe)
        self._begin(self.phases[0], tries)

    def _begin(self, phase: Phase, tries: Tries) -> None:
        """Train on these trees from the current position on."""
        self.phase = phase
        self.batches = self._batches(tries)
        # With new paths in each epoch, the other epochs have about as many batches as this one.
        steps = [self.batches.num_batches(epoch) for epoch in range(phase.first_epoch, phase.last_epoch)]
        self.first_step = self.step - self.position - sum(steps[: self.epoch - phase.first_epoch])
        self.total_steps = self.first_step + sum(steps)

    def _batches(self, tries: Tries) -> Interleaved:
        train, vocab = self.recipe.train, self.model.vocab
        masking = Masking(train.mask_probability, train.mask_with == "random")
        nodes, seed, negatives = train.batch_nodes, train.seed, self._negatives
        return Interleaved(
            [
                Batches(tries, vocab, nodes, masking, seed, negatives),
                FactBatches(self.seen.train, vocab, nodes, train.fact_passes, seed, negatives),
            ]
        )

    def save(self, name: str = LAST, folder: Path | None = None) -> None:
        """Write a checkpoint of the current state."""
        if not self.team.leads:
            return
        parts = {
            "model.": dict(self.model.state_dict()),
            "optimizer.": optimizer_tensors(self.optimizer, dict(self.model.named_parameters())),
        }
        arrays = {
            prefix + key: tensor.detach().cpu().numpy()
            for prefix, part in parts.items()
            for key, tensor in part.items()
        }
        save_checkpoint(folder or self.folder, name, arrays, self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "recipe": self.recipe.to_dict(),
            "step": self.step,
            "iteration": self.phase.iteration,
            "epoch": self.epoch,
            "position": self.position,
            "valid_mrr": self._mrr,
            "best_mrr": self.best_mrr,
            "versions": {"squire": __version__, "torch": torch.__version__},
        }

    def resume(self) -> TensorFile:
        """Load the last checkpoint, or the previous one, with a warning, if it is damaged."""
        checkpoint = load_checkpoint(self.folder, LAST, fallback=True)
        self._restore(checkpoint)
        if self.team.leads:
            self._forget_metrics_after(self.step)
        return checkpoint

    def _restore(self, checkpoint: TensorFile) -> None:
        model, optimizer = (
            {name: torch.from_numpy(array) for name, array in checkpoint.part(prefix).items()}
            for prefix in ("model.", "optimizer.")
        )
        self.model.load_state_dict(model)
        load_optimizer(self.optimizer, dict(self.model.named_parameters()), optimizer)
        self.step, self.epoch, self.position = (checkpoint.state[key] for key in ("step", "epoch", "position"))
        self._mrr, self.best_mrr = checkpoint.state["valid_mrr"], checkpoint.state["best_mrr"]

    def fit(self, on_step: OnStep, minutes: float | None = None, progress: Progress = no_progress) -> bool:
        """Train to the end, for some minutes, or until Ctrl-C, and save. Returns whether training is finished.

        If one process has to stop, all do. `on_step` is called in the leader only; `progress` shows how far the
        collection of new paths is.
        """
        ends = math.inf if minutes is None else time.monotonic() + 60 * minutes
        if self.step == 0:
            self.save()
        # torchrun forwards Ctrl-C to processes that already got it from the terminal, so it may arrive twice.
        with interruptions(patient=self.team.launched) as interrupted, _no_denormals():

            def must_stop() -> bool:
                return bool(interrupted) or time.monotonic() >= ends

            def should_stop() -> bool:
                return self.team.any(must_stop())

            if self.step == 0 and not self._fit_edges(progress, must_stop):
                self.interrupted = bool(interrupted)
                return False
            while self.epoch < self.phases[-1].last_epoch:
                if not (self._enter_phase(progress, should_stop) and self._finish_epoch(on_step, should_stop)):
                    self.save()
                    self.interrupted = bool(interrupted)
                    return False
                self.epoch, self.position = self.epoch + 1, 0
                if self.team.leads:
                    self._validate()
                self.save()
        return True

    def _fit_edges(self, progress: Progress, must_stop: Callable[[], bool]) -> bool:
        """Fit the edge embeddings, if the model has any. Returns False if stopped before the end.

        The leader fits them; the others only load what it has saved.
        """
        if self.model.edges is None:
            return True
        facts, unfinished = self.seen.train, True
        with self.team.leader_first():
            stop = must_stop if self.team.leads else lambda: True
            recipe = with_best_penalty(self.graph, facts, self.recipe, self.folder, progress, stop)
            if recipe:
                fit = EdgeFit(self.graph, facts, recipe, self.folder)
                unfinished = not fit.fit(progress, stop)
                self.model.edges.load_state_dict(fit.edges.state_dict())
        return not self.team.any(unfinished)

    def _enter_phase(self, progress: Progress, should_stop: Callable[[], bool]) -> bool:
        """Start the phase of this epoch, with its paths. Returns False if stopped while collecting them."""
        phase = next(phase for phase in self.phases if self.epoch < phase.last_epoch)
        if self.recipe.paths.fresh and not self.recipe.train.iterate and self.epoch:
            with self.team.leader_first():
                tries = sample_again(self.graph, self.recipe, self.folder, self.epoch, progress)
            self._begin(phase, tries)
            return True
        if phase == self.phase:
            return True
        if (self.epoch, self.position) == (phase.first_epoch, 0):
            collection = PathCollection(self.seen, self.recipe, self.folder, phase.iteration, self.team)
            self._start_from(collection.folder)
            if not collection.collect(self.model, progress, should_stop):
                return False
        self._begin(phase, Tries.load(tries_file(self.folder, phase.iteration)))
        return True

    def _start_from(self, folder: Path) -> None:
        """Continue from the checkpoint that ended the previous phase.

        It is kept, so that a resumed run collects the same paths even if another number of processes rounds the
        weights differently.
        """
        with self.team.leader_first():
            if not any(folder.glob(f"{START}.*")):
                self.save(START, folder)
        self._restore(load_checkpoint(folder, START))

    def _finish_epoch(self, on_step: OnStep, should_stop: Callable[[], bool]) -> bool:
        """Train on the remaining batches of this epoch. Returns False if stopped before the end."""
        self.model.train()
        saved = time.monotonic()
        for batch in self.batches.epoch(self.epoch, self.position):
            if should_stop():
                return False
            began = time.monotonic()
            if began - saved >= SAVE_SECONDS:
                self.save()
                saved = began
            done, steps = self.step - self.first_step, self.total_steps - self.first_step
            rate = learning_rate(done, steps, self.phase.learning_rate, self.recipe.train.warmup)
            loss = self._update(batch, rate)
            self.step, self.position = self.step + 1, self.position + 1
            if self.team.leads:
                speed = batch.tokens.numel() / max(time.monotonic() - began, 1e-9)  # of all processes
                self._log({"loss": loss, "nodes_per_second": round(speed)})
                now = self.step, self.total_steps, self.phase.iteration, self.epoch
                on_step(TrainingState(*now, loss, speed, self._mrr))
        return True

    def _update(self, batch: Batch, rate: float) -> float:
        """One optimizer step. Returns the loss of the whole batch."""
        train = self.recipe.train
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        self.team.seed(train.seed, self.step)  # dropout
        loss = self._loss(batch.shard(self.team.rank, self.team.size).to(self.team.device))
        value = self.team.total(loss.item())
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss is {value} at step {self.step}. The last good checkpoint is "
                f"{self.folder / LAST}.safetensors. Train again with a lower train.learning_rate."
            )
        self.team.backward(loss)
        if train.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)
        self.optimizer.step()
        return value

    def _validate(self) -> None:
        """Rank queries of valid, and keep the best weights."""
        if not len(self.graph.valid):
            return
        train = self.recipe.train
        # Test must not influence the choice of weights, not even as a filter.
        seen = ("train", "valid")
        known = SearchEdges(self.graph.train, self.team.device)
        query_set = QuerySet.from_graph(
            self.graph, "valid", filter_splits=seen, sample=train.valid_queries, seed=train.seed
        )
        rules = read_run_rules(self.folder, self.graph.labels) or Rules.empty(self.graph.num_relations)
        beam = min(train.valid_beam, self.recipe.decode.beam)
        decoding = DecodingOptions.from_recipe(
            self.recipe, known, beam=beam, patterns=rules.patterns, unlinked=pairs_look_unlinked(self.graph)
        )
        ranking = rank_by_paths(TransformerDecoder(self.model), self.graph, query_set, decoding, train.seed)
        metrics = ranking.metrics(intervals=False)
        self._mrr = metrics.mrr
        self._log({"valid": metrics.as_dict()})
        if self.best_mrr is None or metrics.mrr > self.best_mrr:
            self.best_mrr = metrics.mrr
            self.save(BEST)

    def _log(self, numbers: dict[str, Any]) -> None:
        line = {"step": self.step, "iteration": self.phase.iteration, "epoch": self.epoch, **numbers}
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _forget_metrics_after(self, step: int) -> None:
        """Drop the metrics of steps that will be repeated."""
        file = self.folder / METRICS
        if file.exists():
            lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
            kept = [line for line in lines if json.loads(line)["step"] <= step]
            with replacing(file) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


# ------------------------------------------------------------------------------------------------- optimizer state


def optimizer_tensors(optimizer: Optimizer, names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of Adam or AdamW for each parameter, as NAME.step, NAME.exp_avg, NAME.exp_avg_sq.

    `names` is `dict(model.named_parameters())`. Learning rates are not included: they follow from the recipe and
    the step.
    """
    return {
        f"{name}.{slot}": value
        for name, parameter in names.items()
        for slot, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(optimizer: Optimizer, names: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `optimizer_tensors`, for an optimizer of the same parameters, in any order, on any device."""
    slots: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, slot = key.rpartition(".")
        _check_slot(key, tensor, names.get(name))
        slots.setdefault(name, {})[slot] = tensor.clone()
    name_of = {parameter: name for name, parameter in names.items()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: slots[name_of[parameter]]
        for number, parameter in enumerate(parameters)
        if name_of[parameter] in slots
    }
    # torch moves each slot to the right device, and numbers parameters in the order of the groups.
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _check_slot(key: str, tensor: Tensor, parameter: Tensor | None) -> None:
    if parameter is None:
        raise CheckpointError(f"optimizer state {key!r} belongs to no parameter of this model. {_OTHER_MODEL}")
    if tensor.dim() and tensor.shape != parameter.shape:
        raise CheckpointError(
            f"optimizer state {key!r} has shape {tuple(tensor.shape)}, its parameter {tuple(parameter.shape)}. "
            f"{_OTHER_MODEL}"
        )


_OTHER_MODEL = "Resume with the recipe and the graph that the run started with."
