"""Train all models of a trace from its tables, register them, and promote those that pass the gate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from features.history import History
from pipelines.engine.engine import Engine, Local
from pipelines.errors import RegistryError, TrainingError
from pipelines.models.examples import By, Setting, Watch, task_types
from pipelines.models.model import TrainedModel
from pipelines.models.recipes import Recipe
from pipelines.models.runtime import train_runtime
from pipelines.models.tracking import ModelVersion, promote, track
from pipelines.models.training_tables import Tables, Talk
from pipelines.models.usage import train_usage

__all__ = ["Retrained", "models_of", "next_step", "promote_all", "retrain", "train_units", "units_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrained:
    """A trained model, and the version it is registered as."""

    model: TrainedModel
    version: ModelVersion

    def row(self) -> dict[str, object]:
        """Return one flat row with the model, its training data, its metrics and the verdict of the gate."""
        metrics = self.model.metrics
        return {
            "name": self.version.name,
            "version": self.version.version,
            "rows": self.model.rows,
            "until": self.model.until,
            "n": metrics.get("n"),
            "pinball": metrics.get("pinball"),
            "coverage_p90": metrics.get("coverage_p90"),
            "answer": self.model.answer,
            "matters_most": self.model.matters_most,
            "gate": self.version.verdict,
            "why": self.version.reasons,
        }


def retrain(
    tables: Tables,
    trace: str,
    *,
    uri: str,
    until: datetime | None = None,
    by: By = "kind",
    types: Sequence[str] | None = None,
    recipes: Mapping[str, Recipe] | None = None,
    seed: int = 0,
    threads: int = 1,
    engine: Engine | None = None,
    talk: Talk = lambda _: None,
    watch: Watch = iter,
) -> list[Retrained]:
    """Train the run-time models of a trace and, if it measures use, its usage models; register each as a challenger.

    `recipes` are by registered name. `engine` trains the models, each in `threads` threads. `watch` iterates over the
    models.
    """
    talk(f"training run-time models of {trace} on {tables.jobs.height} jobs")
    if tables.measured is None:
        talk(f"{trace} measures no use: no usage models, so nothing will be shrunk (cold_start)")
    else:
        talk(f"training usage models of {trace} on {tables.usage.height} measured jobs")
    setting = Setting(
        jobs=tables.jobs, usage=tables.measured, trace=trace, by=by, until=until, seed=seed, threads=threads
    )
    ours = {name.removeprefix(f"runtime.{trace}."): recipe for name, recipe in (recipes or {}).items()}
    units = units_of(setting, types, ours)
    models = models_of(units, train_units(engine or Local(), setting, units, watch), talk)
    talk(f"registering {len(models)} models at {uri}")
    return [Retrained(model=each, version=track(each, uri=uri, seen=tables.seen)) for each in models]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One model to train, a unit of work of an engine."""

    kind: Literal["runtime", "usage"]
    task_type: str
    recipe: Recipe | None = None

    def __str__(self) -> str:
        """Return the unit as messages name it."""
        return f"the {self.kind} model of {self.task_type}"


def units_of(
    setting: Setting,
    types: Sequence[str] | None = None,
    recipes: Mapping[str, Recipe] | None = None,
) -> list[Unit]:
    """Return the models to train, run-time models first; `recipes` are those of run-time models by task type."""
    kinds, known = types or task_types(setting.jobs, setting.by), recipes or {}
    units = [Unit(kind="runtime", task_type=each, recipe=known.get(each, Recipe())) for each in kinds]
    if setting.usage is not None:
        units += [Unit(kind="usage", task_type=each) for each in kinds]
    return units


def train_units(
    engine: Engine, setting: Setting, units: Sequence[Unit], watch: Watch = iter
) -> list[TrainedModel | TrainingError]:
    """Return the trained model of each unit, or why there is none, in the order of the units: the same on any engine.

    `watch` iterates over the names of the units.
    """
    models = engine.run(_train, setting, units)
    results = [each for _, each in zip(watch([str(unit) for unit in units]), models, strict=True)]
    return [each if isinstance(each, TrainingError) else replace(each, history=setting.whole) for each in results]


def _train(setting: Setting, unit: Unit) -> TrainedModel | TrainingError:
    """Train one model. Its history, which is the same for all and large, is left out of the result."""
    try:
        if unit.kind == "runtime":
            model = train_runtime(setting, unit.task_type, unit.recipe)
        else:
            model = train_usage(setting, unit.task_type)
    except TrainingError as error:
        return error
    return replace(model, history=History.of(setting.jobs.clear()))


def models_of(
    units: Sequence[Unit], results: Sequence[TrainedModel | TrainingError], talk: Talk = lambda _: None
) -> list[TrainedModel]:
    """Return the trained models; raise if no run-time model was trained, only report if no usage model was."""
    models: list[TrainedModel] = []
    for kind in ("runtime", "usage"):
        ours = [each for unit, each in zip(units, results, strict=True) if unit.kind == kind]
        fitted = [each for each in ours if not isinstance(each, TrainingError)]
        refusals = [each for each in ours if isinstance(each, TrainingError)]
        if refusals and not fitted:
            if kind == "runtime":
                raise refusals[-1]
            talk(f"no usage model: {refusals[-1]}")
        models += fitted
    return models


def promote_all(trained: Sequence[Retrained], *, uri: str, force: bool, talk: Talk) -> list[ModelVersion]:
    """Promote each model that the gate lets serve; with `force`, also the others. Report each refusal by `talk`."""
    promoted = []
    for each in trained:
        version = each.version
        try:
            promoted.append(promote(version.name, uri=uri, version=version.version))
        except RegistryError as refusal:
            if not force:
                talk(str(refusal))
                continue
            talk(f"{version.reference}: refused by the gate and forced here: {version.reasons}")
            promoted.append(promote(version.name, uri=uri, version=version.version, force=True))
    return promoted


def next_step(trained: Sequence[Retrained]) -> str:
    """Return what to do next, given what the gate decided about each model."""
    kept = [each.version.name for each in trained if each.version.verdict in ("worse", "too few")]
    refused = [each.version.name for each in trained if each.version.verdict == "failed"]
    said = ["next: taut promote, then taut serve"] if len(refused) < len(trained) else []
    if kept:
        said.append(f"{', '.join(kept)}: see `why`; a champion that is better or level goes on answering")
    if refused:
        said.append(f"{', '.join(refused)}: refused, see `why`; train again on more jobs, or promote --force")
    return "; ".join(said)
