"""A trained model of one trace and task type with its metadata, and the bundle and card made from it.

Nothing is fitted here. Built by `pipelines.models.runtime` and `usage`; read by `tracking`, `gate` and `pipelines.cli`.
"""

import math
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
import xgboost as xgb

from features.contract import FeatureContract
from features.history import History
from modelserve.bundle.bundle import write_bundle
from modelserve.bundle.card import Alike, Card, Importance, card_from
from modelserve.bundle.population import Population

Kind = Literal["runtime", "usage"]


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A model that can be written as a bundle, tracked, judged and served.

    Attributes
    ----------
    name
        Registered name, `<kind>.<trace>.<type>`, e.g. `runtime.pai.ctr`.
    kind
        `runtime` (run time) or `usage` (upper quantiles of use).
    trace, task_type
        Its training data; `task_type` is the raw tag if trained by workload.
    contract
        Names, order, kinds and categories of the features; `contract.encode` builds the input matrix of the boosters.
    boosters
        Target to booster; `run_s` for a run-time model, `USAGE_TARGETS` (those with data) for a usage model.
    quantiles
        The quantile levels of the boosters' outputs, in order.
    relative
        Whether the booster predicts run times relative to the reference of similar jobs (`features.build`).
    offsets
        Added to the raw outputs in log units, by quantile name (`p50`, `p90`) or by target.
    history
        The point-in-time history at `until`, for serving.
    importances
        Permutation importance of each feature on held-out rows: `feature, mean, std, repeats, sign`
        (null for a category).
    important
        Requestable resources whose importance passes the cut.
    resource_importances
        Permutation importance of each requestable resource, of a run-time model: `resource, mean, std, repeats, sign`.
    support
        Requestable resource to the lowest and highest request seen in training.
    params
        Parameters of the fit, including the seed.
    metrics
        Held-out metrics by name, as in the `xgboost` row of `evaluation`.
    evaluation
        The model and every baseline on the same held-out rows, one row each.
    until
        The cut on labels: every training row ended before it.
    rows
        Number of training rows.
    data_fingerprint
        Hash of the training rows.
    population
        Distribution of each feature in the training rows, to detect drift.
    alike
        Upper bounds of use by role and request, for usage models; None for run-time models.
    """

    name: str
    kind: Kind
    trace: str
    task_type: str
    contract: FeatureContract
    boosters: dict[str, xgb.Booster]
    quantiles: tuple[float, ...]
    relative: bool = False
    offsets: dict[str, float]
    history: History
    importances: list[dict[str, str | float | int | None]]
    important: tuple[str, ...]
    support: dict[str, tuple[float, float]]
    params: dict[str, str | float | int]
    metrics: dict[str, float]
    evaluation: pl.DataFrame = field(repr=False)
    until: datetime
    rows: int
    data_fingerprint: str
    population: Population | None = None
    alike: tuple[Alike, ...] | None = None
    resource_importances: list[dict[str, str | float | int | None]] = field(default_factory=list)


def card_of(model: TrainedModel, *, created: datetime) -> Card:
    """Return the model card: identity, training data and evaluation."""
    return card_from(
        {
            "name": model.name,
            "kind": model.kind,
            "trace": model.trace,
            "task_type": model.task_type,
            "targets": tuple(model.boosters),
            "quantiles": model.quantiles,
            "relative": model.relative,
            "offsets": model.offsets,
            "important": model.important,
            "resource_importances": model.resource_importances or None,
            "support": model.support,
            "params": model.params,
            "metrics": model.metrics,
            "until": model.until,
            "created": created,
            "rows": model.rows,
            "data_fingerprint": model.data_fingerprint,
            "contract_fingerprint": model.contract.fingerprint,
            "made_with": made_with(),
            "alike": model.alike,
        }
    )


def write_model(model: TrainedModel, folder: Path, *, created: datetime) -> str:
    """Write the model's bundle to a new folder and return its digest; deterministic given the model and `created`."""
    return write_bundle(
        folder,
        card=card_of(model, created=created),
        contract=model.contract,
        boosters=model.boosters,
        history=model.history,
        importances=[Importance.model_validate(row) for row in model.importances],
        population=model.population,
    )


def figures(model: TrainedModel) -> dict[str, float]:
    """Return all metrics of the evaluation as `<split>/<model>/[<target>/]<metric>`, the model's own without prefix."""
    found = dict(model.metrics)
    for row in model.evaluation.to_dicts():
        place = [str(row[key]) for key in ("split", "model", "target") if row.get(key) is not None]
        for key, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found["/".join([*place, key])] = float(value)
    return {key: value for key, value in found.items() if math.isfinite(value)}


def made_with() -> dict[str, str]:
    """Return the versions of the libraries that a bundle's bytes depend on."""
    return {
        "taut": installed_version("taut"),
        "xgboost": str(xgb.__version__),
        "polars": pl.__version__,
        "numpy": np.__version__,
    }
