"""The results published with FGD's simulator: unallocated GPUs of each run, read from the published traces."""

import re
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.errors import SourceError

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
KEYS: Final = ("workload", "policy", "seed", "arrived_pct")
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
    if runs.is_empty() or runs.select(KEYS).is_duplicated().any():
        raise SourceError(f"{path} lacks runs of {', '.join(_POLICY_OF)}, or has some twice; expected {ALLOCATED}")
    return runs.sort(KEYS)
