"""The command line: parse, call the API, print, exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from squire import __version__
from squire.cli import changes, data, rules, runs, study
from squire.cli.console import errors, say, show_log
from squire.errors import SquireError

EXAMPLES = """Examples:

squire train my-graph.tsv --out runs/mine

squire answer runs/mine "Vienna" "located in"

squire data stats world"""


@contextmanager
def _telling_interrupts() -> Iterator[None]:
    """On Ctrl-C, say so and exit with code 130; `Interrupted` also says how to continue."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        say(str(interrupt) or "interrupted", style="yellow")
        raise typer.Exit(130) from None


class _Commands(TyperGroup):
    """The commands. Typer would handle Ctrl-C before `main` can, without a word."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        with _telling_interrupts():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _telling_interrupts():
            return super().invoke(ctx)


app = typer.Typer(
    name="squire",
    cls=_Commands,
    epilog=EXAMPLES,
    help="Link prediction that a person can read and trust.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog="Example: squire train world --out runs/world --set train.epochs=5")(runs.train)
app.command(epilog='Example: squire answer runs/world Austria "official language" -k 3')(runs.answer)
app.command(epilog="Example: squire check runs/world France borders Mexico")(runs.check)
app.command(epilog="Example: squire connect runs/world Austria Germany")(changes.connect)
app.command(epilog="Example: squire why runs/world Niger 'official language' French")(changes.why)
app.command(epilog="Example: squire evaluate runs/world --split valid")(runs.evaluate)
app.command(epilog="Example: squire complete runs/world --relation 'official language' -o new.tsv")(runs.complete)
app.command(epilog="Example: squire doubt runs/world -o suspects.tsv --relation currency")(runs.doubt)
app.command(epilog="Example: squire add runs/world facts.tsv")(changes.add)
app.command(epilog="Example: squire remove runs/world facts.tsv")(changes.remove)
app.command(epilog="Example: squire serve runs/world --open")(runs.serve)
app.command(epilog="Example: squire mcp runs/world")(changes.mcp)
app.command(epilog="Example: squire fuse runs/world --no-names")(runs.fuse)
app.command(epilog="Example: squire plot runs/world -o world.png")(runs.plot)
app.add_typer(data.app, name="data")
app.command(epilog="Example: squire mine world -o rules.tsv")(rules.mine)
app.add_typer(rules.app, name="rules")
app.command(epilog="Example: squire paths world --rules rules.tsv -o paths.parquet")(rules.paths)
app.add_typer(study.app, name="study")
app.command(epilog="Example: squire compare world --minutes 3 --methods fused,rules,ComplEx")(study.compare)


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
    show_log()


def main() -> None:
    """The `squire` command. A user's mistake gives one clear message, never a traceback."""
    try:
        app()
    except SquireError as error:
        _fail(str(error))
    except BrokenPipeError:  # as in `squire … | head`
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:  # a full disk or a read-only folder: a traceback would not help
        _fail(f"{error.filename or ''}: {error.strerror or error}".removeprefix(": "))
    except KeyboardInterrupt:  # before Typer has begun
        say("interrupted", style="yellow")
        sys.exit(130)


def _fail(message: str) -> None:
    errors.print("[bold red]error:[/]", end=" ")
    errors.print(message, markup=False, highlight=False, soft_wrap=True)
    sys.exit(1)
