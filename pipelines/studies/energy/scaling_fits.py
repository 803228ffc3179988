"""Errors of the scaling models at the GPU counts they were fitted to, and at counts held out.

Fitting is `scheduler_core.planning.scaling`'s. Called by `pipelines.studies.energy.fits`.
"""

import numpy as np
import polars as pl

from pipelines.studies.energy.measured import gpus_per_node, scaling_model
from pipelines.studies.study import Row
from scheduler_core.planning.scaling import ScalingModel, scaling_error

LEAST_COUNTS = 3
"""Of GPUs, so that one can be held out and two are left to tell a slope."""


def scaling_rows(steps: pl.DataFrame) -> list[Row]:
    """Return a row per application and cluster: its error, and that at each GPU count when it is held out.

    `largest_error_pct` is at the largest count, fitted to all smaller ones. Where rows are suspect there is no model.
    """
    nodes = {
        str(cluster): gpus_per_node(rows) for (cluster,), rows in steps.filter(~pl.col("suspect")).group_by("cluster")
    }
    rows: list[Row] = []
    for (application, cluster), measured in steps.group_by("application", "cluster", maintain_order=True):
        said = {
            "application": application,
            "cluster": cluster,
            "rows": len(measured),
            "suspect": int(measured["suspect"].sum()),
            "counts": measured["gpus"].n_unique(),
        }
        on_a_node = nodes.get(str(cluster), 1)
        rows.append({**said, **(_nothing() if measured["suspect"].any() else _judged(measured, on_a_node))})
    return sorted(rows, key=lambda row: (str(row["application"]), str(row["cluster"])))


def _judged(measured: pl.DataFrame, on_a_node: int) -> Row:
    """Return the errors of one application on one cluster."""
    model = scaling_model(measured, on_a_node)
    counts = measured["gpus"].unique().sort().to_list()
    out: list[float] = []
    if len(counts) >= LEAST_COUNTS:
        for count in counts:
            at = pl.col("gpus") == count
            out.append(_error_pct(scaling_model(measured.filter(~at), on_a_node), measured.filter(at)))
    return {
        "gamma": model.gamma,
        "error_pct": _error_pct(model, measured),
        "held_out_error_pct": float(np.mean(out)) if out else None,
        "held_out_worst_pct": float(np.max(out)) if out else None,
        "largest_error_pct": out[-1] if out else None,
    }


def _nothing() -> Row:
    return dict.fromkeys(("gamma", "error_pct", "held_out_error_pct", "held_out_worst_pct", "largest_error_pct"))


def _error_pct(model: ScalingModel, rows: pl.DataFrame) -> float:
    columns = (rows[name].to_numpy() for name in ("gpus", "nodes", "batch_per_gpu", "step_s"))
    return 100.0 * scaling_error(model, *columns)
