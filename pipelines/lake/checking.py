"""Dry run of an ingest: apply every rule to all rows, write only to a temporary folder, advise on each problem.

The real ingest is in `pipelines.lake.ingest`. Called by `taut ingest --check`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from pipelines.errors import PipelineError, SourceError
from pipelines.lake.connections import MEMORY_MB
from pipelines.lake.faults import values_at_fault
from pipelines.lake.inputs import (
    Cluster,
    check_any_good,
    check_share,
    clusters_in,
    prior_manifest,
    published_tables,
    source_named,
    trace_named,
)
from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Account, Manifest
from pipelines.lake.raw_rows import header_lines, line_texts, parsed, record_texts, split_lines
from pipelines.lake.sources.archive import Published
from pipelines.lake.sources.source import Source
from pipelines.lake.staging import broken_by, load, parts, remarks, write
from pipelines.lake.views import QUARANTINE

__all__ = ["check"]

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
    "total_contradicts_sum": "the total is not the sum of its parts: correct one of them",
    "unknown_status": "the status is not in the list of known ones: correct it",
    "unparsable_attempt_time": "an attempt's time cannot be read: expected YYYY-MM-DD HH:MM:SS",
    "unreadable_line": "the line is not UTF-8 text, or is too long: fetch or export the file again",
    "use_beyond_measure": "no device is that busy: is the unit right?",
}
UNPARSABLE: Final = "unparsable_"


def cure_of(source: Source, rule: str) -> str:
    """Return advice on how to correct rows that break a rule of a source.

    >>> from pipelines.lake.sources import SOURCES
    >>> cure_of(SOURCES["pai"], "unparsable_plan_cpu")
    'plan_cpu is not in the expected format: correct it, or leave it empty'
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The result of a check; `failure` is the reason why an ingest would fail (None: it would succeed)."""

    trace: str
    accounts: tuple[Account, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    failure: str | None

    @property
    def rows_in(self) -> int:
        """Return the number of rows read."""
        return sum(a.rows_in for a in self.accounts)

    @property
    def rows_quarantined(self) -> int:
        """Return the number of rows that would go to quarantine."""
        return sum(a.rows_quarantined for a in self.accounts)


def check(
    source: str | Source,
    from_dir: str | Path,
    lake: str | Path,
    as_name: str | None = None,
    strict_share: float | None = None,
) -> CheckReport:
    """Report what an ingest of these files into this lake would do, without changing the lake.

    The parameters are those of `pipelines.lake.ingest.ingest`.

    Raises
    ------
    BadUsage
        If the source is unknown, the name is not valid, or the trace was ingested from another source.
    """
    declared = source if isinstance(source, Source) else source_named(source)
    trace = trace_named(declared, from_dir, as_name)
    prior_manifest(Lake(lake), trace, declared)
    accounts: list[Account] = []
    problems: list[Problem] = []
    warnings: list[str] = []
    failure = None
    try:
        folder = Path(from_dir).absolute()
        for cluster in clusters_in(declared, folder):
            _check_cluster(declared, trace, cluster, folder, accounts, problems, warnings)
        manifest = Manifest(
            trace=trace,
            source=declared.name,
            inputs=(),
            accounts=tuple(accounts),
            outputs=(),
            warnings=(),
            zone=declared.zone,
        )
        check_any_good(manifest, declared)
        check_share(manifest, strict_share)
    except PipelineError as error:
        failure = str(error)
    except (OSError, duckdb.Error) as error:
        failure = f"the files cannot be read: {str(error).partition(chr(10))[0][:300]}"
    return CheckReport(
        trace=trace,
        accounts=tuple(accounts),
        problems=tuple(problems),
        warnings=tuple(warnings),
        failure=failure,
    )


def _check_cluster(
    source: Source,
    trace: str,
    cluster: Cluster,
    folder: Path,
    accounts: list[Account],
    problems: list[Problem],
    warnings: list[str],
) -> None:
    """Load a cluster in a temporary folder and append its results to the three lists, even if loading then fails."""
    with TemporaryDirectory(prefix="taut-check-") as scratch:
        stage = Path(scratch)
        published, absent = published_tables(source, cluster, folder, stage)
        warnings += [f"{cluster.name}: no {name} table: its columns are empty or null" for name in absent]
        with Lake(stage).workbench(stage, MEMORY_MB, None) as work:
            try:
                accounts += load(work, source, cluster.name, published)
            except SourceError:
                problems += _problems(work, source, cluster.name, published)
                raise
            problems += _problems(work, source, cluster.name, published)
            warnings += [f"{cluster.name}: {text}" for text in remarks(work, source)]
            for table, select in source.outputs.items():
                for part in parts(work, source, table):
                    write(work, select, part, table, trace, cluster.name, stage / f"{table}.parquet")


def _problems(
    work: duckdb.DuckDBPyConnection, source: Source, cluster: str, published: list[Published]
) -> Iterator[Problem]:
    for one in published:
        counted = sorted(broken_by(work, one.table.name), key=lambda each: (-each[1], each[0]))
        for rule, rows, numbers in counted:
            yield Problem(
                cluster=cluster,
                file=one.file or "",
                table=one.table.name,
                rule=rule,
                rows=rows,
                first=_places(work, one, rule, numbers),
                found=_found(work, one, rule, numbers[0])[:SHOWN_CHARACTERS],
                cure=cure_of(source, rule),
            )


def _found(work: duckdb.DuckDBPyConnection, one: Published, rule: str, number: int) -> str:
    """Return the values at fault in a quarantined row, or the row's text if the rule is about the row as a whole."""
    table, values = one.table, values_at_fault(one.table, rule)
    raw = f"""SELECT row, raw AS line FROM {QUARANTINE} WHERE "table" = '{table.name}' AND row = {number}"""
    if values is None or one.plain is None:
        query = f"SELECT line FROM ({raw})"
    elif one.records is not None:
        records = f"(SELECT * FROM {one.records.numbered} WHERE row = {number})"
        query = f"SELECT {values} FROM {parsed(table, records, record_texts(table))}"
    else:
        query = f"SELECT {values} FROM {parsed(table, split_lines(table, f'({raw})'), line_texts(table))}"
    return str((work.execute(query).fetchone() or ("",))[0] or "")


def _places(work: duckdb.DuckDBPyConnection, one: Published, rule: str, numbers: list[int]) -> str:
    """Return where rows `numbers` are in the file: line numbers of a text file, else row numbers from 1."""
    table, word, places = one.table, "row", numbers
    if one.records is not None:
        found = f"SELECT place FROM {one.records.numbered} WHERE row IN ({', '.join(map(str, numbers))}) ORDER BY row"
        word, places = table.counted_in, [row[0] for row in work.execute(found).fetchall()]
    elif not table.json_array:
        # Rows that DuckDB could not read are numbered by line already, header included.
        before = 0 if rule == "unreadable_line" else header_lines(table)
        word, places = "line", [number + before for number in numbers]
    return f"{word} {', '.join(map(str, places))}"
