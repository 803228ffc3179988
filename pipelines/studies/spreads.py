"""Means of runs with their 95 % intervals, as dots with whiskers need them.

Computed here, since what a chart computes by itself it draws at random. Called by the chart functions.
"""

from collections.abc import Sequence

import polars as pl

from pipelines.studies.intervals import mean


def spreads(runs: pl.DataFrame, keys: Sequence[str], value: str) -> pl.DataFrame:
    """Return a row per group: `mean`, and `low` and `high`, null of one run alone.

    >>> runs = pl.DataFrame({"arm": ["a", "a"], "wait_s": [1.0, 3.0]})
    >>> spreads(runs, ["arm"], "wait_s").rows()
    [('a', 2.0, -10.7..., 14.7...)]
    """
    found = []
    for key, members in runs.group_by(keys, maintain_order=True):
        each = mean(members[value].to_numpy())
        found.append({**dict(zip(keys, key, strict=True)), "mean": each.value, "low": each.low, "high": each.high})
    return pl.DataFrame(found, infer_schema_length=None).with_columns(pl.col("mean", "low", "high").fill_nan(None))
