"""The models that the serving benchmarks ask: 400 trees of depth 7, trained by the project on a synthetic trace.

Written as a real registry and mirrored to real bundles.
"""

import hashlib
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from modelserve.bundle.registry import mirror
from modelserve.contract.fields import RequestRow
from modelserve.contract.requests import JobRow
from pipelines.engine.engine import Local
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Setting, task_types
from pipelines.models.recipes import Recipe
from pipelines.models.retrain import models_of, train_units, units_of
from pipelines.models.runtime import train_runtime
from pipelines.models.tracking import promote, track
from pipelines.synth.pai import synthesise

TRACE: Final = "pai-synth"
TASK_TYPE: Final = "ctr"
"""The type whose run-time model is compared with other servers'."""
TREES: Final = 400
DEPTH: Final = 7
QUANTILES: Final = 2
TASKS: Final = 20_000
TAGGED_SHARE: Final = 0.6
"""Share of jobs with a workload tag; a tenth in the published trace, too few for five types."""

GROWN: Final = Boosting(
    rounds=TREES // QUANTILES,
    patience=TREES,
    # So slow that no round before the last is the best one: the model keeps all its trees.
    learning_rate=0.002,
    num_parallel_tree=1,
    max_depth=DEPTH,
    min_child_weight=1.0,
)
KEPT: Final = ("user", "group", "vc", "role", "workload", "gpu_type", "instances", "cluster")
DONE: Final = "trained"
MADE_BY: Final = ("features", "pipelines/synth", "pipelines/models", "modelserve/bundle")
"""Code that changes the models' bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Where the models are: the registry's database, and the folder of mirrored bundles."""

    folder: Path

    @property
    def bundles(self) -> Path:
        return self.folder / "bundles"

    def jobs(self, count: int) -> list[JobRow]:
        """Return jobs of the compared type, drawn from the whole trace and submitted at its end."""
        with Lake(self.folder / "lake") as lake:
            known = lake.table("jobs", TRACE).collect()
        now = known["submit_ts"].max()
        own = known.filter(pl.col("task_type") == TASK_TYPE).sort("submit_ts", "job_id", "role")
        drawn = own.sample(count, seed=0, with_replacement=True).to_dicts()
        return [
            JobRow(
                job_id=f"bench-{i:05d}",
                task_type=TASK_TYPE,
                trace=TRACE,
                request=RequestRow(**{name: row[f"req_{name}"] for name in ("cpu_cores", "mem_gib", "gpus")}),
                submit_ts=now,
                **{name: row[name] for name in KEPT},
            )
            for i, row in enumerate(drawn)
        ]


def trained(cache: Path) -> Models:
    """Train, register, promote and mirror the ten models, unless the cache holds those of the present code."""
    folder = cache / f"models-{_code()}"
    if not (folder / DONE).exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _train(folder)
        (folder / DONE).touch()
    return Models(folder=folder)


def _code() -> str:
    """Return a digest of what the models are made by."""
    root = Path(__file__).resolve().parents[3]
    files = [Path(__file__), *sorted(p for part in MADE_BY for p in (root / part).rglob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _train(folder: Path) -> None:
    raw, lake, uri = folder / "raw", folder / "lake", f"sqlite:///{folder / 'mlflow.db'}"
    synthesise(raw, tasks=TASKS, seed=0, tagged_share=TAGGED_SHARE)
    ingest("pai", raw, lake, as_name=TRACE)
    with Lake(lake) as opened:
        jobs, usage = (opened.table(table, TRACE).collect() for table in ("jobs", "usage"))
    setting, grown = Setting(jobs=jobs, usage=usage, trace=TRACE), Recipe(boosting=GROWN)
    units = units_of(setting, recipes=dict.fromkeys(task_types(jobs, "kind"), grown))
    models = models_of(units, train_units(Local(), setting, units))
    for model in models:
        version = track(model, uri=uri)
        promote(model.name, uri=uri, version=version.version, force=True)
    mirror(uri, folder / "bundles")
    other = train_runtime(replace(setting, seed=1), TASK_TYPE, grown)
    track(other, uri=uri)  # a second version, which nothing points at but the alias `challenger`
