"""`squire serve`: trained runs as a service, with a page."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from squire import server
from squire.cli.console import errors, out


def serve(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN…", help="Run folders of 'squire train', or NAME=FOLDER.")
    ],
    host: Annotated[
        str, typer.Option(help="Where to listen; a host that other machines can reach needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token: Annotated[
        str | None, typer.Option(envvar="SQUIRE_TOKEN", help="Clients must send it as a bearer token.")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further host name of this service. Repeatable.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Answer questions over HTTP, and serve a page to ask them. Ctrl-C stops it once running requests are done."""
    with ExitStack() as status:

        def ready(address: str, models: list[str]) -> None:
            status.close()
            out.print(
                f"squire serves {', '.join(models)} at {address}", markup=False, highlight=False, soft_wrap=True
            )
            out.file.flush()
            errors.print("Press Ctrl-C to stop.", style="dim")

        status.enter_context(errors.status("loading"))
        server.serve(runs, host, port, token, allow_host or (), open_page, ready)
