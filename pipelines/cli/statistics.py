"""`taut stats`: statistics of a trace, their definitions, and a comparison with published numbers.

Options and output only; the work is in `pipelines.statistics`.
"""

from typing import Final

import typer

from pipelines.cli.commands import named
from pipelines.cli.options import CLUSTER, FORM, Format, InLake, emit, say
from pipelines.errors import BadUsage, LakeError, meant
from pipelines.options import argument, option

OVERVIEW: Final = ("period", "status_counts", "sizes", "run_time", "queueing_delay")
"""Names of the statistics that are printed if the user names none."""


def stats(
    where: InLake,
    names: tuple[str, ...] = argument((), "Names of statistics; --list prints them.", shown=" ".join(OVERVIEW)),
    cluster: str | None = CLUSTER,
    by: tuple[str, ...] = option((), "Split by this dimension (may be repeated)."),
    listing: bool = option(False, "List the statistics with their definitions.", name="--list"),
    verify: bool = option(False, "Compare the lake with published numbers."),
    form: Format = FORM,
) -> None:
    """Compute statistics of a trace, or compare them with published numbers.

    --verify compares a number only if the lake has the rows that it describes, and prints the difference. For every
    other number it prints why it cannot be computed from these files.
    """
    if ((listing or verify) and (names or by or cluster)) or (listing and verify):
        raise BadUsage("--list and --verify cannot be combined with each other, names, --by or --cluster")
    if listing:
        _list(form)
    elif verify:
        _verify(where, form)
    else:
        _compute(names or OVERVIEW, where, cluster, by, form)


def _list(form: Format) -> None:
    from pipelines.statistics.shown import listed_lines, listing

    if form == "table":
        typer.echo("\n".join(listed_lines()))
    else:
        emit(listing(), form)


def _verify(where: InLake, form: Format) -> None:
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.statistics.published import read_published
    from pipelines.statistics.shown import tally, verdict_rows
    from pipelines.statistics.verification import verify

    with OpenLake(where.place().lake) as source:
        checked = verify(source, read_published(), None if where.trace is None else [where.trace])
    emit(verdict_rows(checked) if form == "table" else checked, form)
    say(tally(checked))


def _compute(names: tuple[str, ...], where: InLake, cluster: str | None, by: tuple[str, ...], form: Format) -> None:
    from pipelines.statistics import STATISTICS, cluster_note
    from pipelines.statistics.shown import screen_rows, together

    unknown = [name for name in names if name not in STATISTICS]
    if unknown:
        raise BadUsage(
            f"no statistic {unknown[0]!r}; expected one of {', '.join(STATISTICS)}{meant(unknown[0], STATISTICS)}"
        )
    with where.opened() as (source, name):
        answers = {each: STATISTICS[each].answer(source, name, by, cluster) for each in dict.fromkeys(names)}
        only = cluster_note(source, name)
    for each, answer in answers.items():
        if answer.reason is not None:
            say(f"{each}: {answer.reason}")
    if only and any(answer.cluster not in (None, cluster) for answer in answers.values()):
        say(only)
    told = {each: answer.rows for each, answer in answers.items() if answer.reason is None}
    if not told:
        raise LakeError(f"{name} has no rows for any of: {', '.join(answers)}; the reasons are above")
    if form != "table":
        emit(together(told.items()), form)
        return
    for each, rows in told.items():
        if len(told) > 1:
            typer.echo(f"# {each}: {STATISTICS[each].title} ({STATISTICS[each].unit})")
        emit(screen_rows(rows, by), form)


COMMANDS: Final = named(stats)
