"""`taut plan carbon | cost | hold | speeds`: the next decision for own jobs, with reasons, carried out on request.

Options and output only; decisions are in `modelserve.calls.plans`.
"""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from pipelines.cli.options import Format, FormatOption, Lake, TokenFile, Trace, Urls, emit, opened, say
from pipelines.errors import BadUsage

if TYPE_CHECKING:
    from modelserve.contract.plans import PlanBody

group = typer.Typer(name="plan", no_args_is_help=True, help="Decide when, where and how fast own jobs run.")

ActuatorName = Literal["slurm", "kubernetes", "nvidia"]
MINUTES_15: Final = 900.0
LEAST_PERIOD_S: Final = 4.0
"""Minimum length of a period of `--rounds`: the queue is looked at four times a second."""
MOMENTS: Final = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%fZ"]
"""The formats of times: the last two are those in which the next decision is announced."""
Moment = Annotated[
    datetime | None,
    typer.Option("--at", formats=MOMENTS, help="Time of the decision (UTC).", show_default="now", metavar="UTC"),
]
Jobs = Annotated[Path, typer.Option("--jobs", help="File of jobs, one JSON object per line.")]
Nodes = Annotated[Path, typer.Option("--nodes", help="TOML file of nodes, and of clocks if they can be set.")]
Grid = Annotated[Path, typer.Option("--grid", help="CSV file of hourly values, or a folder as for `taut simulate`.")]
Zone = Annotated[str | None, typer.Option("--zone", help="Zone of a folder with several.", show_default="the only one")]
Period = Annotated[float, typer.Option("--period-s", help="Seconds until the next decision.", min=1.0, max=86_400.0)]
Out = Annotated[
    Path | None, typer.Option("--out", help="File for the plan as JSON; replaced.", show_default="none is written")
]
Show = Annotated[ActuatorName | None, typer.Option("--commands", help="Print the commands for this system; run none.")]
Apply = Annotated[ActuatorName | None, typer.Option("--apply", help="Run the commands for this system.")]


@group.command()
def carbon(
    jobs: Jobs,
    nodes: Nodes,
    grid: Grid,
    budget_g: Annotated[float, typer.Option("--budget-g", help="Carbon budget in grams of CO2.", min=0.0)],
    budget: Annotated[
        Literal["period", "to-completion"],
        typer.Option("--budget", help="What it limits: emissions of a period (ours), or until the jobs end (patent)."),
    ] = "period",
    planner: Annotated[
        Literal["priced", "two_stages"],
        typer.Option("--planner", help="Weigh time against energy by --price (ours), or only by the budget (patent)."),
    ] = "priced",
    price: Annotated[
        float | None,
        typer.Option(
            "--price",
            help="Seconds of run time that a kWh more has to save, with --planner priced.",
            min=0.0,
            max=1e9,
            show_default="3000",
        ),
    ] = None,
    zone: Zone = None,
    period_s: Period = MINUTES_15,
    at: Moment = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            "--rounds", help="Periods to plan with --apply slurm.", min=1, max=100_000, show_default="one decision"
        ),
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", help="Seconds of the grid per second of --rounds.", min=1.0, max=1e5)
    ] = 1.0,
    show: Show = None,
    apply: Apply = None,
    out: Out = None,
    url: Urls = None,
    token_file: TokenFile = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Choose GPU counts and clocks of jobs under a carbon budget; print the next decision with its reasons."""
    from pipelines.connect.plan_inputs import body_of
    from pipelines.simulation.energy.grid_files import series_of

    if rounds and (apply != "slurm" or show or out or url):
        raise BadUsage("--rounds: expected with --apply slurm, and without --commands, --out and --url")
    if price is not None and planner != "priced":
        raise BadUsage("--price: found with --planner two_stages, expected --planner priced")
    if speed != 1.0 and not rounds:
        raise BadUsage("--speed: found without --rounds, expected both; one decision takes no time")
    if rounds and period_s < LEAST_PERIOD_S * speed:
        raise BadUsage(f"--speed: found periods of {period_s / speed:.2g} s, expected {LEAST_PERIOD_S:g} s or more")
    now = _now(at)
    series = series_of(grid, zone, "carbon", now, now + (rounds or 0) * period_s)
    weighed = {"planner": planner, **({} if price is None else {"price_s_per_kwh": price})}
    limits = {"period_s": period_s, "budget": budget, "budget_g": budget_g, "g_per_kwh": series.at(now)}
    body = body_of("carbon", jobs, nodes, now, **limits, **weighed)
    if rounds:
        from modelserve.calls.plans import plan_rows
        from pipelines.connect.slurm.plan_loop import run_loop

        emit(run_loop(body, series, now, decide=plan_rows, rounds=rounds, speed=speed, say=say), form)
        return
    _decide(body, show, apply, out, url, token_file, form)


@group.command()
def cost(
    jobs: Jobs,
    nodes: Nodes,
    grid: Grid,
    zone: Zone = None,
    period_s: Period = 4 * MINUTES_15,
    at: Moment = None,
    show: Show = None,
    apply: Apply = None,
    out: Out = None,
    url: Urls = None,
    token_file: TokenFile = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Place jobs with due dates on nodes at the lowest cost of tardiness and energy; print the next decision."""
    from pipelines.connect.plan_inputs import body_of
    from pipelines.simulation.energy.grid_files import series_of

    now = _now(at)
    series = series_of(grid, zone, "price", now, now)
    # Energy after the period is priced at the mean of the last day, as far as it is known.
    day_ago = max(now - 86_400.0, series.start_s)
    later = series.mean(day_ago, now) if now > day_ago else series.at(now)
    body = body_of("cost", jobs, nodes, now, period_s=period_s, usd_per_kwh=series.at(now), later_usd_per_kwh=later)
    _decide(body, show, apply, out, url, token_file, form)


