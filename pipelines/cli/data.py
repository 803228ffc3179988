"""`taut fetch | synth | init | ingest | sql`: get trace files, guess mappings, fill and query a lake.

Options and output only; the work is in `pipelines.fetch`, `pipelines.synth` and `pipelines.lake`.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import typer

from pipelines.cli.commands import named
from pipelines.cli.failures import naming, write_whole
from pipelines.cli.options import FORM, LAKE, SEED, EngineOptions, Format, emit, place_of, say
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, argument, option

if TYPE_CHECKING:
    from pipelines.lake.sources.source import Source


def fetch(
    trace: Literal["pai", "pai-sample", "helios", "philly", "openb", "energy"] = argument(
        REQUIRED, "Published trace, or the measured tables of the energy studies."
    ),
    to: Path | None = option(None, "Folder to fill.", shown="data/raw/<trace>"),
) -> None:
    """Download a published trace, verify and unpack it; a second run resumes a broken download."""
    from pipelines.cli.progress import byte_progress
    from pipelines.fetch.fetch import fetch as run
    from pipelines.fetch.publication import publication

    folder = to or Path("data/raw") / trace
    with byte_progress(each=True) as progress:
        files = run(trace, folder, progress=progress)
    emit([file.row() for file in files], "table")
    say(f"next: {publication(trace).next.format(to=folder)}")


def synth(
    trace: Literal["pai"] = argument(REQUIRED, "Published format."),
    to: Path = option(Path("data/raw/pai-synth"), "Folder to fill."),
    tasks: int = option(20_000, "How many tasks.", minimum=1000),
    tagged_share: float | None = option(None, "Share of jobs that carry a workload tag.", minimum=0.0, maximum=1.0),
    seed: int = SEED,
) -> None:
    """Generate a synthetic trace in the published format, with all its tables."""
    from pipelines.synth.pai import synthesise

    with naming(to):
        made = synthesise(to, tasks=tasks, seed=seed, tagged_share=tagged_share)
    emit(made.rows(), "table")
    say("synthetic, not measured; ingest it under its own name:")
    say(f"  taut ingest {trace} --from {to} --as pai-synth")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Options for the files to ingest, and the name of their trace."""

    from_dir: str = option(REQUIRED, "Folder of the files; for generic also one file.", name="--from")
    mapping: Path | None = option(None, "For generic: TOML file that names the columns and units.")
    as_name: str | None = option(None, "Name of the trace in the lake.", name="--as", shown="the format's name")
    strict: float | None = option(
        None, "Fail if a larger share of a file's rows is quarantined.", minimum=0.0, maximum=1.0
    )


def ingest(
    wanted: Wanted,
    engine: EngineOptions,
    source: Literal["pai", "helios", "philly", "openb", "generic"] = argument(
        REQUIRED, "Published format; generic: own files with a mapping."
    ),
    lake: Path | None = LAKE,
    check: bool = option(False, "Print what would be quarantined, where and why; write nothing."),
    form: Format = FORM,
) -> None:
    """Read files into the lake's tables; every row is kept, or quarantined with the rules it breaks."""
    folder = place_of(lake, demo=False).lake
    files = _opened_files(source, wanted.from_dir, wanted.mapping)
    if check:
        _check_files(*files, folder, wanted, form)
    else:
        _ingest_files(*files, folder, wanted, engine, form)


def init(
    file: Path = argument(REQUIRED, "CSV file of your jobs with a header (.gz is unpacked), or Parquet."),
    to: Path = option(Path("mapping.toml"), "Mapping file to write; it must not exist."),
    form: Format = FORM,
) -> None:
    """Guess the mapping of your own jobs from names and values, print how sure each column is, and write it.

    Uncertain lines end with LOOK and the reason in the file.
    """
    from pipelines.lake.generic.guessing import guess_mapping

    if to.exists():
        raise BadUsage(f"{to} exists already, and may hold your edits; name another with --to, or remove it")
    if not to.absolute().parent.is_dir():
        raise BadUsage(f"--to {to}: there is no folder {to.parent}; make it first")
    guessed = guess_mapping(file)
    write_whole(to, guessed.toml())
    emit(guessed.rows(), form)
    for doubt in guessed.doubts:
        say(f"look: {doubt}")
    say(f"not used: {', '.join(guessed.unused) or 'none'}")
    say(f"next: edit {to} where it says LOOK, then taut ingest generic --mapping {to} --from {file} --check")


