"""Train a graph's recipe, fuse, evaluate on test, and record it all: `results/run-GRAPH.json`, signed.

    python scripts/record_run.py NELL23K FB15K237-20 NELL995 FB15K237
    python scripts/record_run.py NELL23K --seed 1 --by-paths       # results/run-NELL23K-seed-1.json

Labels are those of `squire data list`, found below SQUIRE_DATA. Runs are kept in runs/GRAPH. One that was begun is
gone on with, unless `--trained SECONDS MB` says that it is trained, and what that took.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from squire.core.files import replacing
from squire.core.run_files import METRICS, RECIPE, evaluation_file

HOME = Path(__file__).resolve().parents[1]
KEPT = ("rows", "evidence", "evidence_of", "reliability")  # not the rows of every relation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--trained", nargs=2, type=float, metavar=("SECONDS", "MB"))
    parser.add_argument("--seed", type=int, default=0, help="of the model")
    parser.add_argument("--by-paths", action="store_true", help="do not fuse")
    arguments = parser.parse_args()
    for name in arguments.graphs:
        label = f"{name}-seed-{arguments.seed}" if arguments.seed else name
        content = record(name, label, arguments.trained, arguments.seed, not arguments.by_paths)
        with replacing(HOME / "results" / f"run-{label}.json") as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(label, *(row["mrr"] for row in content["paths"]["rows"]), flush=True)


def record(name: str, label: str, trained: list[float] | None, seed: int, fuse: bool) -> dict[str, Any]:
    run = f"runs/{label}"
    # Trained and fused apart, so that each has its own time.
    train = ["train", name, "--out", run, "--no-fuse", *(["--set", f"train.seed={seed}"] if seed else [])]
    if trained:
        commands = [{"command": f"squire {' '.join(train)}", "seconds": trained[0], "peak_mb": trained[1]}]
    else:
        resume = ["train", "--out", run, "--no-fuse", "--resume"]
        commands = [took(*(resume if (HOME / run).exists() else train))]
    if fuse:
        commands.append(took("fuse", run))
    commands.append(took("evaluate", run))
    kind = "fused" if fuse else "paths"
    found = json.loads(evaluation_file(HOME / run, kind, "test").read_text(encoding="utf-8"))
    recipe = json.loads((HOME / run / RECIPE).read_text(encoding="utf-8"))
    rows = [row for row in found["rows"] if "method:fused" not in row["signature"]]
    linked = []
    if "+unlinked" in rows[0]["signature"]:  # a trait of the benchmark; what is it worth?
        commands.append(took("evaluate", run, "--ranking", "paths", "--no-unlinked"))
        file = evaluation_file(HOME / run, "paths", "test", unlinked=False)
        linked = json.loads(file.read_text(encoding="utf-8"))["rows"][:1]
    return {
        "commands": commands,
        "commit": commit(),
        "cores": os.cpu_count(),
        "valid": valid_curve(HOME / run),
        **({"fused": {key: found[key] for key in KEPT if key in found}} if fuse else {}),
        "paths": {"recipe": recipe, "rows": rows, **({"linked_pairs_allowed": linked} if linked else {})},
    }


def valid_curve(run: Path) -> list[dict[str, Any]]:
    """The MRR of a sample of valid after each epoch."""
    steps = [json.loads(line) for line in (run / METRICS).read_text(encoding="utf-8").splitlines()]
    return [
        {key: step[key] for key in ("iteration", "epoch", "step")} | {"mrr": round(step["valid"]["mrr"], 4)}
        for step in steps
        if "valid" in step
    ]


def commit() -> str:
    """The version of the code that made it."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=HOME, capture_output=True, text=True).stdout.strip() or "unknown"


def took(*arguments: str) -> dict[str, Any]:
    """A command as a user would give it, and what it cost."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "squire", *arguments], cwd=HOME)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"squire {' '.join(arguments)}: failed")
    return {
        "command": f"squire {' '.join(arguments)}",
        "seconds": round(time.monotonic() - began),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime),
        "peak_mb": round(usage.ru_maxrss / 1e3),
        "load_average": round(os.getloadavg()[0], 2),
    }


if __name__ == "__main__":
    main()
