"""`taut plan carbon | cost | hold | speeds`: the next decision for own jobs, with reasons, carried out on request.

Options and output only; decisions are in `modelserve.calls.plans`.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import typer

from pipelines.cli.commands import Commands, Group, named
from pipelines.cli.failures import out_written
from pipelines.cli.options import FORM, Format, InLake, emit, say
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, option

if TYPE_CHECKING:
    from modelserve.contract.plans import PlanBody

Actuator = Literal["slurm", "kubernetes", "nvidia"]
LEAST_PERIOD_S: Final = 4.0
"""Minimum length of a period of `--rounds`: the queue is looked at four times a second."""
MOMENTS: Final = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%fZ"]
"""The formats of times: the last two are those in which the next decision is announced."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Options for the jobs, the series of the grid, and the time of the decision."""

    jobs: Path = option(REQUIRED, "File of jobs, one JSON object per line.")
    grid: Path = option(REQUIRED, "CSV file of hourly values, or a folder as for `taut simulate`.")
    zone: str | None = option(None, "Zone of a folder with several.", shown="the only one")
    at: datetime | None = option(None, "Time of the decision (UTC).", formats=MOMENTS, metavar="UTC", shown="now")

    @property
    def now(self) -> float:
        """The Unix time of the decision."""
        return (datetime.now(UTC) if self.at is None else self.at.replace(tzinfo=UTC)).timestamp()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Options for the nodes, where the plan goes, and what carries it out."""

    nodes: Path = option(REQUIRED, "TOML file of nodes, and of clocks if they can be set.")
    show: Actuator | None = option(None, "Print the commands for this system; run none.", name="--commands")
    apply: Actuator | None = option(None, "Run the commands for this system.")
    out: Path | None = option(None, "File for the plan as JSON; replaced.", shown="none is written")

    def made(self, body: "PlanBody", form: Format) -> None:
        """Decide, print the rows, write the plan, and show or run the commands."""
        from modelserve.calls.plans import plan_rows
        from pipelines.connect.actuators import carry_out, commands_of, shown

        plan = plan_rows(body, body.now_ts.timestamp() if body.now_ts else 0.0)
        if self.out is not None:
            with out_written(self.out):
                self.out.write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8", newline="\n")
        emit([{**row, "nodes": " ".join(f"{n}:{g}" for n, g in row["nodes"].items())} for row in plan["plans"]], form)
        for note in plan["notes"]:
            say(f"note: {note}")
        say(f"decide again at {plan['again_ts']} at the latest")
        for name in filter(None, dict.fromkeys((self.show, self.apply))):
            commands = commands_of(name, plan["plans"], {row.job_id for row in body.jobs if row.running_gpus})
            for command in commands:
                say(shown(command))
            if name == self.apply and carry_out(commands, say=say):
                raise typer.Exit(1)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Options for the carbon budget, and how it is kept."""

    budget_g: float = option(REQUIRED, "Carbon budget in grams of CO2.", minimum=0.0)
    budget: Literal["period", "to-completion"] = option(
        "period", "What it limits: emissions of a period (ours), or until the jobs end (patent)."
    )
    planner: Literal["priced", "two_stages"] = option(
        "priced", "Weigh time against energy by --price (ours), or only by the budget (patent)."
    )
    price: float | None = option(
        None,
        "Use one more kWh only if it saves this many seconds of run time (--planner priced).",
        minimum=0.0,
        maximum=1e9,
        shown="3000",
    )


