"""Lay out statistics for a terminal (a few wide rows are transposed), and comparisons with published numbers."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import polars as pl

from pipelines.statistics import STATISTICS

__all__ = ["listed_lines", "listing", "screen_rows", "tally", "together", "verdict_rows"]

WIDEST: Final = 10
"""Maximum number of columns of a table that is not transposed."""
UPRIGHT_ROWS: Final = 8
"""Maximum number of rows of a table that is transposed; more do not fit side by side."""

_RANKS: Final = {"off": 0, "match": 1, "not computable": 2}


def listing() -> list[dict[str, object]]:
    """Return one row per statistic: name, title, unit, dimensions and definition."""
    columns = ("name", "title", "unit", "by", "definition")
    rows = [{name: getattr(each, name) for name in columns} for each in STATISTICS.values()]
    return [{**row, "by": " ".join(row["by"])} for row in rows]


def listed_lines() -> list[str]:
    """Return lines of text for each statistic: name, title and unit, then the definition and the dimensions."""
    lines = []
    for each in STATISTICS.values():
        by = [f"    --by {', '.join(each.by)}"] if each.by else []
        lines += [f"{each.name}: {each.title} ({each.unit})", f"    {each.definition}", *by]
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
    return [{"": name, **dict(zip(heads, map(_text, rows[name].to_list()), strict=True))} for name in measures]


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


def tally(checked: pl.DataFrame) -> str:
    """Return the counts of numbers that matched, differed and could not be computed, as a sentence.

    >>> tally(pl.DataFrame({"verdict": ["match", "match", "not computable"]}))
    '2 match, 0 off, 1 not computable from these files'
    """
    counts = {name: checked.filter(pl.col("verdict") == name).height for name in _RANKS}
    return f"{counts['match']} match, {counts['off']} off, {counts['not computable']} not computable from these files"


def _verdict(row: Mapping[str, object]) -> str:
    off_by, relative = row["off_by"], row["off_by_frac"]
    if row["verdict"] != "off" or not isinstance(off_by, float):
        return str(row["verdict"])
    return f"off by {off_by:.4g}" + (f" ({relative:+.2%})" if isinstance(relative, float) else "")


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return str(value)
