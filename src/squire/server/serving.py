"""`serve`: trained runs behind an HTTP API and a page, until Ctrl-C."""

from __future__ import annotations

import importlib.util
import re
import webbrowser
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from squire.errors import SettingError

Ready = Callable[[str, list[str]], None]


def serve(
    runs: Any,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    allow_host: Collection[str] = (),
    open_page: bool = False,
    on_ready: Ready | None = None,
    writable: bool = False,
) -> None:
    """Answers questions over HTTP and serves a page to ask them, until Ctrl-C or SIGTERM.

    runs: a run folder, "NAME=FOLDER" or a `Run`; a list of these; or a dictionary {name: folder or Run}. The first
        one is the default model.
    host, port: where to listen; port 0 takes a free one. A host that other machines can reach needs a token.
    token: clients must send it as a bearer token.
    allow_host: further host names of this service, such as that of a proxy.
    open_page: opens the page in a browser.
    writable: clients may add facts to the graphs and remove them.
    on_ready: called with the address and the names of the models once the service accepts requests.
    """
    _check_installed()
    # Imported late: fastapi and uvicorn are an extra, and torch takes a second to import.
    import torch

    from squire.server import app
    from squire.server.models import Model
    from squire.server.security import AccessPolicy, Limits

    policy, limits, named = AccessPolicy.for_host(host, allow_host, token), Limits(), named_runs(runs)
    torch.set_num_threads(max(1, torch.get_num_threads() // limits.threads))
    with closing(app.listen(host, port)) as listening:  # fails before the models are loaded
        service = app.create_app([Model.load(name, run) for name, run in named.items()], policy, limits, writable)
        address = app.address_of(host, listening)
        app.log_as_json()
        (on_ready or app.log_ready)(address, list(named))
        if open_page:
            webbrowser.open(address)
        app.run(service, listening, limits)


def named_runs(runs: Any) -> dict[str, Any]:
    """The runs by the names of their models; by default, a run is named after its folder."""
    if isinstance(runs, Mapping):
        pairs = [(str(name), run) for name, run in runs.items()]
    else:
        many = isinstance(runs, Iterable) and not isinstance(runs, str)
        pairs = [_named(run) for run in (runs if many else [runs])]
    named: dict[str, Any] = {}
    for name, run in pairs:
        if not re.fullmatch(r"\w[\w .-]*", name):
            raise SettingError(
                f"runs: {name!r} cannot be the name of a model. Name it, e.g. world={_folder(run)}."
            )
        if name in named:
            raise SettingError(
                f"runs: there are two models named {name}. Rename one, e.g. {name}2={_folder(run)}."
            )
        named[name] = run
    if not named:
        raise SettingError("runs: expected at least one run.")
    return named


def _named(run: Any) -> tuple[str, Any]:
    if isinstance(run, str) and "=" in run and not Path(run).is_dir():
        name, _, folder = run.partition("=")
        return name, Path(folder)
    return _folder(run).resolve().name, run


def _folder(run: Any) -> Path:
    return Path(run if isinstance(run, str | Path) else run.folder)


def _check_installed() -> None:
    missing = [name for name in ("fastapi", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise SettingError(
            f"the service needs {' and '.join(missing)}. Install with `pip install 'squire-kg[server]'`."
        )
