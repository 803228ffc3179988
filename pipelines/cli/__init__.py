"""The `taut` command: registers the subcommands of the files in this folder, and reports errors.

An error is printed as one line and gives an exit code (0 done, 1 failed, 2 bad usage). Slow imports are inside the
command functions, so that `--help` is fast.
Called by the `taut` script.
"""

import os
import sys
from typing import Annotated

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from features.errors import FeatureError
from modelserve.errors import ServeError
from pipelines.cli import (
    data,
    demo,
    kube,
    models,
    placing,
    planning,
    report,
    retraining,
    rightsize,
    scheduling,
    serving,
    simulation,
    sites,
    slurm,
    statistics,
    tuning,
    usage,
)
from pipelines.cli import study as experiments
from pipelines.errors import BadUsage, PipelineError
from scheduler_core.errors import SchedulerError

# By default, idle OpenMP threads of XGBoost and scikit-learn busy-wait. On shared cores this can take ten times the
# time of the actual work. The libraries read this variable when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Processes that start later import nothing from the current folder, where a file may be named like a module.
os.environ["PYTHONSAFEPATH"] = "1"

EXIT_FAILED = 1
EXIT_BAD_USAGE = 2
EXIT_INTERRUPTED = 130


class TranslatingGroup(TyperGroup):
    """A command group that prints an error as one line on stderr, or with `--debug` as a traceback."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # typer's own context class is vendored
        """Run the subcommand; convert its errors to a message and an exit code."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, TyperException):
            raise
        except (PipelineError, FeatureError, ServeError, SchedulerError) as error:
            if ctx.params.get("debug"):
                raise
            typer.echo(f"taut: {error}", err=True)
            raise typer.Exit(EXIT_BAD_USAGE if isinstance(error, BadUsage) else EXIT_FAILED) from error
        except BrokenPipeError:
            # The reader closed the pipe (as in `| head`): redirect stdout so that the flush at exit does not fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_FAILED) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except OSError as error:
            if ctx.params.get("debug"):
                raise
            place, reason = error.filename or "a file or connection", error.strerror or type(error).__name__
            typer.echo(f"taut: {place}: {reason}; check the path, its permissions and the free space", err=True)
            raise typer.Exit(EXIT_FAILED) from error
        except UnicodeError as error:
            if ctx.params.get("debug"):
                raise
            typer.echo("taut: found bytes that are not UTF-8 text; expected text", err=True)
            raise typer.Exit(EXIT_FAILED) from error
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            reason = str(error).partition("\n")[0]
            typer.echo(f"taut: {type(error).__name__}: {reason} (taut --debug prints the traceback)", err=True)
            raise typer.Exit(EXIT_FAILED) from error


app = typer.Typer(
    cls=TranslatingGroup,
    name="taut",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Takes the slack out of GPU clusters: predict what AI jobs need, shrink what they over-claim, place the rest.",
)
for group in (
    demo,
    data,
    usage,
    statistics,
    report,
    models,
    tuning,
    retraining,
    scheduling,
    placing,
    rightsize,
    simulation,
    sites,
    experiments,
    serving,
    planning,
    slurm,
    kube,
):
    group.register(app)


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