def carbon(
    question: Question,
    decision: Decision,
    limit: Budget,
    period_s: float = option(900.0, "Seconds until the next decision.", minimum=1.0, maximum=86_400.0),
    rounds: int | None = option(
        None, "Periods to plan with --apply slurm.", minimum=1, maximum=100_000, shown="one decision"
    ),
    speed: float = option(1.0, "Seconds of the grid per second of --rounds.", minimum=1.0, maximum=1e5),
    form: Format = FORM,
) -> None:
    """Choose GPU counts and clocks of jobs under a carbon budget; print the next decision with its reasons."""
    from pipelines.connect.plan_inputs import body_of
    from pipelines.simulation.energy.grid_files import series_of

    if rounds and (decision.apply != "slurm" or decision.show or decision.out):
        raise BadUsage("--rounds: expected with --apply slurm, and without --commands and --out")
    if limit.price is not None and limit.planner != "priced":
        raise BadUsage("--price: found with --planner two_stages, expected --planner priced")
    if speed != 1.0 and not rounds:
        raise BadUsage("--speed: found without --rounds, expected both; one decision takes no time")
    if rounds and period_s < LEAST_PERIOD_S * speed:
        raise BadUsage(f"--speed: found periods of {period_s / speed:.2g} s, expected {LEAST_PERIOD_S:g} s or more")
    now = question.now
    series = series_of(question.grid, question.zone, "carbon", now, now + (rounds or 0) * period_s)
    weighed = {"planner": limit.planner, **({} if limit.price is None else {"price_s_per_kwh": limit.price})}
    limits = {"period_s": period_s, "budget": limit.budget, "budget_g": limit.budget_g, "g_per_kwh": series.at(now)}
    body = body_of("carbon", question.jobs, decision.nodes, now, **limits, **weighed)
    if rounds:
        from modelserve.calls.plans import plan_rows
        from pipelines.connect.slurm.plan_loop import run_loop

        emit(run_loop(body, series, now, decide=plan_rows, rounds=rounds, speed=speed, say=say), form)
        return
    decision.made(body, form)


def cost(
    question: Question,
    decision: Decision,
    period_s: float = option(3600.0, "Seconds until the next decision.", minimum=1.0, maximum=86_400.0),
    form: Format = FORM,
) -> None:
    """Place jobs with due dates on nodes at the lowest cost of tardiness and energy; print the next decision."""
    from pipelines.connect.plan_inputs import body_of
    from pipelines.simulation.energy.grid_files import series_of

    now = question.now
    series = series_of(question.grid, question.zone, "price", now, now)
    # Energy after the period is priced at the mean of the last day, as far as it is known.
    day_ago = max(now - 86_400.0, series.start_s)
    later = series.mean(day_ago, now) if now > day_ago else series.at(now)
    prices = {"usd_per_kwh": series.at(now), "later_usd_per_kwh": later}
    decision.made(body_of("cost", question.jobs, decision.nodes, now, period_s=period_s, **prices), form)


def hold(
    question: Question,
    by: Literal["carbon", "price"] = option("carbon", "Series by which jobs are held."),
    form: Format = FORM,
) -> None:
    """Say for each job whether to start it now, or until when to hold it within its slack."""
    from modelserve.calls.plans import hold_rows
    from pipelines.connect.plan_inputs import hold_body
    from pipelines.simulation.energy.grid_files import series_of

    now = question.now
    series = series_of(question.grid, question.zone, by, now, now)
    emit(hold_rows(hold_body(question.jobs, series, by, now), now), form)


def speeds(
    where: InLake,
    jobs: Path = option(REQUIRED, "File of jobs, one JSON object per line."),
    with_feedback: str | None = option(None, "Also learn from the jobs in this store of a service.", metavar="URL"),
) -> None:
    """Add to jobs how fast they run with other GPUs, from the history of their groups; print them as JSON lines."""
    from pipelines.connect.plan_inputs import plan_jobs, with_speeds
    from pipelines.models.training_tables import read_tables

    with where.opened() as (source, name):
        tables = read_tables(source, name, feedback=with_feedback)
    filled, notes = with_speeds(plan_jobs(jobs), tables.jobs)
    for job in filled:
        typer.echo(job.model_dump_json(exclude_defaults=True))
    for note in notes:
        say(f"note: {note}")


COMMANDS: Final[Commands] = {
    "plan": Group(help="Decide when, where and how fast own jobs run.", commands=named(carbon, cost, hold, speeds))
}
