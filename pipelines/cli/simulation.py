"""`taut simulate`: options for what matters most; a settings file has the rest. The run is in `simulation_run`."""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.options import Format, FormatOption, Lake, Offline, Trace, emit, say


def simulate(
    lake: Lake = None,
    trace: Trace = None,
    arrivals: Annotated[
        str | None,
        typer.Option(
            "--arrivals",
            help="drawn: measured jobs (Poisson); instances: one instance of each; recorded: the trace's own.",
            show_default="drawn",
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", help="Drawn arrivals per hour.", min=0.01, max=1e6, show_default="70")
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours", help="Length.", min=0.1, max=100_000.0, show_default="12; recorded: until all jobs ended"
        ),
    ] = None,
    replications: Annotated[
        int | None,
        typer.Option("--replications", help="Runs with different seeds; shows means.", min=1, show_default="1"),
    ] = None,
    cluster_from: Annotated[
        str | None,
        typer.Option(
            "--cluster-from",
            help="The cluster: `paper`, `machines` (the trace's own table), or a TOML file of machines.",
            show_default="paper; recorded: machines",
        ),
    ] = None,
    policy: Annotated[str | None, typer.Option("--policy", help="Queue order.", show_default="fifo")] = None,
    placement: Annotated[
        str | None,
        typer.Option("--placement", help="How machines are chosen for a gang's instances.", show_default="best_fit"),
    ] = None,
    predictor: Annotated[
        str | None,
        typer.Option(
            "--predictor",
            help="Predictor: `champion`, `oracle`, `constant`, `none`, or the URL of a service, as "
            "http://127.0.0.1:8080. A service is called once, before the run, with a minute per 10 000 jobs. Jobs "
            "without an answer keep their requests; without any answer the run is refused.",
            show_default="champion; recorded: none unless something uses predictions",
        ),
    ] = None,
    truth: Annotated[
        list[str] | None,
        typer.Option("--truth", help="Slowdown model of shrunk jobs (may be repeated).", show_default="all but shared"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Seed of all random numbers.", min=0, show_default="0")
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            help="TOML file of settings: those above by name, and all others (docs/simulate.md). Options go before it.",
            show_default=False,
        ),
    ] = None,
    offline: Offline = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="New folder for every run's summary, event log and series.", show_default=False),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Simulate a trace's jobs on a cluster, with and without shrinking, under the same arrivals.

    Jobs are drawn from those that were measured, or arrive as the trace recorded them.
    """
    from pipelines.cli.simulation_run import simulated
    from pipelines.cli.simulation_settings import read_settings
    from pipelines.simulation.rows import shown

    given = {
        "arrivals": arrivals,
        "rate": rate,
        "hours": hours,
        "replications": replications,
        "cluster_from": cluster_from,
        "policy": policy,
        "placement": placement,
        "predictor": predictor,
        "truth": truth or None,
        "seed": seed,
    }
    chosen = read_settings(settings, {name: value for name, value in given.items() if value is not None})
    rows, said = simulated(chosen, lake=lake, trace=trace, offline=offline, out=out, say=say)
    emit(shown(rows) if form is Format.TABLE else rows, form)
    say(said)


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(simulate)
