"""Training: steps, checkpoints, watching valid. A run can be stopped at any moment and goes on as if it never was.

The order of batches depends on seed, epoch and position alone, the learning rate on the step, dropout on seed,
step and process; so a checkpoint of weights, optimizer and position is all that a run is, and another number of
processes may go on with it. Each has the whole model and a share of every batch; the leader alone writes and
validates. Iterative training is a row of such trainings, each on more paths than the one before (`iterate`).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from squire.core.files import replacing
from squire.core.processes import interruptions
from squire.core.run_files import BEST, LAST, METRICS, START, TENSORBOARD, tries_file
from squire.core.team import ALONE, Team
from squire.core.tensors import TensorFile, load_checkpoint, save_checkpoint
from squire.core.version import __version__
from squire.errors import TrainingError
from squire.evaluation.paths import rank_by_paths
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph
from squire.model.batches import Batch, Batches, Masking
from squire.model.decoder import TransformerDecoder
from squire.model.negative_sampling import NegativeSampler
from squire.model.recipe import Recipe
from squire.model.transformer import Transformer
from squire.paths.tries import Tries
from squire.search.options import DecodingOptions, SearchEdges
from squire.search.trained import new_model
from squire.training.checkpoints import load_optimizer, optimizer_tensors
from squire.training.iterative import Gathering
from squire.training.preparation import Stage
from squire.training.schedule import Phase, learning_rate, phases
from squire.training.tensorboard import Curves

SAVE_SECONDS = 300.0


@dataclass(frozen=True)
class Moment:
    """Where training stands: what a display shows."""

    step: int
    total_steps: int  # at the end of this iteration
    iteration: int
    epoch: int
    loss: float
    nodes_per_second: float
    valid_mrr: float | None


Watch = Callable[[Moment], None]


@contextmanager
def _no_denormals() -> Iterator[None]:
    """Gradients of a large softmax underflow, and denormals are slow. A state of the processor, so put back."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


class _Loss(nn.Module):
    """The loss of a batch as what a module does: the form in which processes share gradients."""

    def __init__(self, model: Transformer, smoothing: float) -> None:
        super().__init__()
        self.model, self.smoothing = model, smoothing

    def forward(self, batch: Batch) -> Tensor:
        # bfloat16 halves what a GPU moves; a CPU without units for it would only lose digits.
        on = batch.tokens.device.type
        with torch.autocast(on, torch.bfloat16, enabled=on == "cuda"):
            return self.model.loss(batch, self.smoothing)


