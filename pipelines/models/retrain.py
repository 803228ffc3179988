"""Train all models of a trace from its tables, register them, and promote those that pass the gate.

Fitting is in `units`, writing to the registry in `tracking`. Called by `taut train`, `taut demo` and
`pipelines.models.renewal`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipelines.engine.engine import Engine, Local
from pipelines.errors import RegistryError, TrainingError
from pipelines.models.evaluate import default_until
from pipelines.models.examples import By, Watch, task_types
from pipelines.models.fit_record import FitRecord
from pipelines.models.fitted import Recipe
from pipelines.models.model import TrainedModel
from pipelines.models.tracking import promote, track
from pipelines.models.training_tables import Tables, Talk
from pipelines.models.units import Setting, Unit, train_units
from pipelines.models.versions import ModelVersion

__all__ = ["Retrained", "next_step", "promote_all", "retrain"]

Draw = Callable[[FitRecord | None, str], bytes | None]


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
            "gate": self.version.status,
            "why": self.version.reasons,
        }


def next_step(trained: Sequence[Retrained]) -> str:
    """Return what to do next, given what the gate decided about each model."""
    refused = [each.version.name for each in trained if each.version.status != "passed"]
    if not refused:
        return "next: taut promote, then taut serve"
    others = "taut promote moves the models that passed; " if len(refused) < len(trained) else ""
    return f"next: {others}{', '.join(refused)}: refused, see `why`; train again on more jobs, or promote --force"


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
    draw: Draw = lambda _record, _name: None,
    talk: Talk = lambda _: None,
    watch: Watch = iter,
) -> list[Retrained]:
    """Train the run-time models of a trace and, if it measures use, its usage models; register each as a challenger.

    `recipes` are the recipes of run-time models by registered name; models without one get the default. `engine` trains
    the models, each in `threads` threads; they are registered here after all are trained. `draw` returns the picture
    that is stored with a run, as PNG, from the record of the fit and the model's name. `watch` iterates over the models
    to train; a caller shows progress with it.

    Raises
    ------
    TrainingError
        No job ended before the cut. If there are too few measured jobs for a usage model, that is only reported by
        `talk`.
    EngineError
        The engine failed; nothing is registered.
    """
    talk(f"training run-time models of {trace} on {tables.jobs.height} jobs")
    if tables.measured is None:
        talk(f"{trace} measures no use: no usage models, so nothing will be shrunk (cold_start)")
    else:
        talk(f"training usage models of {trace} on {tables.usage.height} measured jobs")
    setting = Setting(
        tables=tables, trace=trace, by=by, until=until or default_until(tables.jobs), seed=seed, threads=threads
    )
    units = _units(setting, types or task_types(tables.jobs, by), recipes or {})
    models = _trained(units, train_units(engine or Local(), setting, units, watch), talk)
    talk(f"registering {len(models)} models at {uri}")
    return [
        Retrained(model=each, version=track(each, uri=uri, seen=tables.seen, picture=draw(each.record, each.name)))
        for each in models
    ]


def _units(setting: Setting, types: Sequence[str], recipes: Mapping[str, Recipe]) -> list[Unit]:
    """Return the models to train, run-time models first."""
    named = {each: recipes.get(f"runtime.{setting.trace}.{each}", Recipe()) for each in types}
    units = [Unit(kind="runtime", task_type=each, recipe=recipe) for each, recipe in named.items()]
    if setting.tables.measured is not None:
        units += [Unit(kind="usage", task_type=each) for each in named]
    return units


def _trained(units: Sequence[Unit], found: Sequence[TrainedModel | TrainingError], talk: Talk) -> list[TrainedModel]:
    """Return the trained models; raise if no run-time model was trained, only report if no usage model was."""
    models: list[TrainedModel] = []
    for kind in ("runtime", "usage"):
        ours = [each for unit, each in zip(units, found, strict=True) if unit.kind == kind]
        trained = [each for each in ours if not isinstance(each, TrainingError)]
        refusals = [each for each in ours if isinstance(each, TrainingError)]
        if refusals and not trained:
            if kind == "runtime":
                raise refusals[-1]
            talk(f"no usage model: {refusals[-1]}")
        models += trained
    return models


def promote_all(trained: Sequence[Retrained], *, uri: str, force: bool, talk: Talk) -> list[ModelVersion]:
    """Promote each model that the gate passed; with `force`, also those it refused. Report each refusal by `talk`."""
    promoted = []
    for each in trained:
        version = each.version
        try:
            promoted.append(promote(version.name, uri=uri, version=version.version))
        except RegistryError as refusal:
            if version.status == "passed" or not force:
                talk(str(refusal))
                continue
            talk(f"{version.reference}: refused by the gate and forced here: {version.reasons}")
            promoted.append(promote(version.name, uri=uri, version=version.version, force=True))
    return promoted
