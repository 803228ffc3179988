"""From a lake to registered models: train both kinds for one trace, track each, and let the gate decide.

Fitting is `pipelines.models`'s, the registry `pipelines.models.tracking`'s; here they are put in a row.
Called by `taut train` and `taut demo`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipelines.errors import RegistryError, TrainingError
from pipelines.lake.lake import Lake
from pipelines.models.examples import By
from pipelines.models.feedback import read_feedback, with_feedback
from pipelines.models.model import TrainedModel
from pipelines.models.runtime import train_runtime
from pipelines.models.tracking import ModelVersion, promote, track
from pipelines.models.usage import train_usage

Talk = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrained:
    """A trained model, and the version it is registered as."""

    model: TrainedModel
    version: ModelVersion

    def row(self) -> dict[str, object]:
        """Return one flat row: what was trained on what, how it was judged, what the gate said."""
        metrics = self.model.metrics
        return {
            "name": self.version.name,
            "version": self.version.version,
            "rows": self.model.rows,
            "until": self.model.until,
            "n": metrics.get("n"),
            "pinball": metrics.get("pinball"),
            "coverage_p90": metrics.get("coverage_p90"),
            "gate": self.version.status,
            "why": self.version.reasons,
        }


def retrain(
    lake: Lake,
    trace: str,
    *,
    uri: str,
    cluster: str | None = None,
    until: datetime | None = None,
    by: By = "kind",
    types: Sequence[str] | None = None,
    seed: int = 0,
    threads: int = 1,
    feedback: str | None = None,
    talk: Talk = lambda _: None,
) -> list[Retrained]:
    """Train the run-time and, where use was measured, the usage models of a trace; register each as a challenger.

    `feedback` is the URL of a service's store, whose finished jobs are learnt from as well.

    Raises
    ------
    TrainingError
        No type has enough jobs for a run-time model, or the feedback cannot be read. Too few measured jobs for a usage
        model is said, not raised.
    """
    jobs = lake.table("jobs", trace, cluster).collect()
    usage = lake.table("usage", trace, cluster).collect()
    if feedback is not None:
        finished = read_feedback(feedback, trace, cluster)
        jobs, usage = with_feedback(jobs, usage, finished)
        talk(f"learning from {len(finished)} jobs of feedback as well")
    measured = None if usage.is_empty() else usage
    talk(f"training run-time models of {trace} on {jobs.height} jobs")
    models = train_runtime(
        jobs, measured, trace=trace, by=by, until=until, types=types, forest=False, seed=seed, nthread=threads
    )
    if measured is None:
        talk(f"{trace} measures no use: no usage models, so nothing will be shrunk (cold_start)")
    else:
        talk(f"training usage models of {trace} on {measured.height} measured jobs")
        try:
            models += train_usage(
                jobs, measured, trace=trace, by=by, until=until, types=types, seed=seed, nthread=threads
            )
        except TrainingError as error:
            talk(f"no usage model: {error}")
    talk(f"registering {len(models)} models at {uri}")
    return [Retrained(model=model, version=track(model, uri=uri)) for model in models]


def promote_all(trained: Sequence[Retrained], *, uri: str, force: bool, talk: Talk) -> list[ModelVersion]:
    """Promote each model that the gate passed; with `force` also the refused ones, each said aloud."""
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