class Trainer:
    """One run: a model, its optimizer, its data, and the folder that holds it all."""

    def __init__(self, graph: Graph, recipe: Recipe, tries: Tries, folder: Path, team: Team = ALONE) -> None:
        torch.manual_seed(recipe.train.seed)  # the first weights, the same in every process
        self.graph, self.recipe, self.folder, self.team = graph, recipe, folder, team
        train = recipe.train
        self.model = new_model(graph, recipe).to(team.device)
        self._loss = team.join(_Loss(self.model, train.smoothing))
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=train.learning_rate, weight_decay=train.weight_decay, fused=True
        )
        self._negatives = NegativeSampler.from_adjacency(graph.train, train.sampled_entities)
        self.step = self.epoch = self.position = 0
        self.best_mrr: float | None = None
        self.interrupted = False  # by Ctrl-C, not by a time limit: whoever trains several runs in a row should end
        self._mrr: float | None = None
        self.phases = phases(recipe)
        self._begin(self.phases[0], tries)

    def _begin(self, phase: Phase, tries: Tries) -> None:
        """Train on these trees from here on; here may be anywhere in the phase."""
        train = self.recipe.train
        masking = Masking(train.mask_probability, train.mask_with == "random")
        self.phase = phase
        self.batches = Batches(tries, self.model.vocab, train.batch_nodes, masking, train.seed, self._negatives)
        steps = [self.batches.num_batches(epoch) for epoch in range(phase.first_epoch, phase.last_epoch)]
        self.first_step = self.step - self.position - sum(steps[: self.epoch - phase.first_epoch])
        self.total_steps = self.first_step + sum(steps)

    def save(self, name: str = LAST, folder: Path | None = None) -> None:
        """Everything that the run is, at this moment."""
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
        """Go back to the last checkpoint, or to the one before it if that is damaged (then it has a warning)."""
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

    def fit(self, watch: Watch, minutes: float | None = None, stage: Stage = lambda *_: None) -> bool:
        """Train to the end, for so many minutes, or until Ctrl-C; saved in any case. Gives whether it is done.

        In a team all stop when one is asked to; `watch` is told of the leader's moments only, `stage` of how far
        the gathering of new paths is.
        """
        ends = math.inf if minutes is None else time.monotonic() + 60 * minutes
        if self.step == 0:
            self.save()
        board = Curves(self.folder / TENSORBOARD, self.step, wanted=self.team.leads)
        # torchrun passes Ctrl-C on to processes that the terminal has told already: they may hear it twice.
        with interruptions(patient=self.team.launched) as interrupted, board as curves, _no_denormals():

            def should_stop() -> bool:
                return self.team.any(bool(interrupted) or time.monotonic() >= ends)

            while self.epoch < self.phases[-1].last_epoch:
                if not (self._enter_phase(stage, should_stop) and self._finish_epoch(watch, should_stop, curves)):
                    self.save()
                    self.interrupted = bool(interrupted)
                    return False
                self.epoch, self.position = self.epoch + 1, 0
                if self.team.leads:
                    self._validate(curves)
                self.save()
        return True

    def _enter_phase(self, stage: Stage, should_stop: Callable[[], bool]) -> bool:
        """Be in the phase of this epoch, with its paths. Gives False if it had to stop while gathering them."""
        phase = next(phase for phase in self.phases if self.epoch < phase.last_epoch)
        if phase == self.phase:
            return True
        if (self.epoch, self.position) == (phase.first_epoch, 0):
            gathering = Gathering(self.graph, self.recipe, self.folder, phase.iteration, self.team)
            self._start_from(gathering.folder)
            if not gathering.make(self.model, stage, should_stop):
                return False
        self._begin(phase, Tries.load(tries_file(self.folder, phase.iteration)))
        return True

    def _start_from(self, folder: Path) -> None:
        """Go on from the state that ended the phase before, which is kept.

        So whoever comes here again gathers the same paths, be it with weights that another number of processes has
        rounded otherwise.
        """
        with self.team.leader_first():
            if not any(folder.glob(f"{START}.*")):
                self.save(START, folder)
        self._restore(load_checkpoint(folder, START))

    def _finish_epoch(self, watch: Watch, should_stop: Callable[[], bool], curves: Curves) -> bool:
        """The batches that are left of this epoch. Gives False if it had to stop before the end."""
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
            rate = learning_rate(done, steps, self.phase.peak, self.recipe.train.warmup)
            loss = self._update(batch, rate)
            self.step, self.position = self.step + 1, self.position + 1
            if self.team.leads:
                speed = batch.tokens.numel() / max(time.monotonic() - began, 1e-9)  # of all processes
                self._log({"loss": loss, "nodes_per_second": round(speed)})
                curves.add(self.step, loss=loss, learning_rate=rate, nodes_per_second=speed)
                now = self.step, self.total_steps, self.phase.iteration, self.epoch
                watch(Moment(*now, loss, speed, self._mrr))
        return True

    def _update(self, batch: Batch, rate: float) -> float:
        """One step: loss, gradient, clip, Adam. Gives the loss of the whole batch."""
        train = self.recipe.train
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        self.team.seed(train.seed, self.step)  # dropout
        loss = self._loss(batch.shard(self.team.rank, self.team.size).to(self.team.device))
        value = self.team.total(loss.item())
        if not math.isfinite(value):
            raise TrainingError(
                f"the loss is {value} at step {self.step}. The last good state is "
                f"{self.folder / LAST}.safetensors. To do: begin again with a lower train.learning_rate."
            )
        self.team.backward(loss)
        if train.clip:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), train.clip)
        self.optimizer.step()
        return value

    def _validate(self, curves: Curves) -> None:
        """Watch valid, and keep the best weights by it."""
        if not len(self.graph.valid):
            return
        train = self.recipe.train
        # Not even as a filter may test have a say in what is kept.
        seen = ("train", "valid")
        known = SearchEdges.from_adjacency(self.graph.train, self.team.device)
        query_set = QuerySet.from_graph(
            self.graph, "valid", filter_splits=seen, sample=train.valid_queries, seed=train.seed
        )
        decoding = DecodingOptions.from_recipe(
            self.recipe, known, beam=min(train.valid_beam, self.recipe.decode.beam)
        )
        ranking = rank_by_paths(TransformerDecoder(self.model), self.graph, query_set, decoding, train.seed)
        metrics = ranking.metrics(intervals=False)
        self._mrr = metrics.mrr
        self._log({"valid": metrics.as_dict()})
        curves.add(self.step, valid_mrr=metrics.mrr)
        if self.best_mrr is None or metrics.mrr > self.best_mrr:
            self.best_mrr = metrics.mrr
            self.save(BEST)

    def _log(self, numbers: dict[str, Any]) -> None:
        line = {"step": self.step, "iteration": self.phase.iteration, "epoch": self.epoch, **numbers}
        with (self.folder / METRICS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _forget_metrics_after(self, step: int) -> None:
        """Decoder that will be done again leave no trace of the first time."""
        file = self.folder / METRICS
        if file.exists():
            lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
            kept = [line for line in lines if json.loads(line)["step"] <= step]
            with replacing(file) as temporary:
                temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
