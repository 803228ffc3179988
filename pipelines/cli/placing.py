"""`taut schedule | place | explain-pending`: what waiting jobs of a cluster get, where they start, or why they wait.

Options and output only.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pipelines.cli.commands import named
from pipelines.cli.options import FORM, FORM_JSON, OFFLINE, Format, InLake, ServiceOptions, emit, trace_of
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


def place(service: ServiceOptions, file: str = CLUSTER_FILE, form: Format = FORM_JSON) -> None:
    """Place the waiting jobs of a cluster: machines and GPUs, or why a job waits, with the reason.

    The file holds `machines`, `running`, `jobs` and the rules, as `POST /v1/placements` takes them. With --url a
    service answers.
    """
    from modelserve.calls.placements import place as decide
    from modelserve.contract.placements import PendingBody

    body = _read(file, PendingBody)
    if not service.url:
        rows = decide(body)
    else:
        cluster = body.model_dump(exclude_unset=True, exclude={"explain"})
        with service.client(len(body.jobs)) as client:
            rows = [row.model_dump() for row in client.placements(cluster).placements]
    emit([_placed(row, row["reason"]) for row in rows], form)


def explain_pending(
    service: ServiceOptions,
    file: str = CLUSTER_FILE,
    job: tuple[str, ...] = option((), "Id of a waiting job (may be repeated).", shown="the first ten in queue order"),
    form: Format = FORM_JSON,
) -> None:
    """Explain why jobs of a cluster wait, and what would start each now; every change is tried.

    The file is as for `taut place`. With --url a service answers.
    """
    from modelserve.calls.placements import explain
    from modelserve.contract.placements import PendingBody

    body = _read(file, PendingBody, **({"explain": job} if job else {}))
    if not service.url:
        rows = explain(body)
    else:
        cluster = body.model_dump(exclude_unset=True, exclude={"explain"})
        with service.client(len(body.jobs)) as client:
            rows = [row.model_dump() for row in client.explain_pending(cluster, job_ids=body.explain).pending]
    emit([_row(row) for row in rows], form)


def schedule(
    where: InLake,
    service: ServiceOptions,
    file: str = CLUSTER_FILE,
    offline: bool = OFFLINE,
    form: Format = FORM,
) -> None:
    """Shrink the waiting jobs of a cluster, then place them: what each gets, and where it starts or why it waits.

    The file is as for `taut place`; its jobs also name what predicts them, as for `taut recommend`. With --url a
    service answers, and in its mode `observe` jobs keep their requests.
    """
    from modelserve.calls.schedule import schedule as decide
    from modelserve.contract.jobs import flat
    from modelserve.contract.placements import ScheduleBody
    from pipelines.settings import load_settings

    body = _read(file, ScheduleBody)
    if not service.url:
        from pipelines.cli.opening import champions

        predictor = champions(where.place(), offline=offline)
        rows = decide(body, predictor, trace=trace_of(where.lake, where.trace or body.trace))
    else:
        trace = where.trace or body.trace or load_settings().trace
        with service.client(len(body.jobs)) as client:
            said = client.schedule(body.model_dump(exclude_unset=True) | ({} if trace is None else {"trace": trace}))
        rows = [row.model_dump(mode="json") | {"answer_id": said.answer_id} for row in said.schedule]
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
    text, nearest, changes = found.pop("text"), found.pop("nearest"), found.pop("changes")
    missing = dict(nearest["missing"]) if isinstance(nearest, Mapping) else {}
    must_end = found["must_end"]
    return {
        **found,
        "short": _counts(found["short"]),
        "must_end": "; ".join(must_end) if isinstance(must_end, Sequence) else None,
        "nearest": nearest["machine"] if isinstance(nearest, Mapping) else None,
        **{f"missing_{name}": missing.get(name) for name in ("cpu_cores", "mem_gib", "gpus")},
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


COMMANDS: Final = named(schedule, place, explain_pending)
