"""`taut recommend`: a smaller request for each job, from the local models or a service.

Options and output only.
"""

from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.cli.options import (
    Format,
    FormatOption,
    GuardOption,
    Lake,
    Offline,
    TokenFile,
    Trace,
    Urls,
    emit,
    place_of,
    say,
    trace_of,
)
from pipelines.cli.patches import PatchFormat, PatchOption, advice_patches

THETA: Final = 0.05
"""Default of --theta without a service: maximum relative change of the predicted run time."""


class Parameters(NamedTuple):
    """Parameters of Algorithm 1; None stands for the default."""

    theta: float | None
    alpha0: float | None
    sure_runs: int | None
    guard: GuardOption | None


OptionalJobsFile = Annotated[
    str | None,
    typer.Argument(help="File of jobs, one JSON object per line or one array; - reads stdin.", show_default=False),
]


def recommend(
    jobs: OptionalJobsFile = None,
    lake: Lake = None,
    trace: Trace = None,
    theta: Annotated[
        float | None,
        typer.Option(
            help="Largest relative change of the predicted run time.",
            min=0.0001,
            max=1.0,
            show_default="0.05, or the service's setting",
        ),
    ] = None,
    alpha0: Annotated[
        float | None,
        typer.Option(
            "--alpha0",
            help="Smallest share of a request that is tried.",
            min=0.0,
            max=0.99,
            show_default="0.05, without a guard 0.5, or the service's setting",
        ),
    ] = None,
    sure_runs: Annotated[
        int | None,
        typer.Option(
            "--sure-runs",
            help="Measured runs from which an important request shrinks too.",
            min=0,
            show_default="50, or the service's setting",
        ),
    ] = None,
    guard: Annotated[
        GuardOption | None,
        typer.Option(
            help="`none` is the published algorithm, without floors.",
            show_default="usage, or the service's setting",
        ),
    ] = None,
    offline: Offline = False,
    url: Urls = None,
    token_file: TokenFile = None,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Show the logged answer of this id with its evidence.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", help="URL of the service's store.", show_default="TAUT_SERVE_STORE, else by the lake"),
    ] = None,
    bundles: Annotated[
        Path | None,
        typer.Option("--bundles", help="Folder of cached models.", show_default="TAUT_SERVE_BUNDLES, else by the lake"),
    ] = None,
    patch: PatchOption = None,
    form: FormatOption = Format.JSON,
) -> None:
    """Recommend a smaller request per job, with the reason for every resource; jobs come as JSON lines.

    With --url a service answers. With --explain no job is read: a logged answer is shown. A table has one line
    per resource: `raise` marks requests below the measured use, `high` targets that save half of the request or more.
    """
    from pipelines.errors import BadUsage

    if (jobs is None) == (explain is None):
        raise BadUsage("give a job file, or --explain ID")
    if explain is not None:
        _explain(explain, lake, store, bundles, form)
    elif url:
        rows = _recommended_there(str(jobs), (url, token_file, trace), Parameters(theta, alpha0, sure_runs, guard))
        _print(rows, patch, form)
    else:
        rows = _recommended_here(str(jobs), (lake, trace, offline), Parameters(theta, alpha0, sure_runs, guard))
        _print(rows, patch, form)


def _print(rows: list[dict[str, object]], patch: PatchFormat | None, form: Format) -> None:
    from pipelines.rightsizing.table import advice_rows

    if patch is not None:
        typer.echo(advice_patches(rows, patch), nl=False)
    elif form is Format.TABLE:
        emit(advice_rows(rows), form)
    else:
        emit(rows, form)


def _recommended_here(
    jobs: str, where: tuple[str | None, str | None, bool], parameters: Parameters
) -> list[dict[str, object]]:
    from modelserve.calls.offline import recommend as run
    from modelserve.contract.writing import flat
    from pipelines.cli.opening import champions, read_jobs
    from scheduler_core.shrink import SURE_RUNS, ShrinkPolicy

    lake, trace, offline = where
    theta, alpha0, sure_runs, guard = parameters
    predictor = champions(place_of(lake), offline=offline)
    policy = ShrinkPolicy(
        theta=theta or THETA,
        alpha0=alpha0,
        sure_runs=SURE_RUNS if sure_runs is None else sure_runs,
        guard=(guard or GuardOption.USAGE).value,
        device_mem_gib=GPU_MEM_GIB_OF_TYPE,
    )
    answers = run(read_jobs(jobs), predictor, trace=trace_of(lake, trace), policy=policy)
    return [flat(answer) for answer in answers]


def _recommended_there(
    jobs: str, where: tuple[list[str], Path | None, str | None], parameters: Parameters
) -> list[dict[str, object]]:
    from pipelines.cli.opening import read_jobs
    from pipelines.cli.remote import SETS_SURE_RUNS, recommended_rows
    from pipelines.errors import BadUsage

    urls, token_file, trace = where
    theta, alpha0, sure_runs, guard = parameters
    if sure_runs is not None:
        raise BadUsage(f"found --sure-runs with --url, {SETS_SURE_RUNS}")
    return recommended_rows(
        read_jobs(jobs),
        urls,
        token_file,
        trace=trace,
        theta=theta,
        alpha=alpha0,
        guard=None if guard is None else "usage" if guard is GuardOption.USAGE else "none",
    )


def _explain(answer_id: str, lake: str | Path | None, store: str | None, bundles: Path | None, form: Format) -> None:
    from pipelines.cli.evidence import logged_rows
    from pipelines.cli.serve_settings import serve_settings

    settings = serve_settings(lake, {"store": store, "bundles": bundles})
    rows = logged_rows(answer_id, store=settings.store, bundles=settings.bundles)
    emit(rows, form)
    if any("contributions" in row for row in rows):
        say("contributions are of the XGBoost member alone; what the other members change is part of `base`")


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(recommend)
