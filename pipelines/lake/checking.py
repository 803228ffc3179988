"""A dry run of an ingest: everything is read and every rule applied, nothing is written beside a scratch folder.

What an ingest does with the same files is `pipelines.lake.ingest`'s. Called by `taut ingest --check`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from pipelines.errors import PipelineError, SourceError
from pipelines.lake.ingest import check_any_good, check_share, prior_manifest, trace_named
from pipelines.lake.lake import QUARANTINE, Lake
from pipelines.lake.line_rows import header_lines, numbered_records
from pipelines.lake.manifest import Account, Manifest
from pipelines.lake.source_files import Cluster, clusters_in, published_tables, source_named
from pipelines.lake.sources.source import RawTable, Source
from pipelines.lake.staging import Published, load, parts, remarks, write

_EXPORT: Final = "the row is at fault, not its form: correct or leave it; it stays out"
_ORDER: Final = (
    "are the columns exchanged, or of different zones? In an hour that a change of clocks repeats, "
    "times need their offset or must be epochs"
)
CURES: Final[dict[str, str]] = {
    "capacity_beyond_measure": "no machine has that much: is the unit right?",
    "column_count": "the row has more or fewer fields than its header: fetch or export the file again",
    "duplicate_key": "the key occurred before, and the first row was kept: leave one row per key",
    "duration_contradicts_times": "the duration is not end less start: correct one of them",
    "end_before_start": f"the end lies before the start: {_ORDER}",
    "free_above_total": "more memory is free than there is: are the columns exchanged?",
    "missing_key": "a row that names nothing cannot be referred to: fill in its key",
    "negative": "a number below zero: correct it",
    "negative_capacity": "a machine with less than nothing: correct the number",
    "negative_request": "a request below zero: correct the number",
    "negative_time": "a time span below zero: are start and end exchanged?",
    "negative_use": "use below zero: correct the number",
    "no_capacity": "a machine without its sizes cannot be used: fill them in",
    "no_gpu_count": "a machine without its number of GPUs: fill it in, 0 for none",
    "no_instances": "fewer than one instance: leave it empty where it is not known",
    "no_job": "no job of that id in the job table: is one of the files older?",
    "no_request": "a pod without a request: fill it in, 0 for none",
    "no_submit_time": "a job without a time of submission has no place in any history: fill it in",
    "no_task": "no task of that name in the task table: is one of the files older?",
    "request_beyond_measure": "nobody asks for that much: is the unit right?",
    "share_contradicts_gpus": "a share of a GPU is of one GPU: correct either number",
    "start_before_submit": f"the start lies before the submission: {_ORDER}",
    "start_outside_task": "an instance that starts while its task does not run: is one of the files older?",
    "time_beyond_measure": "longer than three centuries: is the unit right?",
    "total_contradicts_sum": "the total is not the sum of its parts: correct one of them",
    "unknown_status": "a state that no vocabulary lists: correct it",
    "unparsable_attempt_time": "an attempt's time that is none: expected YYYY-MM-DD HH:MM:SS",
    "unreadable_line": "the line is no UTF-8 text, or too long: fetch or export the file again",
    "use_beyond_measure": "no device is that busy: is the unit right?",
}
UNPARSABLE: Final = "unparsable_"


def cure_of(source: Source, rule: str) -> str:
    """Return what to do about rows that break a rule of a source.

    >>> from pipelines.lake.sources import SOURCES
    >>> cure_of(SOURCES["pai"], "unparsable_plan_cpu")
    'plan_cpu is not written as the format has it: correct it, or leave it empty'
    """
    told = source.cures.get(rule) or CURES.get(rule)
    if told is None and rule.startswith(UNPARSABLE):
        return f"{rule.removeprefix(UNPARSABLE)} is not written as the format has it: correct it, or leave it empty"
    return told or _EXPORT


SHOWN = 3
SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A rule that rows of a file break: how many, the first of them by their place in the file, and the cure."""

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
    """What an ingest would meet; `failure` is why it would commit nothing (None: it would go through)."""

    trace: str
    accounts: tuple[Account, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    failure: str | None

    @property
    def rows_in(self) -> int:
        """Return how many rows were read."""
        return sum(a.rows_in for a in self.accounts)

    @property
    def rows_quarantined(self) -> int:
        """Return how many rows would go to quarantine."""
        return sum(a.rows_quarantined for a in self.accounts)


def check(
    source: str | Source,
    from_dir: str | Path,
    lake: str | Path,
    as_name: str | None = None,
    strict_share: float | None = None,
) -> CheckReport:
    """Tell what an ingest of these files into this lake would do, and do nothing.

    Parameters are those of `pipelines.lake.ingest.ingest`.

    Raises
    ------
    BadUsage
        If the source is unknown, the name cannot be meant, or the trace holds what another source read.
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
            trace=trace, source=declared.name, inputs=(), accounts=tuple(accounts), outputs=(), warnings=()
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
    """Load a cluster as an ingest does, in a folder that is removed; what was found before a failure stays found."""
    with TemporaryDirectory(prefix="taut-check-") as scratch:
        stage = Path(scratch)
        published, absent = published_tables(source, cluster, folder, stage)
        warnings += [f"{cluster.name}: no {name} table: what it feeds is empty or null" for name in absent]
        with Lake(stage).workbench(stage) as work:
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
        counted = work.execute(
            f"""SELECT rule, count(*), min_by(raw, row, {SHOWN}), min(row, {SHOWN}) FROM {QUARANTINE}
            WHERE "table" = ? GROUP BY rule ORDER BY count(*) DESC, rule""",
            [one.table.name],
        ).fetchall()
        for rule, rows, raws, numbers in counted:
            yield Problem(
                cluster=cluster,
                file=one.file or "",
                table=one.table.name,
                rule=rule,
                rows=rows,
                first=_places(work, one.table, one.plain, rule, numbers),
                found=(raws[0] or "")[:SHOWN_CHARACTERS] if raws else "",
                cure=cure_of(source, rule),
            )


def _places(work: duckdb.DuckDBPyConnection, table: RawTable, plain: Path | None, rule: str, numbers: list[int]) -> str:
    """Return where the first rows stand: lines of a text, else rows from 1."""
    word, places = "row", numbers
    if table.records is not None and plain is not None:
        found = (
            f"SELECT place FROM {numbered_records(plain)} WHERE row IN ({', '.join(map(str, numbers))}) ORDER BY row"
        )
        word, places = table.counted_in, [row[0] for row in work.execute(found).fetchall()]
    elif not table.json_array:
        # What DuckDB could not read at all is numbered by its line already.
        before = 0 if rule == "unreadable_line" else header_lines(table)
        word, places = "line", [number + before for number in numbers]
    return f"{word} {', '.join(map(str, places))}"
