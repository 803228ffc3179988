"""`taut recommend | schedule | place | explain-pending`: what jobs should request, where they start, or why they wait.

Options and output only; the local models answer.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from pipelines.cli.commands import named
from pipelines.cli.options import (
    FORM,
    FORM_JSON,
    OFFLINE,
    Format,
    Guard,
    InLake,
    emit,
    trace_of,
)
from pipelines.cli.rightsize import PATCH, PatchFormat, advice_patches
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, argument, option

if TYPE_CHECKING:
    from modelserve.contract.placements import ClusterBody

Body = TypeVar("Body", bound="ClusterBody")
MOST_BYTES: Final = 16 * 2**20
"""Maximum size of a file, that of a body of the service."""

CLUSTER_FILE: str = argument(
    REQUIRED, "JSON file of machines, running jobs and the queue; - reads stdin.", metavar="FILE.json|-"
)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of Algorithm 1."""

    theta: float = option(0.05, "Largest relative change of the predicted run time.", minimum=0.0001, maximum=1.0)
    alpha0: float | None = option(
        None,
        "Smallest share of a request that is tried.",
        minimum=0.0,
        maximum=0.99,
        shown="0.05, without a guard 0.5",
    )
    sure_runs: int = option(50, "Measured runs from which an important request shrinks too.", minimum=0)
    guard: Guard = option("usage", "`none` is the published algorithm, without floors.")


@dataclass(frozen=True, kw_only=True)
class AnswerLog:
    """Options to show a logged answer of the service."""

    explain: str | None = option(None, "Show the logged answer of this id with its evidence.")
    store: str | None = option(None, "URL of the service's store.", shown="TAUT_SERVE_STORE, else next to the lake")


def recommend(
    where: InLake,
    parameters: Parameters,
    logged: AnswerLog,
    jobs: str | None = argument(None, "File of jobs, one JSON object per line or one array; - reads stdin."),
    offline: bool = OFFLINE,
    patch: PatchFormat | None = PATCH,
    form: Format = FORM_JSON,
) -> None:
    """Recommend a smaller request per job, with the reason for every resource; jobs come as JSON lines.

    With --explain no job is read: a logged answer is shown. A table has one line per resource: `raise` marks requests
    below the measured use, `high` targets that save half of the request or more.
    """
    from pipelines.rightsizing.table import advice_rows

    if (jobs is None) == (logged.explain is None):
        raise BadUsage("give a job file, or --explain ID")
    if logged.explain is not None:
        _explain(logged.explain, where.lake, logged, form)
        return
    rows = _recommended(str(jobs), where, parameters, offline)
    if patch is not None:
        typer.echo(advice_patches(rows, patch), nl=False)
    else:
        emit(advice_rows(rows) if form == "table" else rows, form)


def _recommended(jobs: str, where: InLake, parameters: Parameters, offline: bool) -> list[dict[str, object]]:
    from features.vocabulary import GPU_MEM_GIB_OF_TYPE
    from modelserve.calls.recommendations import recommend as run
    from modelserve.contract.jobs import flat
    from pipelines.cli.opening import champions, read_jobs
    from scheduler_core.shrink import ShrinkPolicy

    predictor = champions(where.place(), offline=offline)
    policy = ShrinkPolicy(
        theta=parameters.theta,
        alpha0=parameters.alpha0,
        sure_runs=parameters.sure_runs,
        guard=parameters.guard,
        device_mem_gib=GPU_MEM_GIB_OF_TYPE,
    )
    answers = run(read_jobs(jobs), predictor, trace=trace_of(where.lake, where.trace), policy=policy)
    return [flat(answer) for answer in answers]


def _explain(answer_id: str, lake: Path | None, logged: AnswerLog, form: Format) -> None:
    from pipelines.cli.opening import logged_rows
    from pipelines.cli.serving import serve_settings

    emit(logged_rows(answer_id, store=serve_settings(lake, {"store": logged.store}).store), form)


def place(file: str = CLUSTER_FILE, form: Format = FORM_JSON) -> None:
    """Place the waiting jobs of a cluster: machines and GPUs, or why a job waits, with the reason.

    The file holds `machines`, `running`, `jobs` and the rules, as `POST /v1/placements` takes them.
    """
    from modelserve.calls.placements import place as decide
    from modelserve.contract.placements import PendingBody

    emit([_placed(row, row["reason"]) for row in decide(_read(file, PendingBody))], form)


