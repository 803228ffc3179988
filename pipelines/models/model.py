"""The trained model of one trace and task type with its metadata; writes its bundle and its model card.

Nothing is fitted here. Models are built by `pipelines.models.runtime` and `usage`, and read by `tracking` and
`pipelines.cli`.
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
from modelserve.bundle.alike import Alike
from modelserve.bundle.card import Card, Importance, card_from
from modelserve.bundle.combination import Combination
from modelserve.bundle.population import Population
from modelserve.bundle.writing import write_bundle
from pipelines.models.fit_record import FitRecord
from pipelines.models.forest import FittedForest

__all__ = ["TrainedModel", "card_of"]

Kind = Literal["runtime", "usage"]


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A fitted model with everything needed to write its bundle, to judge it, to register it and to serve it.

    Attributes
    ----------
    name
        Registered name, `<kind>.<trace>.<type>`, e.g. `runtime.pai.ctr`.
    kind
        `runtime` (run time) or `usage` (upper quantiles of use).
    trace, task_type
        The trace and the task type of the training jobs; `task_type` is a workload tag if trained by workload.
    contract
        Names, order, kinds and categories of the features; `contract.encode` builds the boosters' input matrix.
    boosters
        Booster of each target: `run_s` for a run-time model; for a usage model, each of `USAGE_TARGETS` with data.
    quantiles
        Quantile level of each output of a booster, in the order of the outputs.
    relative
        Whether the booster predicts log run time minus that of similar jobs (the reference of `features.build`).
    offsets
        Calibration offsets in log units, added to the boosters' outputs: one per quantile name (`p50`, `p90`) of a
        run-time model, one per target of a usage model.
    history
        The history of jobs as known at `until`, from which the service starts.
    importances
        Permutation importance of each feature on held-out rows: `feature, mean, std, repeats, sign`
        (null for a category).
    important
        Resources whose request is important for run time (`importance.important_resources`): they are not shrunk.
    resource_importances
        Permutation importance of each requestable resource (run-time models): `resource, mean, std, repeats, sign`.
    support
        Lowest and highest request of each resource in the training rows.
    params
        Parameters of the fit, the seed among them.
    metrics
        Held-out metrics by name. Of a run-time model: the row of `evaluation` that serves (`combined`, or the only
        member that does), and `importance_<resource>` of the XGBoost member. Of a usage model: its `xgboost` rows, as
        `<target>_<metric>`.
    evaluation
        One row of metrics for the answer, one for every member of its combination, and one for every baseline, all on
        the same held-out rows.
    until
        The training cut: every training job ended before this time.
    rows
        Number of training rows.
    data_fingerprint
        Hash of the training rows.
    population
        Distribution of each feature in the training rows, against which the service detects drift; None without rows.
    alike
        Upper bounds of the use of similar jobs (same role and request), for usage models; None for run-time models.
    record
        Loss by boosting round and by week, and calibration, of a run-time model; None for usage models.
    combination, forest
        How a run-time model is combined with other forecasts, and its forest if it is a member; None for usage models.
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
    combination: Combination | None = None
    forest: FittedForest | None = None
    resource_importances: list[dict[str, str | float | int | None]] = field(default_factory=list)
    record: FitRecord | None = field(default=None, repr=False)

    @property
    def answer(self) -> str:
        """What the model answers with: `trees`, `combined`, or the only member of its combination that serves."""
        members = () if self.combination is None else self.combination.members
        return "trees" if not members else members[0] if len(members) == 1 else "combined"


def card_of(model: TrainedModel, *, created: datetime) -> Card:
    """Return the model card, which describes the model, its training data and its metrics."""
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
            "combination": None if model.combination is None else model.combination.stored(),
        }
    )


def write_model(model: TrainedModel, folder: Path, *, created: datetime) -> str:
    """Write the model's bundle to a new folder and return its digest; equal inputs give equal bytes."""
    return write_bundle(
        folder,
        card=card_of(model, created=created),
        contract=model.contract,
        boosters=model.boosters,
        history=model.history,
        importances=[Importance.model_validate(row) for row in model.importances],
        population=model.population,
        forest=None if model.forest is None else (model.forest.trees, model.forest.values),
    )


def figures(model: TrainedModel) -> dict[str, float]:
    """Return the metrics to log: the model's metrics by name, and every metric of its evaluation by path.

    A path is `<split>/<model>/[<target>/]<metric>`. Metrics that are NaN or infinite are left out.
    """
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
