"""`squire serve` as a user meets it: a process that starts, answers, and ends well."""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from service_cases import QUESTION, TOKEN, cli_json, command
from small_run import small_run
from typer.testing import CliRunner

from squire.cli import app
from squire.errors import SettingError
from squire.server.serving import named_runs


def refused(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["serve", *map(str, arguments)])
    assert isinstance(result.exception, SettingError), result.output
    return str(result.exception)


def test_it_answers_like_squire_answer_and_ends_with_exit_code_0() -> None:
    with command(f"family={small_run()}", f"twin={small_run()}") as (process, address):
        assert address.startswith("http://127.0.0.1:")
        health = httpx.get(f"{address}api/health").json()
        assert health["models"] == ["family", "twin"]
        found = httpx.post(f"{address}api/models/twin/answer", json={**QUESTION, "k": 5}).json()
        assert found == cli_json("answer", small_run(), "cleo", "grandparent")
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
        assert process.returncode == 0
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        assert [line["path"] for line in lines] == ["/api/health", "/api/models/twin/answer"]
        assert "Traceback" not in log


def test_the_token_may_come_from_the_environment() -> None:
    with command(small_run(), env={"SQUIRE_TOKEN": TOKEN}) as (_, address):
        assert httpx.get(f"{address}api/models").status_code == 401
        assert httpx.get(f"{address}api/models", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_sigterm_finishes_what_was_begun_and_takes_nothing_new() -> None:
    questions = [{"head": name, "relation": "likes"} for name in ("ada", "ben", "cleo", "dan")] * 25
    with command(f"family={small_run()}") as (process, address), ThreadPoolExecutor(1) as pool:
        begun = threading.Event()

        def ask() -> int:
            body = {"questions": questions, "beam": 256}
            with httpx.stream("POST", f"{address}api/models/family/batch", json=body, timeout=120) as response:
                lines = 0
                for line in response.iter_lines():
                    begun.set()
                    lines += "answers" in json.loads(line)
                return lines

        asking = pool.submit(ask)
        assert begun.wait(60)
        process.send_signal(signal.SIGTERM)
        while process.poll() is None:  # the door closes while the rest is still being answered
            try:
                httpx.get(f"{address}api/health")
            except httpx.TransportError:  # refused, or taken in by the kernel and dropped
                break
            time.sleep(0.02)
        assert asking.result() == len(questions)
        process.communicate(timeout=60)
        assert process.returncode == 0


def test_only_this_machine_without_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.168.0.7", "kg.example"):
        said = refused(small_run(), "--host", host)
        assert f"host={host}: other machines could reach the service, so it needs a token" in said
    assert "token: expected one or more ASCII letters" in refused(small_run(), "--token", "two words")
    assert "token: expected one or more ASCII letters" in refused(small_run(), "--token", "")


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"host=127.0.0.1, port={port}: cannot listen there" in refused(small_run(), "--port", port)


def test_models_are_named_by_their_folders_or_by_hand(tmp_path: Path) -> None:
    one, other, odd = tmp_path / "a" / "run", tmp_path / "b" / "run", tmp_path / "x=y"
    for folder in (one, other, odd):
        folder.mkdir(parents=True)
    assert named_runs([str(one)]) == named_runs(str(one)) == {"run": str(one)}
    assert named_runs([str(one), f"second={other}"]) == {"run": str(one), "second": other}
    assert named_runs([f"z={odd}"]) == {"z": odd}
    loaded = SimpleNamespace(folder=one)  # stands for a Run
    assert named_runs(loaded) == {"run": loaded}
    assert named_runs({"a": one, "b": loaded}) == {"a": one, "b": loaded}
    with pytest.raises(SettingError, match="runs: expected at least one run"):
        named_runs([])
    with pytest.raises(SettingError, match=f"there are two models named run. Rename one, e.g. run2={other}"):
        named_runs([str(one), str(other)])
    with pytest.raises(SettingError, match=r"'x=y' cannot be the name of a model. Name it, e.g. world="):
        named_runs([str(odd)])
    assert "no run here" in refused(one, "--port", 0)


def test_without_the_extra_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec

    def without_fastapi(name: str, package: str | None = None) -> object:
        return None if name == "fastapi" else found(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_fastapi)
    assert "the service needs fastapi. Install with `pip install 'squire-kg[server]'`." in refused(small_run())


def test_other_commands_do_without_the_extra() -> None:
    code = "import sys; sys.modules['fastapi'] = sys.modules['uvicorn'] = None; import squire.cli"
    subprocess.run([sys.executable, "-c", code], check=True)
