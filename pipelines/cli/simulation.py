"""`taut simulate`: the command, made from its groups of options.

The groups are declared in `simulation_options`, `metering` and `reserving`; the run is in `simulation_run`.
"""

from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import Any

import typer

from pipelines.cli.metering import Metering
from pipelines.cli.options import Format, emit, say
from pipelines.cli.reserving import Reserving
from pipelines.cli.simulation_options import Advising, Failing, Jobs, Load, Output, Rules


def simulate(
    jobs: Jobs,
    load: Load,
    rules: Rules,
    advising: Advising,
    reserving: Reserving,
    failing: Failing,
    metering: Metering,
    output: Output,
) -> None:
    """Simulate a trace's jobs on a cluster, with and without shrinking, under the same arrivals.

    Jobs are drawn from those that were measured, or arrive as the trace recorded them.
    """
    from pipelines.cli.simulation_run import simulated
    from pipelines.simulation.rows import shown

    rows, said = simulated(jobs, load, rules, advising, reserving, failing, metering, output, say=say)
    emit(shown(rows) if output.form is Format.TABLE else rows, output.form)
    say(said)


def command_of(run: Callable[..., None]) -> Callable[..., None]:
    """Return a command that calls `run`, with the fields of all option groups that `run` takes as its options."""
    groups: tuple[type, ...] = tuple(each.annotation for each in signature(run).parameters.values())

    def command(**options: Any) -> None:  # the type of each option is that of its field
        run(*(group(**{field.name: options[field.name] for field in fields(group)}) for group in groups))

    parameters = [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
        for group in groups
        for field in fields(group)
    ]
    command.__name__, command.__doc__ = run.__name__, run.__doc__
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # a function may have one at run time
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(command_of(simulate))
