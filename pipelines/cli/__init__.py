"""The `taut` command: registers the subcommands of the files in this folder, and reports errors.

An error is printed as one line and gives an exit code (0 done, 1 failed, 2 bad usage). Slow imports are inside the
command functions, so that `--help` is fast.
"""

import os
import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from pipelines.cli import (
    data,
    demo,
    kube,
    models,
    planning,
    rightsize,
    scheduling,
    sites,
    slurm,
    statistics,
    training,
    usage,
)
from pipelines.cli import study as experiments
from pipelines.cli.commands import Commands, add, flags_without_type, late
from pipelines.cli.failures import EXIT_FAILED, in_words, told

# By default, idle OpenMP threads of XGBoost and scikit-learn busy-wait. On shared cores this can take ten times the
# time of the actual work. The libraries read this variable when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Processes that start later import nothing from the current folder, where a file may be named like a module.
os.environ["PYTHONSAFEPATH"] = "1"

PANELS: Final[dict[str, Commands]] = {
    "Start": demo.COMMANDS,
    "Data": data.COMMANDS | statistics.COMMANDS,
    "Models": models.COMMANDS | training.COMMANDS,
    "Recommend": scheduling.COMMANDS | rightsize.COMMANDS,
    "Serve": {
        "serve": late("serving:serve", "Serve predictions and recommendations over HTTP."),
        "token": late("serving:token", "Print a new token for a client of the service, and its entry in the settings."),
    },
    "Simulate": {
        "simulate": late("simulation:simulate", "Simulate a trace's jobs on a cluster, with and without shrinking."),
        **sites.COMMANDS,
        **planning.COMMANDS,
    },
    "Live clusters": slurm.COMMANDS | kube.COMMANDS | usage.COMMANDS,
    "Studies": experiments.COMMANDS,
}
"""The commands by the panel of `taut --help` that shows them."""


class TranslatingGroup(TyperGroup):
    """A command group that prints an error as one line on stderr, or with `--debug` as a traceback."""

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]  # typer's context is vendored
        """Return the parameters; flags are shown without a type, here and in all subcommands."""
        flags_without_type(self, ctx)
        return super().get_params(ctx)

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # typer's own context class is vendored
        """Run the subcommand; convert its errors to a message and an exit code."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except TyperException as error:
            error.message = in_words(error.message)
            raise
        except BrokenPipeError:
            # The reader closed the pipe (as in `| head`): redirect stdout so that the flush at exit does not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_FAILED) from None
        except (Exception, KeyboardInterrupt) as error:
            if ctx.params.get("debug"):
                raise
            text, code = told(error, ctx.invoked_subcommand or "")
            typer.echo(f"taut: {text}", err=True)
            raise typer.Exit(code) from error


app = typer.Typer(
    cls=TranslatingGroup,
    name="taut",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Takes the slack out of GPU clusters: predict what AI jobs need, shrink what they over-claim, place the rest.",
)
for panel, commands in PANELS.items():
    for name, command in commands.items():
        add(app, name, command, panel)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("taut"))
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.", envvar="TAUT_DEBUG")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Define the options that come before the subcommand; `TranslatingGroup` reads `debug`."""


def main() -> None:
    """Run the `taut` command."""
    app()
