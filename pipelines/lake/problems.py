"""Problems that a dry run shows: the rules that rows of a file break, where, the values at fault, and advice."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import duckdb

from pipelines.lake.reading import SEPARATOR, parsed, values_at_fault
from pipelines.lake.sources.archive import Published
from pipelines.lake.sources.source import Source
from pipelines.lake.views import QUARANTINE

_DEFAULT_CURE: Final = "the row contradicts itself: correct it, or leave it in quarantine"
_ORDER: Final = (
    "are the columns swapped, or in different time zones? In the hour that a clock change repeats, "
    "use times with an offset, or epoch seconds"
)
CURES: Final[dict[str, str]] = {
    "capacity_beyond_measure": "no machine is that large: is the unit right?",
    "column_count": "the row has more or fewer fields than its header: fetch or export the file again",
    "duplicate_key": "an earlier row has the same key and was kept: leave one row per key",
    "duration_contradicts_times": "the duration differs from end - start: correct one of them",
    "end_before_start": f"the end is before the start: {_ORDER}",
    "free_above_total": "free memory exceeds total memory: are the columns swapped?",
    "missing_key": "a key column is empty: fill it in",
    "negative": "the number is negative: correct it",
    "negative_capacity": "the capacity is negative: correct it",
    "negative_request": "the request is negative: correct it",
    "negative_time": "the time span is negative: are start and end swapped?",
    "negative_use": "the use is negative: correct it",
    "no_capacity": "the machine's sizes are missing: fill them in",
    "no_gpu_count": "the machine's number of GPUs is missing: fill it in, 0 for none",
    "no_instances": "fewer than one instance: leave it empty if it is unknown",
    "no_job": "the job table has no job with this id: is one of the files older?",
    "no_request": "the pod's request is missing: fill it in, 0 for none",
    "no_submit_time": "the submission time is missing: fill it in",
    "no_task": "the task table has no task with this name: is one of the files older?",
    "request_beyond_measure": "no job requests that much: is the unit right?",
    "share_contradicts_gpus": "a fraction of a GPU needs num_gpu = 1: correct either number",
    "start_before_submit": f"the start is before the submission: {_ORDER}",
    "start_outside_task": "the instance starts while its task does not run: is one of the files older?",
    "time_beyond_measure": "longer than three centuries: is the unit right?",
    "too_long": "the line is longer than 2 MB: fetch or export the file again",
    "total_contradicts_sum": "the total is not the sum of its parts: correct one of them",
    "unknown_status": "the status is not in the list of known ones: correct it",
    "unparsable_attempt_time": "an attempt's time cannot be read: expected YYYY-MM-DD HH:MM:SS",
    "unreadable_line": "the line is not UTF-8 text: fetch or export the file again",
    "use_beyond_measure": "no device is that busy: is the unit right?",
}
UNPARSABLE: Final = "unparsable_"


def cure_of(source: Source, rule: str) -> str:
    """Return advice on how to correct rows that break a rule of a source."""
    cure = source.cures.get(rule) or CURES.get(rule)
    if cure is None and rule.startswith(UNPARSABLE):
        return f"{rule.removeprefix(UNPARSABLE)} is not in the expected format: correct it, or leave it empty"
    return cure or _DEFAULT_CURE


SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A rule that rows of a file break: the number of these rows, the places of the first, and advice.

    `found` are the values at fault in the first of these rows, or the row's text if the row as a whole is at fault.
    """

    cluster: str
    file: str
    table: str
    rule: str
    rows: int
    first: str
    found: str
    cure: str


SHOWN: Final = 3
"""Number of rows of which a problem gives the places."""


def problems_of(
    work: duckdb.DuckDBPyConnection, source: Source, cluster: str, published: list[Published]
) -> Iterator[Problem]:
    """Yield the problems of the tables that were loaded into `work`, the most frequent of each table first."""
    for one in published:
        for rule, rows, places, nth, raw in work.execute(
            f"""SELECT one, count(*), min(place, {SHOWN}), arg_min(nth, row), arg_min(raw, row) FROM
            (SELECT *, unnest(string_split(rule, '{SEPARATOR}')) AS one FROM {QUARANTINE} WHERE "table" = ?)
            GROUP BY one ORDER BY count(*) DESC, one""",
            [one.table.name],
        ).fetchall():
            word = "row" if one.table.json_array else one.table.counted_in
            values = values_at_fault(one.table, rule)
            found = raw
            if values is not None and nth is not None and one.records is not None:
                row = f"(SELECT * FROM {one.records.numbered} WHERE nth = {nth})"
                [[found]] = work.execute(f"SELECT {values} FROM {parsed(one.table, row)}").fetchall()
            yield Problem(
                cluster=cluster,
                file=one.file or "",
                table=one.table.name,
                rule=rule,
                rows=rows,
                first=f"{word} {', '.join(map(str, places))}",
                found=(found or "")[:SHOWN_CHARACTERS],
                cure=cure_of(source, rule),
            )