@group.command()
def hold(
    jobs: Jobs,
    grid: Grid,
    by: Annotated[Literal["carbon", "price"], typer.Option("--by", help="Series by which jobs are held.")] = "carbon",
    zone: Zone = None,
    at: Moment = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say for each job whether to start it now, or until when to hold it within its slack."""
    from modelserve.calls.plans import hold_rows
    from pipelines.connect.plan_inputs import hold_body
    from pipelines.simulation.energy.grid_files import series_of

    now = _now(at)
    emit(hold_rows(hold_body(jobs, series_of(grid, zone, by, now, now), by, now), now), form)


@group.command()
def speeds(
    jobs: Jobs,
    lake: Lake = None,
    trace: Trace = None,
    with_feedback: Annotated[
        str | None,
        typer.Option("--with-feedback", metavar="URL", help="Also learn from the jobs in this store of a service."),
    ] = None,
) -> None:
    """Add to jobs how fast they run with other GPUs, from the history of their groups; print them as JSON lines."""
    from pipelines.connect.plan_inputs import plan_jobs
    from pipelines.connect.plan_speeds import with_speeds
    from pipelines.models.training_tables import read_tables

    with opened(lake, trace) as (source, name):
        tables = read_tables(source, name, feedback=with_feedback)
    filled, notes = with_speeds(plan_jobs(jobs), tables.jobs)
    for job in filled:
        typer.echo(job.model_dump_json(exclude_defaults=True))
    for note in notes:
        say(f"note: {note}")


def _decide(
    body: "PlanBody",
    show: ActuatorName | None,
    apply: ActuatorName | None,
    out: Path | None,
    urls: Sequence[str] | None,
    token_file: Path | None,
    form: Format,
) -> None:
    """Decide here or by a service, print the rows, write the plan, and show or run the commands."""
    from modelserve.calls.plans import plan_rows
    from pipelines.connect.actuators import carry_out, commands_of, shown

    if apply and urls:
        raise BadUsage("--apply: found with --url, expected one of them; a service's answer has its mode to act on")
    plan: dict[str, Any]
    with _client(urls, token_file) as client:
        now = body.now_ts.timestamp() if body.now_ts else 0.0
        plan = plan_rows(body, now) if client is None else client.plan(body).model_dump(mode="json")
    if out is not None:
        try:
            out.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8", newline="\n")
        except OSError as error:
            raise BadUsage(f"--out {out}: {error.strerror}; name a file in a folder that can be written") from error
    emit([{**row, "nodes": " ".join(f"{n}:{g}" for n, g in row["nodes"].items())} for row in plan["plans"]], form)
    for note in plan["notes"]:
        say(f"note: {note}")
    say(f"decide again at {plan['again_ts']} at the latest")
    for name in filter(None, dict.fromkeys((show, apply))):
        commands = commands_of(name, plan["plans"], {row.job_id for row in body.jobs if row.running_gpus})
        for command in commands:
            say(shown(command))
        if name == apply and carry_out(commands, say=say):
            raise typer.Exit(1)


def _client(urls: Sequence[str] | None, token_file: Path | None) -> Any:  # Any: a client, or a context of None
    from pipelines.cli.remote import client_of

    return client_of(list(urls), token_file, jobs=1000) if urls else nullcontext()


def _now(at: datetime | None) -> float:
    return (datetime.now(UTC) if at is None else at.replace(tzinfo=UTC)).timestamp()


def register(app: typer.Typer) -> None:
    """Add the group to the app."""
    app.add_typer(group)
