"""Sixty-four clients at once, then among others that misbehave: all good requests are answered.

How fast is for `python benchmarks/serve.py RUN`, which this runs for a few seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from small_run import small_run

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmarks" / "serve.py"


def test_all_good_requests_are_answered_whatever_others_do() -> None:
    command = [sys.executable, str(BENCHMARK), str(small_run()), "--seconds", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    for phase in ("single", "many", "mixed"):
        assert figures[f"{phase}_failed"] == 0
        assert figures[f"{phase}_answered"] > 0
    assert figures["many_answered"] >= 64
    told = figures["bad_clients"]
    for kind, status in (("slow", "408"), ("huge", "413"), ("malformed", "400"), ("unauthorised", "401")):
        assert [key for key in told if key.startswith(kind)] == [f"{kind}: {status}"], told
    assert figures["exit_code"] == 0
