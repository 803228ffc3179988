"""Loader of bundles for `mlflow.pyfunc.load_model`; predicts jobs in a pandas frame with the canonical job columns.

Model files written by `pipelines.models.tracking` name this module as their loader.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from features.online import JobAsked, OnlineHistory
from features.vocabulary import ROLE_WHOLE_JOB
from modelserve.bundle.bundle import Bundle, read_bundle
from modelserve.bundle.card import USAGE_TARGETS
from modelserve.bundle.served import ServedModel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EXAMPLE", "INPUTS", "OUTPUTS"]

INPUTS: Final[Mapping[str, str]] = {
    "submit_ts": "datetime",
    "user": "string",
    "group": "string",
    "vc": "string",
    "cluster": "string",
    "role": "string",
    "workload": "string",
    "gpu_type": "string",
    "instances": "long",
    "req_cpu_cores": "double",
    "req_mem_gib": "double",
    "req_gpus": "double",
}
"""Input columns with their MLflow types; only `submit_ts` (UTC) is required."""

OUTPUTS: Final[Mapping[str, tuple[str, ...]]] = {
    "runtime": ("run_s_p50", "run_s_p90"),
    "usage": tuple(f"used_{target}" for target in USAGE_TARGETS),
}
"""Output columns by kind of model; all are floating-point numbers."""

EXAMPLE: Final[Mapping[str, object]] = {
    "submit_ts": datetime(2020, 7, 1, 9, 30),  # MLflow takes datetimes without a time zone, read as UTC
    "user": "u7",
    "group": "g3",
    "gpu_type": "T4",
    "instances": 1,
    "req_cpu_cores": 6.0,
    "req_mem_gib": 29.3,
    "req_gpus": 0.5,
}
"""An example input: one job."""


class BundleModel:
    """A bundle with the interface of an MLflow Python model."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._model = ServedModel.of(bundle, OnlineHistory(bundle.history))

    def predict(self, jobs: "pd.DataFrame", params: dict[str, object] | None = None) -> "pd.DataFrame":  # noqa: ARG002  # MLflow passes it
        """Return the run-time quantiles (`run_s_*`) or the upper quantiles of use (`used_*`) of each job.

        Missing input columns get a default (trace, task type, cluster, role, instances) or are null.
        """
        import pandas as pd

        card, model = self.bundle.card, self._model
        seen = model.look(self._asked(pl.from_pandas(jobs)))
        if card.kind == "runtime":
            times = model.run_times(seen)
            answers = [times.p50, times.p90]
        else:
            use, unknown = model.use(seen), np.full(len(jobs), np.nan)
            answers = [use.get(target, unknown) for target in USAGE_TARGETS]
        return pd.DataFrame(dict(zip(OUTPUTS[card.kind], answers, strict=True)), index=jobs.index)

    def _asked(self, jobs: pl.DataFrame) -> list[JobAsked]:
        card, cluster = self.bundle.card, self._model.history.cluster_of(None)
        usual: dict[str, Any] = {name: np.nan if kind == "double" else None for name, kind in INPUTS.items()}
        usual |= {"trace": card.trace, "task_type": card.task_type, "job_id": "", "cluster": cluster}
        usual |= {"role": ROLE_WHOLE_JOB, "instances": 1, "submit_us": 0}
        del usual["submit_ts"]
        known = jobs.select(*usual.keys() & set(jobs.columns), submit_us=pl.col("submit_ts").dt.epoch("us"))
        return [
            JobAsked(**usual | {name: value for name, value in row.items() if value is not None})
            for row in known.iter_rows(named=True)
        ]


def _load_pyfunc(path: str) -> BundleModel:
    """Load the bundle at `path`. MLflow prescribes the name and the parameter of this function."""
    return BundleModel(read_bundle(Path(path)))
