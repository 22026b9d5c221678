"""`squire serve`: trained runs as a service, with a page."""

from __future__ import annotations

import importlib.util
import re
import socket
import webbrowser
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from squire.cli.console import errors, out, progress_bar
from squire.errors import SettingError

HERE = "127.0.0.1"


def serve(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Run folders of 'squire train', or NAME=FOLDER.")
    ],
    host: Annotated[str, typer.Option(help="Where to listen; beyond this machine only with a token.")] = HERE,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="SQUIRE_TOKEN", help="Clients must send it as a bearer token.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name that this service is called by. Repeatable.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Answer questions over HTTP, and serve a page to ask them. Ctrl-C ends it when begun requests are done."""
    _check_installed()
    # Imported late: they need an extra, and torch takes a second that no other command should wait for.
    from squire.server.app import create_app
    from squire.server.guard import LOOPBACK, Gate
    from squire.server.limits import Limits
    from squire.server.models import Model
    from squire.server.serving import address, is_loopback, is_wildcard, listen, serve_until_told

    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise SettingError("--token: expected letters, digits and signs without spaces, at least one.")
    if not is_loopback(host) and token is None:
        raise SettingError(
            f"--host {host}: others could reach this service, so it needs a token. To do: set SQUIRE_TOKEN, e.g. "
            f"to the output of 'openssl rand -hex 32'."
        )
    folders, limits = named_folders(runs), Limits()
    hosts = {host.lower(), *(name.lower() for name in allow_host or [])}
    if is_loopback(host) or is_wildcard(host):
        hosts |= {*LOOPBACK, socket.gethostname().lower()} if is_wildcard(host) else set(LOOPBACK)
    with closing(listen(host, port)) as listening:  # before the work of loading: the port may be taken
        with progress_bar("loading") as bar:
            models = []
            for number, (name, folder) in enumerate(folders.items()):
                bar.stage(f"loading {name}", number, len(folders))
                models.append(Model.load(name, folder))
        service = create_app(models, Gate(hosts, is_wildcard(host), token), limits)
        where = address(host, listening)
        out.print(f"squire serves {', '.join(folders)} at {where}", markup=False, highlight=False, soft_wrap=True)
        out.file.flush()
        errors.print("Ctrl-C ends it.", style="dim")
        if open_page:
            webbrowser.open(where)
        serve_until_told(service, listening, limits)


def named_folders(runs: Sequence[str]) -> dict[str, Path]:
    """Model names and run folders: NAME=FOLDER, or a folder, which has its own name."""
    found: dict[str, Path] = {}
    for run in runs:
        name, equals, folder = run.partition("=")
        if not equals or Path(run).is_dir():
            name, folder = Path(run).resolve().name, run
        if not re.fullmatch(r"[\w][\w .-]*", name):
            raise SettingError(f"{run}: not a name for a model. To do: give one, as in world={folder}.")
        if name in found:
            raise SettingError(f"{run}: a second model named {name}. To do: name it, as in {name}2={folder}.")
        found[name] = Path(folder)
    return found


def _check_installed() -> None:
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise SettingError(
            f"{' and '.join(missing)} not installed, which the service needs. To do: "
            f"pip install -c constraints.txt -e '.[server]'."
        )
