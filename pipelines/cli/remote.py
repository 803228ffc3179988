"""Call a running prediction service for commands: its client, its token, its responses as flat rows.

Imported inside the command functions of `pipelines.cli`.
"""

import os
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from modelserve.client import Client, Timeouts
from modelserve.contract.jobs import Prediction, Recommended, flat
from modelserve.contract.requests import MAX_JOBS, JobRow
from modelserve.errors import ClientError
from pipelines.cli.options import Format, ServiceOptions, emit, say
from pipelines.errors import BadUsage, ConnectError, SourceError
from pipelines.settings import load_settings

TOKEN_VARIABLE: Final = "TAUT_TOKEN"  # noqa: S105  # the name of a variable, not a token
PART_LIMIT_S: Final = 60.0
"""Timeout in seconds for one part of a long list of jobs; longer than a scheduler's, because a person waits."""

CARDS_LIMIT_S: Final = 5.0
"""Timeout in seconds for the list of models."""
SETS_SURE_RUNS: Final = "only available without --url; for a service, set TAUT_SERVE_TYPES (sure_runs)"

Row = dict[str, object]


def predicted_rows(jobs: Sequence[JobRow], service: ServiceOptions, *, trace: str | None) -> list[Row]:
    """Ask the service for predictions; return rows with the answer's id."""
    trace = trace or load_settings().trace
    with service.client(len(jobs)) as client:
        answers = client.predictions(jobs, trace=trace)
        return [_predicted(job, row, trace) for job, row in zip(jobs, answers, strict=True)]


def recommended_row(row: Recommended) -> Row:
    """Return a recommendation as a flat row with the service's mode and the answer's id."""
    beside = {"answer_id", "mode", "alpha", "model_decided", "evidence"}
    return {**flat(row.model_dump(mode="json", exclude=beside)), "mode": row.mode, "answer_id": row.answer_id}


def cut_of(url: str, token_file: Path | None, *, traces: Collection[str]) -> datetime | None:
    """Return the training cut of the service's champion models for `traces`; None if unknown.

    The models were trained only on jobs that ended before the cut.
    """
    client = Client(url, token=token_of(token_file), timeouts=Timeouts(answer_s=CARDS_LIMIT_S, total_s=CARDS_LIMIT_S))
    try:
        with client:
            models = client.models().models
    except ClientError:
        return None
    cuts = [model.until for model in models if model.alias == "champion" and model.trace in traces]
    return max(cuts, default=None)


def client_of(urls: Sequence[str], token_file: Path | None, *, jobs: int) -> Client:
    """Return a client of the service at `urls` with a timeout that grows with the number of `jobs`."""
    parts = max(-(-jobs // MAX_JOBS), 1)
    return Client(
        *urls,
        token=token_of(token_file),
        timeouts=Timeouts(answer_s=PART_LIMIT_S, total_s=min(PART_LIMIT_S * parts, 86_400.0)),
    )


def each_round(made: Callable[[], Sequence[Row]], form: Format, *, every_s: float, rounds: int | None) -> None:
    """Write the rows of one round after another; a failure is reported, and raised if the last of the rounds fails."""
    done = 0
    while rounds is None or done < rounds:
        if done:
            time.sleep(every_s)
        done += 1
        try:
            rows = made()
        except (SourceError, ConnectError, ClientError) as error:
            if done == rounds:
                raise
            say(f"warning: {error}; goes on trying")
        else:
            emit(rows, form, kinds=True)


def _predicted(job: JobRow, row: Prediction, trace: str | None) -> Row:
    said = row.model_dump(mode="json")
    times, peaks = said["run_time_s"] or {}, said["peak_use"] or {}
    return {
        "job_id": row.job_id,
        "trace": job.trace or trace,
        "task_type": job.task_type,
        **{f"run_time_{name}_s": times.get(name) for name in ("p50", "p90")},
        "basis": row.basis,
        "ended_jobs": row.ended_jobs,
        "verdict": row.verdict,
        **{f"peak_{name}": peaks.get(name) for name in ("cpu_cores", "mem_gib", "gpus", "gpu_mem_gib")},
        "measured_runs": row.measured_runs,
        "model_run_time": row.models.run_time,
        "model_usage": row.models.usage,
        "history": said["history"],
        "reason": row.reason,
        "note": row.note,
        "answer_id": row.answer_id,
    }


def token_of(file: Path | None, variable: str = TOKEN_VARIABLE) -> str | None:
    """Return the token in a file, else in an environment variable; None without either."""
    if file is None:
        return os.environ.get(variable) or None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadUsage(f"--token-file {file}: {reason}; expected a file that holds the token") from error
