"""`taut fetch | synth | ingest | sql`: published files in, a lake out, questions answered.

No logic beyond reading options and writing rows; the work is in `pipelines.{fetch, synth, ingest, sql}`.
Called by `pipelines.cli`, which registers the commands.
"""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.options import Format, FormatOption, Lake, Seed, emit, say


class Fetchable(StrEnum):
    """The traces whose publishers' addresses are known."""

    PAI = "pai"
    HELIOS = "helios"
    PHILLY = "philly"
    OPENB = "openb"


class Ingestible(StrEnum):
    """The published formats that can be read, and any other with a mapping."""

    PAI = "pai"
    HELIOS = "helios"
    PHILLY = "philly"
    OPENB = "openb"
    GENERIC = "generic"


class Synthesised(StrEnum):
    """The formats that can be generated."""

    PAI = "pai"


def fetch(
    trace: Annotated[Fetchable, typer.Argument(help="Which published trace.")],
    to: Annotated[Path | None, typer.Option("--to", help="Folder to fill.", show_default="data/raw/<trace>")] = None,
) -> None:
    """Download a published trace: resumed after a break, verified, unpacked."""
    from pipelines.cli.progress import transfer_progress
    from pipelines.fetch.fetch import fetch as run

    folder = to or Path("data/raw") / trace.value
    with transfer_progress() as progress:
        report = run(trace.value, folder, progress=progress)
    emit(report.rows(), Format.TABLE)
    say(f"next: taut ingest {trace.value} --from {folder}")


def synth(
    trace: Annotated[Synthesised, typer.Argument(help="Which published format.")],
    to: Annotated[Path, typer.Option("--to", help="Folder to fill.")] = Path("data/raw/pai-synth"),
    tasks: Annotated[int, typer.Option("--tasks", help="How many tasks.", min=1000)] = 20_000,
    tagged_share: Annotated[
        float | None,
        typer.Option("--tagged-share", help="Share of jobs that carry a workload tag.", min=0.0, max=1.0),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="As many rows as published, 3.7 GB; leaves --tasks.")] = False,
    seed: Seed = 0,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write published and synthetic quantiles side by side here.")
    ] = None,
) -> None:
    """Generate a synthetic trace in the published format of all its tables."""
    from pipelines.synth.pai import PUBLISHED_INSTANCES, PUBLISHED_TASKS, synthesise

    drawn, instances = (PUBLISHED_TASKS, PUBLISHED_INSTANCES) if full else (tasks, None)
    made = synthesise(to, tasks=drawn, instances=instances, seed=seed, tagged_share=tagged_share)
    emit(made.rows(), Format.TABLE)
    if report is not None:
        from pipelines.studies.synth.report import calibration_report

        report.write_text(calibration_report(to), encoding="utf-8")
    say("synthetic, not measured: ingest it under its own name with")
    say(f"  taut ingest {trace.value} --from {to} --as pai-synth")


def ingest(
    source: Annotated[Ingestible, typer.Argument(help="Which published format; generic: own files, by a mapping.")],
    from_dir: Annotated[
        str, typer.Option("--from", help="Folder of the files; for generic also one file, or postgresql://...")
    ],
    mapping: Annotated[
        Path | None,
        typer.Option("--mapping", help="For generic: TOML of what is in which column.", show_default=False),
    ] = None,
    lake: Lake = None,
    as_name: Annotated[
        str | None, typer.Option("--as", help="Name of the trace in the lake.", show_default="the format's name")
    ] = None,
    strict: Annotated[
        float | None,
        typer.Option("--strict", help="Fail when a larger share of rows is quarantined.", min=0.0, max=1.0),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only tell what would be quarantined, where and why; write nothing.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Read files into the canonical tables; every row is kept or quarantined with its rule."""
    from pipelines.cli.ingesting import check_files, ingest_files, opened_files
    from pipelines.cli.opening import place_of

    place = place_of(lake)
    with opened_files(source.value, from_dir, mapping) as files:
        (check_files if check else ingest_files)(files, place.lake, as_name, strict, form)


def sql(
    query: Annotated[
        str, typer.Argument(help="One SELECT over the tables and views named above; - reads it.", show_default=False)
    ],
    lake: Lake = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Answer one SELECT over the lake; nothing else is run, and nothing outside the lake is read.

    Tables: jobs, usage, machines, capacity, machine_usage, quarantine. Views: jobs_with_usage, gpu_hours, over_claim,
    machine_hours.
    """
    from pipelines.cli.opening import place_of
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.lake.sql import query as run

    text = sys.stdin.read() if query == "-" else query
    with OpenLake(place_of(lake).lake) as source:
        emit(run(source, text), form)


def register(app: typer.Typer) -> None:
    """Add this file's commands to the app."""
    for command in (fetch, synth, ingest, sql):
        app.command()(command)
