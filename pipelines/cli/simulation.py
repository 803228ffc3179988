"""`taut simulate`: options for what matters most; a settings file has the rest. The run is in `simulation_run`."""

from dataclasses import asdict
from pathlib import Path
from typing import Final

from pipelines.cli.commands import Lazy, Run, command_of, options_from
from pipelines.cli.options import FORM, OFFLINE, Format, InLake, emit, say
from pipelines.options import option

HELP: Final = """Simulate a trace's jobs on a cluster, with and without shrinking, under the same arrivals.

Jobs are drawn from those that were measured, or arrive as the trace recorded them."""


def simulate() -> Run:
    """Return the command `taut simulate`, whose options are settings of a simulation."""
    from pipelines.cli.simulation_run import simulated
    from pipelines.cli.simulation_settings import OPTIONS, Settings, read_settings
    from pipelines.simulation.rows import shown

    Given = options_from(Settings, OPTIONS)  # a class

    def run(
        where: InLake,
        given: Given,  # type: ignore[valid-type]  # a class made here
        settings: Path | None = option(
            None, "TOML file of settings: those above by name, and all others (docs/simulate.md). Options go before it."
        ),
        offline: bool = OFFLINE,
        out: Path | None = option(None, "New folder for every run's summary, event log and series."),
        form: Format = FORM,
    ) -> None:
        rows, conclusion = simulated(read_settings(settings, asdict(given)), where, offline=offline, out=out)
        emit(shown(rows) if form == "table" else rows, form)
        say(conclusion)

    run.__doc__ = HELP
    return command_of(run)


COMMANDS: Final = {"simulate": Lazy(help=HELP, make=simulate)}
