"""From a trained model to its bundle: the card, and the folder written with it.

Knows no tracking server; the folder's format is `modelserve.bundle.bundle`'s. Called by `pipelines.models.tracking` and
the demo.
"""

import math
from datetime import datetime
from importlib.metadata import version as installed_version
from pathlib import Path

import numpy as np
import polars as pl
import xgboost as xgb

from modelserve.bundle.bundle import write_bundle
from modelserve.bundle.card import Card, Importance, card_from
from pipelines.models.model import TrainedModel


def card_of(model: TrainedModel, *, created: datetime) -> Card:
    """Return the model card: what the model is, what it was trained on, how it was judged."""
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
    """Write the model's bundle to a new folder and return its digest; the same model and `created`: same bytes."""
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
    """Return every figure of the evaluation as `<split>/<model>/[<target>/]<figure>`, and the model's own plain."""
    found = dict(model.metrics)
    for row in model.evaluation.to_dicts():
        place = [str(row[key]) for key in ("split", "model", "target") if row.get(key) is not None]
        for key, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                found["/".join([*place, key])] = float(value)
    return {key: value for key, value in found.items() if math.isfinite(value)}


def made_with() -> dict[str, str]:
    """Return the versions of what a bundle's bytes depend on."""
    return {
        "taut": installed_version("taut"),
        "xgboost": str(xgb.__version__),
        "polars": pl.__version__,
        "numpy": np.__version__,
    }
