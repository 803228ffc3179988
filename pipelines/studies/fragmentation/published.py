"""The results published with FGD's simulator, and unallocated GPUs beside them, with verdicts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from string import digits
from typing import Final

import polars as pl

from pipelines.errors import SourceError
from pipelines.studies.study import Row

POLICIES: Final = {
    "random": "01-Random",
    "dot_product": "02-DotProd",
    "gpu_clustering": "03-GpuClustering",
    "gpu_packing": "04-GpuPacking",
    "best_fit_gpu": "05-BestFit",
    "fgd": "06-FGD",
}
"""Name of each placement in the published results; the placement that leaves most GPUs unallocated is first."""

DEFAULT: Final = "default"
"""The pod list of the recorded trace; the other lists were derived from it by its publishers."""

FOLDER: Final = Path("openb") / "expected_results"
"""Folder of the results, relative to the folder of published traces."""

ALLOCATED: Final = "analysis_allo_discrete.csv"
RUN: Final = ("workload", "policy", "seed", "arrived_pct")
SCHEMA: Final = {
    "workload": pl.String(),
    "policy": pl.String(),
    "seed": pl.Int64(),
    "arrived_pct": pl.Int64(),
    "unallocated_pct": pl.Float64(),
}

_NAMED: Final = ("workload", "sc_policy", "tune", "seed")
_LIST: Final = "openb_pod_list_"
_TUNE: Final = 1.3
_POLICY_OF: Final = {published: ours for ours, published in POLICIES.items()}


def no_results() -> pl.DataFrame:
    """Return an empty frame with the columns of published results."""
    return pl.DataFrame(schema=SCHEMA)


def usual_folder(traces: Path | None) -> Path | None:
    """Return the folder of the results in the folder of published traces, or None if they are not there."""
    folder = None if traces is None else traces / FOLDER
    return folder if folder is not None and (folder / ALLOCATED).exists() else None


def read_published(folder: Path) -> pl.DataFrame:
    """Read the results: one row per run and whole percent of GPUs requested so far, with columns `SCHEMA`."""
    path = folder / ALLOCATED
    try:
        wide = pl.read_csv(path, infer_schema=False)
        percents = [name for name in wide.columns if re.fullmatch("[0-9]{1,3}", name)]
        long = wide.select(*_NAMED, *percents).unpivot(
            index=_NAMED, variable_name="arrived_pct", value_name="allocated"
        )
        typed = long.cast({"tune": pl.Float64, "seed": pl.Int64, "arrived_pct": pl.Int64, "allocated": pl.Float64})
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0][:120]
        raise SourceError(f"{path} cannot be read ({reason}); expected FGD's published {ALLOCATED}") from error
    runs = typed.filter(
        pl.col("tune") == _TUNE, pl.col("sc_policy").is_in(list(_POLICY_OF)), pl.col("allocated").is_finite()
    ).select(
        pl.col("workload").str.strip_prefix(_LIST),
        pl.col("sc_policy").replace_strict(_POLICY_OF, return_dtype=pl.String).alias("policy"),
        *("seed", "arrived_pct"),
        unallocated_pct=100.0 - pl.col("allocated"),
    )
    if runs.is_empty() or runs.select(RUN).is_duplicated().any():
        raise SourceError(f"{path} lacks runs of {', '.join(_POLICY_OF)}, or has some twice; expected {ALLOCATED}")
    return runs.sort(RUN)


AT_PCT: Final = 100
"""Percent of GPUs requested so far at which placements are compared."""

WITHIN_POINTS: Final = 0.5
"""Tolerance in percentage points between our mean and the published one."""

FEWER_PCT: Final = (44.0, 53.0)
"""Accepted range, in percent, of the reduction of unallocated GPUs by FGD against dot product: published are 49 %, and
the range allows for the spread over seeds."""

ORDER: Final = (("fgd",), ("best_fit_gpu",), ("gpu_packing", "gpu_clustering"), ("dot_product",), ("random",))
"""Expected order of the placements, fewest unallocated GPUs first; placements in one group may come in any order."""


def unallocated_rows(curves: pl.DataFrame, published: pl.DataFrame) -> list[Row]:
    """Return one row per workload and placement: percent of GPUs unallocated at `AT_PCT`, mean and sd over seeds.

    Beside them are the published mean and sd, the difference in percentage points, and whether it is within
    `WITHIN_POINTS` (`met`); without published results these columns are null.
    """
    ours = _means(curves, "unallocated_pct", "sd")
    theirs = _means(published, "published_pct", "published_sd").drop("seeds")
    beside = ours.join(theirs, on=RUN[:2], how="left", maintain_order="left")
    beside = beside.with_columns(difference_points=pl.col("unallocated_pct") - pl.col("published_pct"))
    return beside.with_columns(met=pl.col("difference_points").abs() <= WITHIN_POINTS).to_dicts()


def _means(rows: pl.DataFrame, mean: str, sd: str) -> pl.DataFrame:
    value = pl.col("unallocated_pct")
    at = rows.filter(pl.col("arrived_pct") == AT_PCT)
    return at.group_by(RUN[:2], maintain_order=True).agg(
        value.mean().alias(mean), value.std().alias(sd), seeds=pl.len()
    )


def by_workload(names: Iterable[str]) -> list[str]:
    """Sort workloads for display: the recorded one, then the others by name and number (gpushare40, gpushare100)."""
    return sorted(names, key=lambda name: (name != DEFAULT, name.rstrip(digits), len(name), name))


def bars(rows: Sequence[Row]) -> list[Row]:
    """Compare the rows of `unallocated_rows` with the expected results; one row per expectation."""
    default = {str(row["policy"]): float(str(row["unallocated_pct"])) for row in rows if row["workload"] == DEFAULT}
    return [*_published(rows), *_on_default(default)]


def _published(rows: Sequence[Row]) -> Iterable[Row]:
    for policy in POLICIES:
        run = [row for row in rows if row["policy"] == policy]
        points = [float(str(row["difference_points"])) for row in run if row["met"] is not None]
        met = sum(abs(each) <= WITHIN_POINTS for each in points)
        said = "not judged: no published figures"
        if points:
            said = f"{met} of {len(points)} workloads, farthest {max(points, key=abs):+.2f}"
        if run:
            expected = f"all within {WITHIN_POINTS:g} points"
            yield _bar(f"{policy} as published", said, expected, met=met == len(points) if points else None)


def _bar(bar: str, found: str, expected: str, *, met: bool | None) -> Row:
    return {"bar": bar, "found": found, "expected": expected, "met": met}


def _on_default(unallocated: Mapping[str, float]) -> Iterable[Row]:
    if set(unallocated) == set(POLICIES):
        ascending = sorted(unallocated, key=lambda policy: unallocated[policy])
        places = [[unallocated[policy] for policy in place] for place in ORDER]
        met = all(max(left) < min(right) for left, right in pairwise(places))
        expected = " < ".join(" or ".join(place) for place in ORDER)
        yield _bar(f"order on {DEFAULT}", " < ".join(ascending), expected, met=met)
    if "fgd" in unallocated and unallocated.get("dot_product", 0.0) > 0.0:
        fewer = 100.0 * (1.0 - unallocated["fgd"] / unallocated["dot_product"])
        least, most = FEWER_PCT
        bar = f"fgd against dot_product on {DEFAULT}"
        said = f"{fewer:.1f} % fewer unallocated"
        yield _bar(bar, said, f"{least:g} to {most:g} %", met=least <= fewer <= most)
