"""The training of a trace as units of work for an engine: one model each, of one task type and one kind.

A unit gives the same model on every engine. Called by `pipelines.models.retrain`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from features.history import History
from pipelines.engine.engine import Engine
from pipelines.errors import TrainingError
from pipelines.models.examples import By, Histories, Watch
from pipelines.models.fitted import Recipe
from pipelines.models.model import TrainedModel
from pipelines.models.runtime import train_runtime
from pipelines.models.training_tables import Tables
from pipelines.models.usage import train_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One model to train; a usage model has no recipe of its own."""

    kind: Literal["runtime", "usage"]
    task_type: str
    recipe: Recipe | None = None

    def __str__(self) -> str:
        """Return the unit as messages name it."""
        return f"the {self.kind} model of {self.task_type}"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all units of a training share. Each process that trains builds the histories once."""

    tables: Tables
    trace: str
    by: By
    until: datetime
    seed: int
    threads: int

    @cached_property
    def histories(self) -> Histories:
        """Return the histories of the tables at the cut."""
        return Histories.of(self.tables.jobs, self.tables.measured, self.until)


def train_units(
    engine: Engine, setting: Setting, units: Sequence[Unit], watch: Watch = iter
) -> list[TrainedModel | TrainingError]:
    """Return the trained model of each unit, or why there is none, in the order of the units.

    `watch` iterates over the names of the units.
    """
    trained = engine.run(_train, setting, units)
    found = [each for _, each in zip(watch([str(unit) for unit in units]), trained, strict=True)]
    served = setting.histories.served
    return [each if isinstance(each, TrainingError) else replace(each, history=served) for each in found]


def _train(setting: Setting, unit: Unit) -> TrainedModel | TrainingError:
    """Train one model. Its history, which is the same for all and large, is left out of the result."""
    tables = setting.tables
    common: dict[str, Any] = {  # Any: arguments of several types
        "trace": setting.trace,
        "by": setting.by,
        "until": setting.until,
        "types": [unit.task_type],
        "seed": setting.seed,
        "nthread": setting.threads,
        "histories": setting.histories,
    }
    try:
        if unit.kind == "runtime":
            [model] = train_runtime(tables.jobs, tables.measured, recipe=unit.recipe, **common)
        else:
            [model] = train_usage(tables.jobs, tables.usage, **common)
    except TrainingError as error:
        return error
    return replace(model, history=History.of(tables.jobs.clear()))
