"""Several processes that train one model, or complete one graph: who they are, what they share, how they agree.

The only room that knows ranks and world sizes. `torchrun` starts the processes and tells each its place in the
environment; without it a team is one process, no group is made, and meetings are over before they begin. What is
trained, and from which files, is not known here.

The rule that keeps a team alive: all of it meets at the same places in the same order. Whoever fails leaves with a
message of its own; the others notice at the next meeting that the line is dead, and leave too.

All this has run on gloo only. There was no GPU to try: CUDA and NCCL are used as their manual says, unseen.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from squire.errors import SettingError, TrainingError

DEVICES = ("auto", "cpu", "cuda")
CPU = torch.device("cpu")
PATIENCE = timedelta(days=1)  # others wait while the leader mines or validates; who is gone is noticed at once


@dataclass(frozen=True)
class Team:
    """This process among those that train together. The leader, of rank 0, writes, prints and validates."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU

    @property
    def leads(self) -> bool:
        return self.rank == 0

    @property
    def alone(self) -> bool:
        return self.size == 1

    @property
    def launched(self) -> bool:
        """By torchrun, which passes signals on, even to a single process."""
        return distributed.is_torchelastic_launched()

    def seed(self, *numbers: int) -> None:
        """Let torch draw from here on what these numbers and the rank decide, whatever was drawn before."""
        words = np.random.SeedSequence([*numbers, self.rank]).generate_state(1, np.uint64)
        torch.manual_seed(int(words[0]))

    # ----------------------------------------------------------------------------------------- meetings

    def total(self, value: float) -> float:
        """The sum over all processes; of numbers that are none, not a number."""
        if self.alone:
            return value
        numbers = torch.tensor([value], dtype=torch.float64)  # on the CPU: gloo carries it, even beside NCCL
        distributed.all_reduce(numbers)
        return float(numbers.item())

    def any(self, wish: bool) -> bool:
        """Does one of them wish it? The same answer for all."""
        return self.total(float(wish)) > 0

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """The leader goes through the body, then the others, who find what it has made."""
        if not self.leads:
            self.total(0.0)
        yield
        if self.leads:
            self.total(0.0)

    def join(self, loss: nn.Module) -> nn.Module:
        """The same module, with the leader's weights and one gradient for all."""
        if self.alone:
            return loss
        on = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(loss, device_ids=on)

    def backward(self, loss: Tensor) -> None:
        """The gradient of the sum of all losses; DistributedDataParallel by itself gives their mean."""
        (loss * self.size).backward()  # type: ignore[no-untyped-call]


ALONE = Team()


@contextmanager
def team(device: str = "auto", go_on: str = "go on with --resume") -> Iterator[Team]:
    """The team that torchrun has started this process in, else a team of one; for as long as the body lasts.

    go_on: what to do, once it is mended, where one of them has failed.
    """
    rank, size, local = (int(os.environ.get(name, default)) for name, default in _PLACE)
    if size == 1:
        yield Team(device=_device(device, 0))
        return
    # NCCL is chosen by what is here, not by `device`: a wrong device is then complained of once, by the leader.
    nccl = torch.cuda.is_available() and distributed.is_nccl_available()
    distributed.init_process_group("cpu:gloo,cuda:nccl" if nccl else "gloo", timeout=PATIENCE)
    try:
        with _one_voice(rank == 0, go_on):
            with Team(rank, size).leader_first():
                own = _device(device, local)
            yield Team(rank, size, own)
    finally:
        distributed.destroy_process_group()


@contextmanager
def _one_voice(leads: bool, go_on: str) -> Iterator[None]:
    """What all processes notice is said by the leader; the others leave without a word."""
    try:
        yield
        return
    except (TrainingError, KeyboardInterrupt):
        if leads:
            raise
    except RuntimeError as error:
        if not _line_is_dead(error):
            raise
        if leads:
            raise TrainingError(
                f"another process of this run has ended. To do: mend what it says, then {go_on}."
            ) from None
    raise SystemExit(1)


_PLACE = (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))


def _device(wanted: str, local: int) -> torch.device:
    """The device of a process, the `local`-th on its machine."""
    if wanted not in DEVICES:
        raise SettingError(f"--device {wanted}: expected {', '.join(DEVICES)}.")
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return CPU
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if local >= found:
        raise SettingError(
            f"--device {wanted}: process {local + 1} of this machine finds {found} GPUs that torch can use. "
            "To do: --device cpu, or no more processes than GPUs (--nproc-per-node)."
        )
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    return device


def _line_is_dead(error: RuntimeError) -> bool:
    """Gloo's errors have no class of their own, but the name of the file that they come from."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)