def _opened_files(source: str, location: str, mapping: Path | None) -> "tuple[str | Source, Path]":
    """Return the source, by name if its format is published, and the folder of its files."""
    from pipelines.lake.sources import SOURCES

    if source in SOURCES:
        if mapping is not None:
            raise BadUsage(f"--mapping given for {source}, whose columns are known; use it with `taut ingest generic`")
        return source, Path(location)
    # Imported only here, because published formats do not need the mapping code.
    from pipelines.lake.generic.opening import opened_source

    if mapping is None:
        raise BadUsage("no --mapping; write one with `taut init FILE.csv`, or by hand (docs/own-cluster.md)")
    opened = opened_source(mapping, location)
    return opened.source, opened.folder


def _ingest_files(
    source: "str | Source", folder: Path, lake: Path, wanted: Wanted, engine: EngineOptions, form: Format
) -> None:
    """Ingest the files; print one row per published table, and a warning for each file with quarantined rows."""
    from pipelines.cli.progress import byte_progress
    from pipelines.lake.ingest import ingest as run
    from pipelines.lake.manifest import flat

    runner, threads = engine.chosen(None)
    with byte_progress(f"reading {wanted.from_dir}") as progress:
        report = run(
            source,
            folder,
            lake,
            as_name=wanted.as_name,
            strict_share=wanted.strict,
            progress=progress,
            engine=runner,
            threads=threads,
        )
    for warning in report.manifest.warnings:
        say(f"warning: {warning}")
    for account in report.manifest.accounts:
        if account.rows_quarantined:
            rules = ", ".join(f"{rule} {rows}" for rule, rows in account.quarantined.items())
            say(f"warning: {account.file}: {account.rows_quarantined} of {account.rows_in} rows quarantined ({rules})")
    emit(list(flat(report.manifest)), form)
    say(f"{'ingested' if report.changed else 'unchanged'}: trace {report.manifest.trace} in {lake}")


def _check_files(source: "str | Source", folder: Path, lake: Path, wanted: Wanted, form: Format) -> None:
    """Check the files; print where each problem is and how to fix it. Exit with code 1 if an ingest would fail."""
    from pipelines.cli.progress import step
    from pipelines.lake.ingest import check

    with step(f"checking {wanted.from_dir}"):
        report = check(source, folder, lake, as_name=wanted.as_name, strict_share=wanted.strict)
    for warning in report.manifest.warnings if report.manifest else ():
        say(f"warning: {warning}")
    emit(
        [
            {"file": p.file, "rule": p.rule, "rows": p.rows, "first": p.first, "found": p.found, "cure": p.cure}
            for p in report.problems
        ],
        form,
    )
    if report.manifest is None:
        say(f"taut: an ingest would fail: {report.failure}")
        raise typer.Exit(1)
    good = report.manifest.rows_in - report.manifest.rows_quarantined
    say(f"checked: {good} of {report.manifest.rows_in} rows would be ingested as {report.trace}; nothing was written")


def sql(
    query: str = argument(REQUIRED, "One SELECT over the tables and views named above; - reads it from stdin."),
    lake: Path | None = LAKE,
    form: Format = FORM,
    memory_mb: int = option(1500, "Most memory of the query, in MB.", minimum=100),
    time_s: float = option(60.0, "Longest time of the query, in seconds.", minimum=0.01),
    spill_mb: int = option(1000, "Limit of spill to disk, in MB.", minimum=0),
) -> None:
    """Run one SELECT over the lake; other statements and files outside the lake are refused.

    Tables: jobs, usage, machines, capacity, machine_usage, environment, quarantine. Views: jobs_with_usage, gpu_hours,
    over_claim, machine_hours, gpu_days.
    """
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.lake.sql import query as run

    text = sys.stdin.read() if query == "-" else query
    most = {"memory_mb": memory_mb, "spill_mb": spill_mb}
    with OpenLake(place_of(lake).lake) as source:
        emit(run(source, text, time_s=time_s, tabular=form == "table", **most), form)


COMMANDS: Final = named(fetch, synth, init, ingest, sql)
