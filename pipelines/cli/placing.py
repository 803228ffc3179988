"""`taut place | explain-pending`: where waiting jobs of a cluster start now, why they wait, and what would start them.

Options and output only.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipelines.cli.commands import named
from pipelines.cli.options import FORM_JSON, Format, ServiceOptions, emit
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, argument, option

if TYPE_CHECKING:
    from modelserve.contract.placements import PendingBody

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

    body = _read(file)
    if not service.url:
        rows = decide(body)
    else:
        cluster = body.model_dump(exclude_unset=True, exclude={"explain"})
        with service.client(len(body.jobs)) as client:
            said = client.placements(cluster).placements
        rows = [{**row.model_dump(exclude={"reason"}), **row.reason.model_dump()} for row in said]
    emit([{**row, "on": _where(row["on"]), "short": _counts(row["short"])} for row in rows], form)


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

    body = _read(file, job)
    if not service.url:
        rows = explain(body)
    else:
        cluster = body.model_dump(exclude_unset=True, exclude={"explain"})
        with service.client(len(body.jobs)) as client:
            rows = [row.model_dump() for row in client.explain_pending(cluster, job_ids=body.explain).pending]
    emit([_row(row) for row in rows], form)


def _read(source: str, jobs: Sequence[str] = ()) -> "PendingBody":
    """Read a cluster from a file or stdin; `jobs`, the ids of the jobs to explain, replace the ids in the file."""
    from pydantic import ValidationError

    from modelserve.bundle.card import complaint
    from modelserve.contract.placements import PendingBody
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
        body = PendingBody.model_validate_json(data)
        named = {"explain": tuple(jobs)} if jobs else {}
        return PendingBody.model_validate(body.model_dump(exclude_unset=True) | named)
    except ValidationError as error:
        raise BadRequest(f"{source}: {complaint(error)}") from error


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


COMMANDS: Final = named(place, explain_pending)
