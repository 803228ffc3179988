"""`taut recommend | simulate`: the smaller request for each job, and what shrinking does to a cluster.

No logic beyond reading options and writing rows. Called by `pipelines.cli`, which registers the commands.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.cli.options import (
    Format,
    FormatOption,
    Lake,
    Offline,
    Seed,
    TokenFile,
    Trace,
    Urls,
    emit,
    say,
)

THETA: Final = 0.05
"""Largest relative change of the predicted run time, in this process."""

OptionalJobsFile = Annotated[
    str | None, typer.Argument(help="File of jobs, one JSON object a line; - reads stdin.", show_default=False)
]


class GuardOption(StrEnum):
    """Whether measured peak use bounds a shrink from below."""

    USAGE = "usage"
    NONE = "none"


class QueueOption(StrEnum):
    """In what order the queue is served."""

    FIFO = "fifo"
    SRTF = "srtf"
    DRF = "drf"


class PlacementOption(StrEnum):
    """Where a gang's instances go."""

    BEST_FIT = "best_fit"
    FIRST_FIT = "first_fit"


class PredictorOption(StrEnum):
    """Who predicts in a simulation."""

    CHAMPION = "champion"
    NONE = "none"


class Truth(StrEnum):
    """What a shrunk job's run becomes."""

    UNCHANGED = "unchanged"
    PREDICTED = "predicted"
    CONTENTION = "contention"


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
            show_default="0.05, or what the service is set to",
        ),
    ] = None,
    guard: Annotated[
        GuardOption | None,
        typer.Option(
            help="`none` is the published algorithm, without floors.",
            show_default="usage, or what the service is set to",
        ),
    ] = None,
    offline: Offline = False,
    url: Urls = None,
    token_file: TokenFile = None,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Make the logged answer of this id again, with its evidence.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", help="URL of the service's store.", show_default="TAUT_SERVE_STORE, else by the lake"),
    ] = None,
    bundles: Annotated[
        Path | None,
        typer.Option(
            "--bundles", help="Folder of mirrored bundles.", show_default="TAUT_SERVE_BUNDLES, else by the lake"
        ),
    ] = None,
    form: FormatOption = Format.JSON,
) -> None:
    """Recommend a smaller request per job, with the reason for every resource; jobs come as JSON lines.

    With --url the service there answers. With --explain no job is read: an answer of the log is made again.
    """
    from pipelines.errors import BadUsage

    if (jobs is None) == (explain is None):
        raise BadUsage("found both or neither of a file of jobs and --explain, expected one of them")
    if explain is not None:
        _explain(explain, lake, store, bundles, form)
    elif url:
        _recommend_there(str(jobs), (url, token_file, trace), theta, guard, form)
    else:
        _recommend_here(str(jobs), (lake, trace, offline), theta or THETA, guard or GuardOption.USAGE, form)


def _recommend_here(
    jobs: str, where: tuple[Path | None, str | None, bool], theta: float, guard: GuardOption, form: Format
) -> None:
    from modelserve.recommend import flat
    from modelserve.recommend import recommend as run
    from pipelines.cli.opening import champions, place_of, read_jobs, trace_of
    from scheduler_core.shrink import ShrinkPolicy

    lake, trace, offline = where
    predictor = champions(place_of(lake), offline=offline)
    policy = ShrinkPolicy(theta=theta, guard=guard.value, device_mem_gib=GPU_MEM_GIB_OF_TYPE)
    answers = run(read_jobs(jobs), predictor, trace=trace_of(lake, trace), policy=policy)
    emit([flat(answer) for answer in answers], form)


def _recommend_there(
    jobs: str,
    where: tuple[list[str], Path | None, str | None],
    theta: float | None,
    guard: GuardOption | None,
    form: Format,
) -> None:
    from pipelines.cli.opening import read_jobs
    from pipelines.cli.remote import recommended_rows

    urls, token_file, trace = where
    rows = recommended_rows(
        read_jobs(jobs),
        urls,
        token_file,
        trace=trace,
        theta=theta,
        guard=None if guard is None else "usage" if guard is GuardOption.USAGE else "none",
    )
    emit(rows, form)


