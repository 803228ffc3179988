"""SHAP values of a model's answers about later jobs: what each feature added to each answer.

Values are the shap package's; drawing them is `pipelines.report.charts.attributions`'. Called by
`pipelines.report.models`.

References
----------
Lundberg and others, "From Local Explanations to Global Understanding with Explainable AI for Trees" (2020).
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.history import History
from features.reference import build_referenced
from features.tables import TASK_TYPES, has_ended

if TYPE_CHECKING:
    from modelserve.bundle.bundle import Bundle

EXPLAINED_JOBS: Final = 60
"""Jobs of a swarm at most: as many points stand in each row."""
LEAST_LATER: Final = 20
"""Later jobs below which the newest of all are explained instead."""
EXPLAINED_FEATURES: Final = 7

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """What the features added to the answers of one target: rows of feature, shap and rank, most important first.

    `later` tells whether the jobs were submitted after the model's cut, and so not learnt from.
    """

    target: str
    rows: pl.DataFrame
    jobs: int
    later: bool


def attributions(bundle: "Bundle", jobs: pl.DataFrame, history: History) -> list[Attribution]:
    """Return the attributions of every target of a model, over jobs of its type spread evenly over its later ones.

    A model of several quantiles is explained at its first (the median of run time), in its own units: log run time
    against its reference, or log1p of use. Each job is seen as of its submission.
    """
    shown, later = explained_jobs(jobs, bundle)
    if not shown.height:
        return []
    built = build_referenced(shown, history, bundle.contract.names, relative=bundle.card.relative)
    matrix = bundle.contract.encode(built.features)
    values = shap_values(bundle, matrix)
    ranks = _ranks(matrix, bundle.contract.feature_types)
    return [
        Attribution(target=target, rows=_rows(found, ranks, bundle.contract.names), jobs=shown.height, later=later)
        for target, found in values.items()
    ]


def explained_jobs(jobs: pl.DataFrame, bundle: "Bundle") -> tuple[pl.DataFrame, bool]:
    """Return at most `EXPLAINED_JOBS` ended jobs of the model's type, and whether all came after its cut."""
    card = bundle.card
    column = "task_type" if card.task_type in TASK_TYPES else "workload"
    own = jobs.filter(pl.col(column) == card.task_type, has_ended()).sort("submit_ts", "cluster", "job_id", "role")
    after = own.filter(pl.col("submit_ts") >= card.until)
    later = after.height >= LEAST_LATER
    chosen = after if later else own.tail(EXPLAINED_JOBS)
    at = np.unique(np.linspace(0, max(chosen.height - 1, 0), EXPLAINED_JOBS).astype(np.int64))
    return chosen[at] if chosen.height else chosen, later


def shap_values(bundle: "Bundle", matrix: npt.NDArray[np.float32]) -> Mapping[str, FloatArray]:
    """Return the SHAP values (n, k) of each target's first output, for encoded rows (n, k)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its import sets up colours of drawings that are never made
        import shap  # type: ignore[import-untyped]  # no type information is published
    import xgboost as xgb

    rows = xgb.DMatrix(
        matrix,
        feature_names=list(bundle.contract.names),
        feature_types=list(bundle.contract.feature_types),
        enable_categorical=True,
    )
    found = {}
    for target, booster in bundle.boosters.items():
        values = np.asarray(shap.TreeExplainer(booster).shap_values(rows), dtype=np.float64)
        found[target] = values if values.ndim == 2 else values[:, :, 0]
    return found


def _ranks(matrix: npt.NDArray[np.float32], types: list[str]) -> FloatArray:
    """Rank each column from 0 to 1 among these jobs; NaN for categories, for what is not known, and for constants."""
    from scipy.stats import rankdata

    ranks = np.full(matrix.shape, np.nan)
    for column, kind in enumerate(types):
        known = ~np.isnan(matrix[:, column])
        values = matrix[known, column]
        if kind != "c" and len(values) and np.ptp(values) > 0:
            by_value = rankdata(values)
            ranks[known, column] = (by_value - by_value.min()) / np.ptp(by_value)
    return ranks


def _rows(values: FloatArray, ranks: FloatArray, names: tuple[str, ...]) -> pl.DataFrame:
    top = np.argsort(-np.abs(values).mean(axis=0), kind="stable")[:EXPLAINED_FEATURES]
    return pl.DataFrame(
        {
            "feature": [names[i] for i in top for _ in range(len(values))],
            "shap": values[:, top].T.ravel(),
            "rank": ranks[:, top].T.ravel(),
        }
    ).with_columns(pl.col("rank").fill_nan(None), pl.col("shap").round(5))
