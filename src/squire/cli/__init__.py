"""The command line: parse, call, print, exit code. One module a group of commands; no logic of its own."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer
from rich.logging import RichHandler

from squire.cli import answer, complete, data, evaluate, fuse, paths, plot, rules, serve, study, train
from squire.cli.console import errors
from squire.core.version import __version__
from squire.errors import SquireError

EXAMPLES = """Examples:

squire data stats world

squire data show world Austria

squire data check my-graph.tsv"""

app = typer.Typer(
    name="squire",
    epilog=EXAMPLES,
    help="Link prediction that a person can read and trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
app.command(epilog="Example: squire mine world -o rules.tsv")(rules.mine)
app.add_typer(rules.app, name="rules")
app.command(epilog="Example: squire paths world --rules rules.tsv -o paths.parquet")(paths.paths)
app.command(epilog='Example: squire answer runs/world Austria "official language" -k 3')(answer.answer)
app.command(epilog="Example: squire complete runs/world --relation 'official language' -o new.tsv")(
    complete.complete
)
app.command(epilog="Example: squire evaluate runs/world --split valid")(evaluate.evaluate)
app.command(epilog="Example: squire train world --out runs/world --set train.epochs=5")(train.train)
app.command(epilog="Example: squire fuse world --out runs/world")(fuse.fuse)
app.command(epilog="Example: squire plot runs/world -o world.png")(plot.plot)
app.command(epilog="Example: squire serve runs/world --open")(serve.serve)
app.add_typer(study.app, name="study")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"squire {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Link prediction that a person can read and trust."""


def main() -> None:
    """The `squire` command: a user's mistake ends in one clear message, never in a traceback."""
    logging.basicConfig(
        format="%(message)s",
        handlers=[RichHandler(console=errors, show_time=False, show_path=False, markup=False, highlighter=None)],
    )
    try:
        app()
    except SquireError as error:
        errors.print("[bold red]error:[/]", end=" ")
        errors.print(str(error), markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)
    except BrokenPipeError:  # `squire … | head` has seen enough
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:  # a full disk, a folder one may not write to: nothing a traceback would help with
        errors.print("[bold red]error:[/]", end=" ")
        errors.print(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "), markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        errors.print("[yellow]interrupted[/]")
        sys.exit(130)
