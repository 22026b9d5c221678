"""What all benchmarks share: a step in a process of its own, its peak memory, a report whose last line is JSON.

A benchmark calls `in_child("step", …)`, which runs the same script again with `--step`; so imports, compilation
and other steps do not count.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

DEFAULT_FOLDER = Path(os.environ.get("SQUIRE_DATA", Path(__file__).resolve().parents[2] / "shared" / "kg"))

Figures = dict[str, Any]


def in_child(*step: object) -> Figures:
    """The figures that a step of the running script prints."""
    command = [sys.executable, sys.argv[0], "--step", *map(str, step)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: Figures = json.loads(output.splitlines()[-1])
    return figures


def run_child(steps: Mapping[str, Callable[..., Figures]]) -> bool:
    """If this process is such a child: run its step, print its figures and its peak memory, and say so."""
    if sys.argv[1:2] != ["--step"]:
        return False
    name, *arguments = sys.argv[2:]
    figures = steps[name](*arguments)
    print(json.dumps(figures | {"peak_mb": peak_mb()}))
    return True


def peak_mb() -> float:
    """The largest memory that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def commit() -> str:
    """The version of the code that is measured."""
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=Path(__file__).parent, capture_output=True, text=True,
    )  # fmt: skip
    return found.stdout.strip() or "unknown"


def report(figures: Figures, targets: Mapping[str, str]) -> None:
    """A table for people, then one line for programs."""
    load = ", ".join(f"{average:.2f}" for average in os.getloadavg())
    print(
        f"{os.cpu_count()} cores, load average {load}, Python {sys.version.split()[0]}, numpy {np.__version__}\n"
    )
    for name, value in figures.items():
        shown = "not there" if value is None else f"{value:,}" if isinstance(value, (int, float)) else str(value)
        print(f"{name:26} {shown:>14}   {targets.get(name, '')}")
    print()
    print(json.dumps(figures | {"cores": os.cpu_count(), "load_average": round(os.getloadavg()[0], 2)}))
