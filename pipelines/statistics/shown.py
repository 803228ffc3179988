"""Lay out statistics for a terminal (a few wide rows are transposed), and comparisons with published numbers."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import polars as pl

from pipelines.statistics import STATISTICS

__all__ = ["listed_lines", "listing", "screen_rows", "tally", "together", "verdict_lines"]

WIDEST: Final = 10
"""Maximum number of columns of a table that is not transposed."""
UPRIGHT_ROWS: Final = 8
"""Maximum number of rows of a table that is transposed; more do not fit side by side."""

READ_WIDTH: Final = 118
_SHORT: Final = ("verdict", "published", "found")
_RANKS: Final = {"off": 0, "match": 1, "not computable": 2}


def listing() -> list[dict[str, object]]:
    """Return one row per statistic: name, title, unit, dimensions and definition."""
    return [
        {
            "name": each.name,
            "title": each.title,
            "unit": each.unit,
            "by": " ".join(each.by),
            "definition": each.definition,
        }
        for each in STATISTICS.values()
    ]


def listed_lines() -> list[str]:
    """Return lines of text for each statistic: name, title and unit, then the definition and the dimensions."""
    lines = []
    for each in STATISTICS.values():
        lines += [f"{each.name}: {each.title} ({each.unit})", f"    {each.definition}"]
        if each.by:
            lines.append(f"    --by {', '.join(each.by)}")
    return lines


def screen_rows(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame | list[dict[str, object]]:
    """Return the rows to print; a few wide rows are transposed, with their dimensions as column headings.

    Rows are not transposed if two of them have equal dimensions.
    """
    if rows.width <= WIDEST or rows.height > UPRIGHT_ROWS:
        return rows
    heads = ["  ".join(_text(row[key]) for key in keys) or "value" for row in rows.iter_rows(named=True)]
    if len(set(heads)) < len(heads):
        return rows
    measures = [name for name in rows.columns if name not in keys]
    return [_line(name, dict(zip(heads, rows[name].to_list(), strict=True))) for name in measures]


def together(answers: Iterable[tuple[str, pl.DataFrame]]) -> pl.DataFrame:
    """Join the rows of several statistics to one frame; the column `statistic` names each row's statistic."""
    named = [rows.select(pl.lit(name).alias("statistic"), pl.all()) for name, rows in answers]
    return pl.concat(named, how="diagonal_relaxed") if named else pl.DataFrame()


def verdict_rows(checked: pl.DataFrame) -> list[dict[str, object]]:
    """Return comparisons as table rows: differences first, then matches, then numbers that cannot be computed."""
    ordered = checked.sort(pl.col("verdict").replace_strict(_RANKS, return_dtype=pl.Int8), maintain_order=True)
    return [
        {name: row[name] for name in ("trace", "of", "what", "published", "found")}
        | {"verdict": _verdict(row), "why": row["why"]}
        for row in ordered.iter_rows(named=True)
    ]


def verdict_lines(checked: pl.DataFrame) -> list[str]:
    """Return comparisons as lines of text, grouped by population: differences first, then matches.

    Numbers that cannot be computed come last, grouped by reason.
    """
    rows = verdict_rows(checked)
    compared = [row for row in rows if row["verdict"] != "not computable"]
    lines: list[str] = []
    for (trace, of), numbers in _together(compared, "trace", "of"):
        lines.append(f"# {trace}: {of}")
        widths = [max(len(str(row[name])) for row in numbers) for name in _SHORT]
        for row in numbers:
            cells = [str(row[name]).ljust(width) for name, width in zip(_SHORT, widths, strict=True)]
            lines.append("  ".join(["", *cells, str(row["what"])]))
            lines += _wrapped(str(row["why"]), indent=6) if row["why"] else []
    for (trace, of, why), numbers in _together([r for r in rows if r not in compared], "trace", "of", "why"):
        lines += [f"# {trace}: {of}: not computable", *_wrapped(str(why), indent=2)]
        lines += _wrapped("; ".join(f"{row['what']} {row['published']}" for row in numbers), indent=6)
    return lines


def tally(checked: pl.DataFrame) -> str:
    """Return the counts of numbers that matched, differed and could not be computed, as a sentence.

    >>> tally(pl.DataFrame({"verdict": ["match", "match", "not computable"]}))
    '2 match, 0 off, 1 not computable from these files'
    """
    counts = {name: checked.filter(pl.col("verdict") == name).height for name in _RANKS}
    return f"{counts['match']} match, {counts['off']} off, {counts['not computable']} not computable from these files"


def _together(
    rows: Sequence[Mapping[str, object]], *names: str
) -> Iterable[tuple[tuple[object, ...], list[Mapping[str, object]]]]:
    """Group rows by the values of the columns `names`, in order of first appearance."""
    groups: dict[tuple[object, ...], list[Mapping[str, object]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return groups.items()


def _wrapped(text: str, *, indent: int) -> list[str]:
    lead = " " * indent
    return textwrap.wrap(text, READ_WIDTH, initial_indent=lead, subsequent_indent=lead, break_on_hyphens=False)


def _verdict(row: Mapping[str, object]) -> str:
    off_by, relative = row["off_by"], row["off_by_frac"]
    if row["verdict"] != "off" or not isinstance(off_by, float):
        return str(row["verdict"])
    return f"off by {off_by:.4g}" + (f" ({relative:+.2%})" if isinstance(relative, float) else "")


def _line(name: str, values: Mapping[str, object]) -> dict[str, object]:
    return {"": name, **{head: _text(value) for head, value in values.items()}}


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return str(value)
