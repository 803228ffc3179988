"""Train all models of a trace from its tables, register them, and promote those that pass the gate.

Fitting is in `runtime` and `usage`, writing to the registry in `tracking`. Called by `taut train`, `taut demo` and
`pipelines.models.renewal`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipelines.errors import RegistryError, TrainingError
from pipelines.models.examples import By, Watch, task_types
from pipelines.models.fit_record import FitRecord
from pipelines.models.fitted import Recipe
from pipelines.models.model import TrainedModel
from pipelines.models.runtime import train_runtime
from pipelines.models.tracking import promote, track
from pipelines.models.training_tables import Tables, Talk
from pipelines.models.usage import train_usage
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
    draw: Draw = lambda _record, _name: None,
    talk: Talk = lambda _: None,
    watch: Watch = iter,
) -> list[Retrained]:
    """Train the run-time models of a trace and, if it measures use, its usage models; register each as a challenger.

    `recipes` are the recipes of run-time models by registered name; models without one get the default. `draw` returns
    the picture that is stored with a run, as PNG, from the record of the fit and the model's name. `watch` iterates
    over the types to train; a caller shows progress with it.

    Raises
    ------
    TrainingError
        No job ended before the cut. If there are too few measured jobs for a usage model, that is only reported by
        `talk`.
    """
    talk(f"training run-time models of {trace} on {tables.jobs.height} jobs")
    models = _runtime_models(
        tables, trace, by=by, until=until, types=types, recipes=recipes or {}, seed=seed, threads=threads, watch=watch
    )
    if tables.measured is None:
        talk(f"{trace} measures no use: no usage models, so nothing will be shrunk (cold_start)")
    else:
        talk(f"training usage models of {trace} on {tables.usage.height} measured jobs")
        try:
            models += train_usage(
                tables.jobs,
                tables.usage,
                trace=trace,
                by=by,
                until=until,
                types=types,
                seed=seed,
                nthread=threads,
                watch=watch,
            )
        except TrainingError as error:
            talk(f"no usage model: {error}")
    talk(f"registering {len(models)} models at {uri}")
    return [
        Retrained(model=each, version=track(each, uri=uri, seen=tables.seen, picture=draw(each.record, each.name)))
        for each in models
    ]


def _runtime_models(
    tables: Tables,
    trace: str,
    *,
    by: By,
    until: datetime | None,
    types: Sequence[str] | None,
    recipes: Mapping[str, Recipe],
    seed: int,
    threads: int,
    watch: Watch,
) -> list[TrainedModel]:
    """Train the run-time models; types with the same recipe are trained in one call."""
    alike: dict[Recipe, list[str]] = {}
    for each in types or task_types(tables.jobs, by):
        alike.setdefault(recipes.get(f"runtime.{trace}.{each}", Recipe()), []).append(each)
    models: list[TrainedModel] = []
    refusal: TrainingError | None = None
    for recipe, group in alike.items():
        try:
            models += train_runtime(
                tables.jobs,
                tables.measured,
                trace=trace,
                by=by,
                until=until,
                types=group,
                recipe=recipe,
                seed=seed,
                nthread=threads,
                watch=watch,
            )
        except TrainingError as error:
            refusal = error
    if refusal is not None and not models:
        raise refusal
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
