"""How `taut ingest` opens files, ingests them or only checks them, and what it says of either.

The options stand in `pipelines.cli.data`, which calls this; the work is in `pipelines.{ingest, checking, generic}`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import typer

from pipelines.cli.options import Format, emit, say
from pipelines.cli.progress import step
from pipelines.errors import BadUsage
from pipelines.lake.checking import check
from pipelines.lake.ingest import ingest
from pipelines.lake.manifest import flat
from pipelines.lake.sources import SOURCES
from pipelines.lake.sources.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """A source, the folder of its files, and how people call that place."""

    source: str | Source
    folder: Path
    shown: str


@contextmanager
def opened_files(source: str, place: str, mapping: Path | None) -> Iterator[Files]:
    """Open what is to be ingested.

    Raises
    ------
    BadUsage
        If a mapping is given for a published format, or none for one's own files.
    """
    if source in SOURCES:
        if mapping is not None:
            raise BadUsage(f"a mapping for {source}, whose columns are known; use it with `taut ingest generic`")
        yield Files(source=source, folder=Path(place), shown=place)
        return
    # Mappings and the readers of own files take time and memory that a published format needs not.
    from pipelines.lake.generic.opening import opened_source

    if mapping is None:
        raise BadUsage("no --mapping; expected the TOML file that docs/own-cluster.md explains")
    # An address may hold a password.
    shown = "the database" if "://" in place else place
    with step(f"opening {shown}"), opened_source(mapping, place) as opened:
        yield Files(source=opened.source, folder=opened.folder, shown=shown)


def ingest_files(files: Files, lake: Path, as_name: str | None, strict: float | None, form: Format) -> None:
    """Ingest, and tell what became of the rows."""
    with step(f"reading {files.shown}"):
        report = ingest(files.source, files.folder, lake, as_name=as_name, strict_share=strict)
    for warning in report.manifest.warnings:
        say(f"warning: {warning}")
    for account in report.manifest.accounts:
        if account.rows_quarantined:
            rules = ", ".join(f"{rule} {rows}" for rule, rows in account.quarantined.items())
            say(f"warning: {account.file}: {account.rows_quarantined} of {account.rows_in} rows quarantined ({rules})")
    emit(list(flat(report.manifest)), form)
    say(f"{'ingested' if report.changed else 'unchanged'}: trace {report.manifest.trace} in {lake}")


def check_files(files: Files, lake: Path, as_name: str | None, strict: float | None, form: Format) -> None:
    """Check, and tell each problem with its place and cure; exit 1 where an ingest would fail."""
    with step(f"checking {files.shown}"):
        report = check(files.source, files.folder, lake, as_name=as_name, strict_share=strict)
    for warning in report.warnings:
        say(f"warning: {warning}")
    emit(
        [
            {"file": p.file, "rule": p.rule, "rows": p.rows, "first": p.first, "found": p.found, "cure": p.cure}
            for p in report.problems
        ],
        form,
    )
    if report.failure is not None:
        say(f"taut: an ingest would fail: {report.failure}")
        raise typer.Exit(1)
    good = report.rows_in - report.rows_quarantined
    say(f"checked: {good} of {report.rows_in} rows would be ingested as {report.trace}; nothing was written")
