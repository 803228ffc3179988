"""The trained model of one trace and task type with its metadata; writes its bundle and its model card."""

import math
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Final, Literal

import numpy as np
import polars as pl
import xgboost as xgb

from features.contract import FeatureContract
from features.history import History
from modelserve.bundle.alike import Alike
from modelserve.bundle.bundle import write_bundle
from modelserve.bundle.card import RESPONSE, Card, Importance, ResponseState, answer_of, card_from
from modelserve.bundle.combination import Combination
from pipelines.models.boosting import FittedForest
from pipelines.models.judging import Verdict, judge

__all__ = ["TrainedModel", "card_of"]

Kind = Literal["runtime", "usage"]


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """A fitted model with everything needed to write its bundle, to judge it, to register it and to serve it.

    `name` is the registered name, `<kind>.<trace>.<type>`; `task_type` may be a workload tag. `boosters` has one per
    target (`run_s`; of a usage model each of `USAGE_TARGETS` with data), whose inputs `contract.encode` builds and
    whose outputs are the levels `quantiles`, and a trusted `RESPONSE`. `relative`: the booster predicts log run time
    minus that of similar jobs. `offsets` are added to outputs, in log units, by quantile name or target. `history` also
    holds the jobs after `until`, the training cut. `importances` and `resource_importances` are permutation importances
    on held-out rows, empty for the reason `no_importances`; requests of `important` resources are not shrunk. `support`
    is the lowest and highest request of each resource in the training rows. `metrics` are those of the row of
    `evaluation` that serves, or by `<target>_<metric>`. `rows` counts the training rows. `alike` are bounds of the use
    of similar jobs (usage models); `combination`, `forest`, `typical_s`, `response` and `curves`
    (`evaluate.learning_curves`) are of run-time models.
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
    alike: tuple[Alike, ...] | None = None
    combination: Combination | None = None
    forest: FittedForest | None = None
    typical_s: tuple[float, float] | None = None
    resource_importances: list[dict[str, str | float | int | None]] = field(default_factory=list)
    no_importances: str | None = None
    response: ResponseState | None = None
    curves: pl.DataFrame | None = field(default=None, repr=False)

    @property
    def answer(self) -> str:
        """What the model answers with, as `Card.answer`."""
        return answer_of(() if self.combination is None else self.combination.members)

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict of the gate on the model."""
        return judge(self.kind, self.evaluation)

    @property
    def matters_most(self) -> str:
        """The feature with the largest importance, or why there is none."""
        return str(self.importances[0]["feature"]) if self.importances else f"none: {self.no_importances}"


def card_of(model: TrainedModel, *, created: datetime) -> Card:
    """Return the model card, which describes the model, its training data and its metrics."""
    return card_from(
        {name: getattr(model, name) for name in COPIED}
        | {
            "targets": tuple(each for each in model.boosters if each != RESPONSE),
            "resource_importances": model.resource_importances or None,
            "created": created,
            "contract_fingerprint": model.contract.fingerprint,
            "made_with": made_with(),
            "combination": None if model.combination is None else model.combination.stored(),
            "verdict": model.verdict.word,
            "why": model.verdict.text,
        }
    )


COPIED: Final = (
    *("name", "kind", "trace", "task_type", "quantiles", "relative", "offsets", "important", "support", "params"),
    *("metrics", "until", "rows", "data_fingerprint", "alike", "no_importances", "response", "typical_s"),
)
"""Fields that a card takes from the model unchanged."""


def write_model(model: TrainedModel, folder: Path, *, created: datetime) -> str:
    """Write the model's bundle to a new folder and return its digest; equal inputs give equal bytes."""
    return write_bundle(
        folder,
        card=card_of(model, created=created),
        contract=model.contract,
        boosters=model.boosters,
        history=model.history,
        importances=[Importance.model_validate(row) for row in model.importances],
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
