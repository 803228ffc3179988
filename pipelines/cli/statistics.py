"""`taut stats`: statistics of a trace, their definitions, and a comparison with published numbers.

Options and output only; the work is in `pipelines.statistics`.
"""

from pathlib import Path
from typing import Annotated, Final

import typer

from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Trace, emit, opened, place_of, say

OVERVIEW: Final = ("period", "status_counts", "sizes", "run_time", "queueing_delay")
"""Names of the statistics that are printed if the user names none."""


def stats(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names of statistics; --list prints them.", show_default=" ".join(OVERVIEW)),
    ] = None,
    lake: Lake = None,
    trace: Trace = None,
    cluster: Cluster = None,
    by: Annotated[
        list[str] | None, typer.Option("--by", help="Split by this dimension (may be repeated).", show_default=False)
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the statistics with their definitions.")] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the lake with published numbers.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compute statistics of a trace, or compare them with published numbers.

    --verify compares a number only if the lake has the rows that it describes, and prints the difference. For every
    other number it prints why it cannot be computed from these files.
    """
    from pipelines.errors import BadUsage

    if ((listing or verify) and (names or by or cluster)) or (listing and verify):
        raise BadUsage("--list and --verify cannot be combined with each other, names, --by or --cluster")
    if listing:
        _list(form)
    elif verify:
        _verify(lake, trace, form)
    else:
        _compute(names or list(OVERVIEW), lake, trace, cluster, by or [], form)


def _list(form: Format) -> None:
    from pipelines.statistics.shown import listed_lines, listing

    if form is Format.TABLE:
        typer.echo("\n".join(listed_lines()))
    else:
        emit(listing(), form)


def _verify(lake: str | Path | None, trace: str | None, form: Format) -> None:
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.statistics.published import read_published
    from pipelines.statistics.shown import tally, verdict_lines
    from pipelines.statistics.verification import verify

    with OpenLake(place_of(lake).lake) as source:
        checked = verify(source, read_published(), None if trace is None else [trace])
    if form is Format.TABLE:
        typer.echo("\n".join(verdict_lines(checked)))
    else:
        emit(checked, form)
    say(tally(checked))


def _compute(
    names: list[str], lake: str | Path | None, trace: str | None, cluster: str | None, by: list[str], form: Format
) -> None:
    from pipelines.errors import BadUsage, LakeError, meant
    from pipelines.statistics import STATISTICS, cluster_note
    from pipelines.statistics.shown import screen_rows, together

    unknown = [name for name in names if name not in STATISTICS]
    if unknown:
        raise BadUsage(
            f"no statistic {unknown[0]!r}; expected one of {', '.join(STATISTICS)}{meant(unknown[0], STATISTICS)}"
        )
    with opened(lake, trace) as (source, name):
        answers = {each: STATISTICS[each].answer(source, name, by, cluster) for each in dict.fromkeys(names)}
        only = cluster_note(source, name)
    for each, answer in answers.items():
        if answer.unanswerable is not None:
            say(f"{each}: {answer.unanswerable.reason}")
    if only and any(answer.cluster not in (None, cluster) for answer in answers.values()):
        say(only)
    told = {each: answer.rows for each, answer in answers.items() if answer.unanswerable is None}
    if not told:
        raise LakeError(f"{name} has no rows for any of: {', '.join(answers)}; the reasons are above")
    if form is not Format.TABLE:
        emit(together(told.items()), form)
        return
    for each, rows in told.items():
        if len(told) > 1:
            typer.echo(f"# {each}: {STATISTICS[each].title} ({STATISTICS[each].unit})")
        emit(screen_rows(rows, by), form)


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(stats)