def explain_pending(
    file: str = CLUSTER_FILE,
    job: tuple[str, ...] = option((), "Id of a waiting job (may be repeated).", shown="the first ten in queue order"),
    form: Format = FORM_JSON,
) -> None:
    """Explain why jobs of a cluster wait, and what would start each now; every change is tried.

    The file is as for `taut place`.
    """
    from modelserve.calls.placements import explain
    from modelserve.contract.placements import PendingBody

    body = _read(file, PendingBody, **({"explain": job} if job else {}))
    emit([_row(row) for row in explain(body)], form)


def schedule(
    where: InLake,
    file: str = CLUSTER_FILE,
    offline: bool = OFFLINE,
    form: Format = FORM,
) -> None:
    """Shrink the waiting jobs of a cluster, then place them: what each gets, and where it starts or why it waits.

    The file is as for `taut place`; its jobs also name what predicts them, as for `taut recommend`.
    """
    from modelserve.calls.schedule import schedule as decide
    from modelserve.contract.jobs import flat
    from modelserve.contract.placements import ScheduleBody
    from pipelines.cli.opening import champions

    body = _read(file, ScheduleBody)
    predictor = champions(where.place(), offline=offline)
    rows = decide(body, predictor, trace=trace_of(where.lake, where.trace or body.trace))
    if form == "table":
        emit([_brief(row) for row in rows], form)
    else:
        emit([_placed(flat({**row, "reason": None}), row["reason"]) for row in rows], form)


def _read(source: str, kind: "type[Body]", **given: object) -> "Body":
    """Read a cluster from a file or stdin; the fields that are `given` replace those in the file."""
    from pydantic import ValidationError

    from modelserve.bundle.card import complaint
    from modelserve.errors import BadRequest

    try:
        if source == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(source).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadUsage(f"{source}: found no file that can be read; expected JSON, or - for stdin") from error
    if len(data) > MOST_BYTES:
        raise BadUsage(f"{source}: found more than {MOST_BYTES} bytes; split the cluster")
    try:
        body = kind.model_validate_json(data)
        return kind.model_validate(body.model_dump(exclude_unset=True) | given)
    except ValidationError as error:
        raise BadRequest(f"{source}: {complaint(error)}") from error


def _placed(row: Mapping[str, Any], reason: Mapping[str, Any]) -> dict[str, object]:  # Any: JSON values
    """Return a placement as one flat row: its machines as text, and the fields of its reason."""
    kept = {name: value for name, value in row.items() if name != "reason"}
    return {**kept, "on": _where(row["on"]), **reason, "short": _counts(reason["short"])}


def _brief(row: Mapping[str, Any]) -> dict[str, object]:  # Any: JSON values
    """Return a scheduled job as a short row: each amount as `3.3 of 6, shrunk`, its machines, and why."""
    amounts = {
        name: "" if asked is None else f"{row['given'][name]:g} of {asked:g}, {row['reasons'][name]}"
        for name, asked in row["request"].items()
    }
    return {"job_id": row["job_id"], **amounts, "on": _where(row["on"]) or "waits", "why": row["reason"]["text"]}


def _row(row: Mapping[str, object]) -> dict[str, object]:
    """Return an explanation as one flat row; the sentence comes last."""
    found = dict(row)
    text, changes = found.pop("text"), found.pop("changes")
    must_end = found["must_end"]
    return {
        **found,
        "short": _counts(found["short"]),
        "must_end": "; ".join(must_end) if isinstance(must_end, Sequence) else None,
        "changes": "; ".join(each["text"] for each in changes) if isinstance(changes, Sequence) else None,
        "text": text,
    }


def _where(on: object) -> str:
    """Return machines as text: `m1`, `m1 x2 [0,1]` for two instances on the GPUs 0 and 1."""
    spots = on if isinstance(on, Sequence) else ()
    return "; ".join(
        each["machine"]
        + (f" x{each['instances']}" if each["instances"] > 1 else "")
        + (f" [{','.join(map(str, each['devices']))}]" if each["devices"] else "")
        for each in spots
    )


def _counts(short: object) -> str:
    return ", ".join(f"{cause} {count}" for cause, count in short.items()) if isinstance(short, Mapping) else ""


COMMANDS: Final = named(recommend, schedule, place, explain_pending)
