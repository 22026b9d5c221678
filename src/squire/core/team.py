"""Several processes that work together: on one model, one completion, one set of rules, one evaluation.

No other module sets up processes, and only `core.parallel` asks for their ranks. `torchrun` starts the processes
and sets their ranks in the environment; without it a team is a single process, and collective calls return at
once.

All processes must make the same collective calls in the same order. A process that fails exits with its own
message; the others get an error from their next collective call and exit too.

Tested with gloo only. No GPU was available: the CUDA and NCCL code follows the documentation but has not been run.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from squire.core.parallel import sharing
from squire.errors import SettingError, SquireError, TrainingError

DEVICES = ("auto", "cpu", "cuda")
CPU = torch.device("cpu")
TIMEOUT = timedelta(
    days=1
)  # the others wait while the leader mines or validates; a lost process is noticed at once


@dataclass(frozen=True)
class Team:
    """This process and its team. The leader (rank 0) writes, prints and validates."""

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
        """Whether torchrun started it; torchrun passes signals on, even to a single process."""
        return distributed.is_torchelastic_launched()

    def seed(self, *numbers: int) -> None:
        """Seed torch from these numbers and the rank, whatever was drawn before."""
        words = np.random.SeedSequence([*numbers, self.rank]).generate_state(1, np.uint64)
        torch.manual_seed(int(words[0]))

    # ----------------------------------------------------------------------------------- collective calls

    def total(self, value: float) -> float:
        """The sum over all processes; nan if one of them is nan."""
        if self.alone:
            return value
        numbers = torch.tensor([value], dtype=torch.float64)  # on the CPU: gloo carries it, even beside NCCL
        distributed.all_reduce(numbers)
        return float(numbers.item())

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in their order."""
        if self.alone:
            return [value]
        values: list[Any] = [None] * self.size
        distributed.all_gather_object(values, value)
        return values

    def any(self, value: bool) -> bool:
        """Whether the value is true in any process; the same answer in all."""
        return self.total(float(value)) > 0

    @contextmanager
    def leader_first(self) -> Iterator[None]:
        """The leader runs the body first; then the others do, and find what it made."""
        if not self.leads:
            self.total(0.0)
        yield
        if self.leads:
            self.total(0.0)

    def join(self, loss: nn.Module) -> nn.Module:
        """The module with the leader's weights and a shared gradient."""
        if self.alone:
            return loss
        on = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(loss, device_ids=on)

    def backward(self, loss: Tensor) -> None:
        """The gradient of the sum of all losses; DistributedDataParallel gives that of their mean."""
        torch.autograd.backward(loss * self.size)


ALONE = Team()


@contextmanager
def team(device: str = "auto", advice: str = "resume the run", same_errors: bool = False) -> Iterator[Team]:
    """The team of this process during the body: the one that torchrun started, else a team of one.

    advice: what to do after another process has failed, for the error message
    same_errors: all processes run into the same errors, and the leader alone reports them
    """
    rank, size, local = (int(os.environ.get(name, default)) for name, default in _RANKS)
    if size == 1:
        yield Team(device=_device(device, 0))
        return
    # NCCL is chosen by what is installed, not by `device`, so that a wrong device is reported once, by the leader.
    nccl = torch.cuda.is_available() and distributed.is_nccl_available()
    # A team finds the addresses of its own processes, not those of the team before it.
    store = PrefixStore(f"team {next(_teams)}", _store())
    backend = "cpu:gloo,cuda:nccl" if nccl else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    try:
        with _reported_once(rank == 0, advice, SquireError if same_errors else TrainingError):
            with Team(rank, size).leader_first():
                own = _device(device, local)
            yield Team(rank, size, own)
    finally:
        distributed.destroy_process_group()


@contextmanager
def together() -> Iterator[bool]:
    """Loops of the body are shared out by the processes that torchrun has started; gives whether this one leads.

    They run the same program, so the leader alone shows, logs and reports what all of them find.
    """
    with team("cpu", "run the same command again", same_errors=True) as ours:
        log = logging.getLogger("squire")
        before = log.level
        if not ours.leads:
            log.setLevel(logging.ERROR)
        try:
            with sharing(None if ours.alone else ours):
                yield ours.leads
            ours.total(0.0)  # files of the leader are there now
        finally:
            log.setLevel(before)


@contextmanager
def _reported_once(leads: bool, advice: str, common: type[SquireError]) -> Iterator[None]:
    """Let the leader report an error that all processes get; the others exit silently."""
    try:
        yield
        return
    except (common, KeyboardInterrupt):
        if leads:
            raise
    except RuntimeError as error:
        if not _is_lost_connection(error):
            raise
        if leads:
            raise TrainingError(
                f"another process of this run has failed. Fix the problem that it reports, then {advice}."
            ) from None
    raise SystemExit(1)


_teams = itertools.count()


@cache
def _store() -> Store:
    """Where the processes that torchrun has started find each other."""
    return cast("Store", next(rendezvous("env://", timeout=TIMEOUT))[0])


_RANKS = (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))


def _device(wanted: str, local: int) -> torch.device:
    """The device of a process, the `local`-th on its machine."""
    if wanted not in DEVICES:
        raise SettingError(f"device={wanted!r}: expected {', '.join(DEVICES)}.")
    if wanted == "cpu" or (wanted == "auto" and not torch.cuda.is_available()):
        return CPU
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if local >= found:
        raise SettingError(
            f"device={wanted!r}: process {local + 1} of this machine finds {found} GPUs that torch can use. Use "
            "the device cpu, or start no more processes than GPUs (--nproc-per-node of torchrun)."
        )
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    return device


def _is_lost_connection(error: RuntimeError) -> bool:
    """Gloo's errors have no class of their own, but they name the source file."""
    return isinstance(error, distributed.DistError) or "gloo" in str(error)