def _explain(answer_id: str, lake: Path | None, store: str | None, bundles: Path | None, form: Format) -> None:
    from pipelines.cli.evidence import replayed
    from pipelines.cli.serve_settings import serve_settings

    settings = serve_settings(lake, {"store": store, "bundles": bundles})
    found = replayed(answer_id, store=settings.store, bundles=settings.bundles)
    emit(found.rows, form)
    if not found.equal:
        say(f"taut: {answer_id}: the answer made again differs from the one in the log; expected the same bytes")
        raise typer.Exit(1)
    say(f"{answer_id}: the same {found.size_bytes} bytes again")


def simulate(
    lake: Lake = None,
    trace: Trace = None,
    predictor: Annotated[
        PredictorOption, typer.Option(help="Whose predictions shrink the requests.")
    ] = PredictorOption.CHAMPION,
    rate: Annotated[float, typer.Option(help="Arrivals per hour (Poisson).", min=0.01, max=100_000.0)] = 70.0,
    hours: Annotated[float, typer.Option(help="Length of the window.", min=0.1, max=10_000.0)] = 12.0,
    policy: Annotated[QueueOption, typer.Option(help="Queue order.")] = QueueOption.FIFO,
    placement: Annotated[PlacementOption, typer.Option(help="Where a gang's instances go.")] = PlacementOption.BEST_FIT,
    truth: Annotated[
        list[Truth] | None,
        typer.Option(help="What a shrunk job's run becomes (may be repeated).", show_default="all three"),
    ] = None,
    guard: Annotated[
        list[GuardOption] | None, typer.Option(help="Guards to run (may be repeated).", show_default="usage")
    ] = None,
    mix: Annotated[
        list[str] | None,
        typer.Option(help="Weight of a task type, as ctr=65 (may be repeated).", show_default="the trace's own"),
    ] = None,
    replications: Annotated[int, typer.Option(help="Runs with seeds of their own; means are shown.", min=1)] = 1,
    offline: Offline = False,
    seed: Seed = 0,
    form: FormatOption = Format.TABLE,
) -> None:
    """Replay a trace's measured jobs on the paper's cluster, with and without shrinking, under the same arrivals."""
    from pipelines.cli.opening import champions, opened, place_of
    from pipelines.job_pool import job_pool
    from pipelines.simulate import SimulationSettings
    from pipelines.simulate import simulate as run
    from pipelines.simulation_rows import SUMMARY_COLUMNS, averaged

    with opened(lake, trace) as (source, name):
        pool = job_pool(source.table("jobs", name).collect(), source.table("usage", name).collect())
    settings = SimulationSettings(
        rate_per_h=rate,
        horizon_s=hours * 3600.0,
        seed=seed,
        replications=replications,
        mix=_weights(mix),
        queue_policy=policy.value,
        placement=placement.value,
        truths=[t.value for t in truth or Truth],
        guards=[g.value for g in guard or [GuardOption.USAGE]],
    )
    result = run(
        pool, champions(place_of(lake), offline=offline) if predictor is PredictorOption.CHAMPION else None, settings
    )
    for note in result.notes:
        say(note)
    rows = averaged(result.rows) if replications > 1 else result.rows
    wanted = SUMMARY_COLUMNS if form is Format.TABLE else tuple(rows[0])
    emit([{column: row[column] for column in wanted} for row in rows], form)


def _weights(mix: list[str] | None) -> dict[str, float] | None:
    """Read `ctr=65` into weights by task type."""
    from pipelines.errors import BadUsage

    weights = {}
    for entry in mix or []:
        name, _, weight = entry.partition("=")
        try:
            weights[name] = float(weight)
        except ValueError:
            raise BadUsage(f"--mix {entry}: expected a task type and its weight, as ctr=65") from None
        if not (name and 0.0 <= weights[name] < float("inf")):
            raise BadUsage(f"--mix {entry}: expected a task type and a weight of at least 0, as ctr=65")
    if weights and not sum(weights.values()):
        raise BadUsage("--mix: found no weight above 0; expected at least one")
    return weights or None


def register(app: typer.Typer) -> None:
    """Add this file's commands to the app."""
    for command in (recommend, simulate):
        app.command()(command)
