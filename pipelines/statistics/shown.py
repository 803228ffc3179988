"""Lay out statistics for a terminal: a few wide rows are transposed."""

from collections.abc import Iterable, Sequence
from typing import Final

import polars as pl

from pipelines.statistics import STATISTICS

__all__ = ["listed_lines", "listing", "screen_rows", "together"]

WIDEST: Final = 10
"""Maximum number of columns of a table that is not transposed."""
UPRIGHT_ROWS: Final = 8
"""Maximum number of rows of a table that is transposed; more do not fit side by side."""


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


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return str(value)
