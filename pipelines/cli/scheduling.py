"""`taut recommend`: a smaller request for each job, from the local models or a service.

Options and output only.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from pipelines.cli.commands import named
from pipelines.cli.options import (
    FORM_JSON,
    OFFLINE,
    Format,
    Guard,
    InLake,
    ServiceOptions,
    emit,
    say,
    trace_of,
)
from pipelines.cli.patches import PATCH, PatchFormat, advice_patches
from pipelines.errors import BadUsage
from pipelines.options import argument, option

THETA: Final = 0.05
"""Default of --theta without a service: maximum relative change of the predicted run time."""


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of Algorithm 1; None stands for the default."""

    theta: float | None = option(
        None,
        "Largest relative change of the predicted run time.",
        minimum=0.0001,
        maximum=1.0,
        shown="0.05, or the service's setting",
    )
    alpha0: float | None = option(
        None,
        "Smallest share of a request that is tried.",
        minimum=0.0,
        maximum=0.99,
        shown="0.05, without a guard 0.5, or the service's setting",
    )
    sure_runs: int | None = option(
        None,
        "Measured runs from which an important request shrinks too.",
        minimum=0,
        shown="50, or the service's setting",
    )
    guard: Guard | None = option(
        None, "`none` is the published algorithm, without floors.", shown="usage, or the service's setting"
    )


@dataclass(frozen=True, kw_only=True)
class AnswerLog:
    """Options to show a logged answer of the service."""

    explain: str | None = option(None, "Show the logged answer of this id with its evidence.")
    store: str | None = option(None, "URL of the service's store.", shown="TAUT_SERVE_STORE, else by the lake")
    bundles: Path | None = option(None, "Folder of cached models.", shown="TAUT_SERVE_BUNDLES, else by the lake")


def recommend(
    where: InLake,
    service: ServiceOptions,
    parameters: Parameters,
    logged: AnswerLog,
    jobs: str | None = argument(None, "File of jobs, one JSON object per line or one array; - reads stdin."),
    offline: bool = OFFLINE,
    patch: PatchFormat | None = PATCH,
    form: Format = FORM_JSON,
) -> None:
    """Recommend a smaller request per job, with the reason for every resource; jobs come as JSON lines.

    With --url a service answers. With --explain no job is read: a logged answer is shown. A table has one line
    per resource: `raise` marks requests below the measured use, `high` targets that save half of the request or more.
    """
    from pipelines.rightsizing.table import advice_rows

    if (jobs is None) == (logged.explain is None):
        raise BadUsage("give a job file, or --explain ID")
    if logged.explain is not None:
        _explain(logged.explain, where.lake, logged, form)
        return
    if service.url:
        rows = _recommended_there(str(jobs), service, where.trace, parameters)
    else:
        rows = _recommended_here(str(jobs), where, parameters, offline)
    if patch is not None:
        typer.echo(advice_patches(rows, patch), nl=False)
    else:
        emit(advice_rows(rows) if form == "table" else rows, form)


def _recommended_here(jobs: str, where: InLake, parameters: Parameters, offline: bool) -> list[dict[str, object]]:
    from features.vocabulary import GPU_MEM_GIB_OF_TYPE
    from modelserve.calls.recommendations import recommend as run
    from modelserve.contract.jobs import flat
    from pipelines.cli.opening import champions, read_jobs
    from scheduler_core.shrink import SURE_RUNS, ShrinkPolicy

    predictor = champions(where.place(), offline=offline)
    policy = ShrinkPolicy(
        theta=parameters.theta or THETA,
        alpha0=parameters.alpha0,
        sure_runs=SURE_RUNS if parameters.sure_runs is None else parameters.sure_runs,
        guard=parameters.guard or "usage",
        device_mem_gib=GPU_MEM_GIB_OF_TYPE,
    )
    answers = run(read_jobs(jobs), predictor, trace=trace_of(where.lake, where.trace), policy=policy)
    return [flat(answer) for answer in answers]


def _recommended_there(
    jobs: str, service: ServiceOptions, trace: str | None, parameters: Parameters
) -> list[dict[str, object]]:
    from pipelines.cli.opening import read_jobs
    from pipelines.cli.remote import SETS_SURE_RUNS, recommended_row
    from pipelines.settings import load_settings

    if parameters.sure_runs is not None:
        raise BadUsage(f"found --sure-runs with --url, {SETS_SURE_RUNS}")
    rows = read_jobs(jobs)
    trace = trace or load_settings().trace
    theta, alpha, guard = parameters.theta, parameters.alpha0, parameters.guard
    with service.client(len(rows)) as client:
        answers = client.recommendations(rows, trace=trace, theta=theta, alpha=alpha, guard=guard)
        return [recommended_row(each) for each in answers]


def _explain(answer_id: str, lake: str | None, logged: AnswerLog, form: Format) -> None:
    from pipelines.cli.evidence import logged_rows
    from pipelines.cli.serve_settings import serve_settings

    settings = serve_settings(lake, {"store": logged.store, "bundles": logged.bundles})
    rows = logged_rows(answer_id, store=settings.store, bundles=settings.bundles)
    emit(rows, form)
    if any("contributions" in row for row in rows):
        say("contributions are of the XGBoost member alone; what the other members change is part of `base`")


COMMANDS: Final = named(recommend)
