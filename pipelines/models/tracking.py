"""Write models to MLflow: runs, registered versions and aliases. No other module writes to MLflow."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Final

from modelserve.bundle.card import MODEL_NAME
from modelserve.bundle.flavor import EXAMPLE, INPUTS, OUTPUTS
from modelserve.bundle.registry import in_short, is_unknown, quietly, without_password
from modelserve.errors import ServeError
from pipelines.errors import PipelineError, RegistryError
from pipelines.models.judging import PROVEN
from pipelines.models.model import TrainedModel, card_of, figures, write_model
from pipelines.settings import load_settings

__all__ = ["ModelVersion"]

EXPERIMENT: Final = "taut"
LOADER: Final = "modelserve.bundle.flavor"
"""Module that `mlflow.pyfunc.load_model` imports to load a model. It reads a bundle, so nothing is pickled."""

MAX_TAG_CHARS: Final = 1000
MAX_METRICS: Final = 1000
"""Maximum number of metrics that MLflow takes in one call."""

SQLITE: Final = "sqlite:///"

CHAMPION: Final = "champion"
CHALLENGER: Final = "challenger"

STATUS: Final = "validation_status"
VERDICT: Final = "verdict"
ANSWER: Final = "answer"
REASONS: Final = "gate"
DIGEST: Final = "bundle_sha256"
REPLACED: Final = "replaced_champion"
FORCED: Final = "forced"
ROLLED_BACK: Final = "rolled_back_to"
SEEN: Final = "seen_until"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVersion:
    """One registered version of a model: its aliases, the verdict of the gate, what answers, and its MLflow run.

    `replaced` is the champion that it replaced when it was promoted, None if it was never promoted or replaced none.
    `seen` is the time of the latest event in the data when it was trained, None if not recorded.
    """

    name: str
    version: int
    aliases: tuple[str, ...]
    verdict: str
    answer: str
    reasons: str
    digest: str
    run_id: str
    replaced: int | None
    seen: datetime | None

    @property
    def reference(self) -> str:
        """Return the name that responses give for this version, such as `runtime.pai.ctr@7`."""
        return f"{self.name}@{self.version}"

    def refusal(self, champion: "ModelVersion | None") -> str | None:
        """Return why the gate does not let this version replace the champion; None if it does.

        Only a proven version (`Verdict.proven`) replaces a proven champion. A run-time model that is not proven serves
        meanwhile if there is none, with the answer that the gate chose. A failed version is never promoted.
        """
        if self.verdict in PROVEN:
            return None
        if self.verdict in ("worse", "too few") and (champion is None or champion.verdict not in PROVEN):
            return None
        stays = "" if champion is None else f"; {champion.reference} goes on answering"
        return (
            f"{self.reference} is not promoted, the gate refused it: {self.reasons}{stays}; "
            "train a better one, or promote it with --force"
        )


def track(
    model: TrainedModel,
    *,
    uri: str,
    created: datetime | None = None,
    seen: datetime | None = None,
) -> ModelVersion:
    """Log a run with the model, register it as a new version, and point `challenger` at it.

    The tags `verdict`, `gate` (its reasons), `answer` (what the model answers with) and `validation_status` (`passed`
    or `failed`) record the decision of the gate; nothing is promoted. `seen` is the time of the latest event in the
    data, from which on all events are new to the model.
    """
    verdict = model.verdict
    tags = {
        "trace": model.trace,
        "task_type": model.task_type,
        "kind": model.kind,
        "until": model.until.isoformat(),
        "data_fingerprint": model.data_fingerprint,
        "contract_fingerprint": model.contract.fingerprint,
        VERDICT: verdict.word,
        ANSWER: model.answer,
        REASONS: verdict.text[:MAX_TAG_CHARS],
        **({} if seen is None else {SEEN: seen.isoformat()}),
    }
    created = created or datetime.now(UTC)
    with _client(uri, make=True) as client, tempfile.TemporaryDirectory(prefix="taut-model-") as stage:
        bundle = Path(stage) / "bundle"
        digest = write_model(model, bundle, created=created)
        experiment = _experiment(client, uri)
        run_id = client.create_run(experiment, run_name=model.name, tags=tags).info.run_id
        try:
            _log_run(client, run_id, model, created)
            logged = _log_model(client, experiment, run_id, model, bundle, Path(stage) / "model")
            status = "failed" if verdict.word in ("worse", "failed") else "passed"
            judged = {STATUS: status, DIGEST: digest, "rows": str(model.rows)}
            version = _register(client, model.name, logged, run_id, tags | judged)
        except BaseException:
            client.set_terminated(run_id, status="FAILED")
            raise
        client.set_terminated(run_id, status="FINISHED")
        return version_of(client, model.name, version)


def promote(name: str, *, uri: str, version: int | None = None, force: bool = False) -> ModelVersion:
    """Point `champion` at a version that the gate lets serve (`ModelVersion.refusal`), by default the challenger.

    A tag records the version that was champion before. `force` also promotes a version that the gate refused; its tags
    `verdict` and `validation_status` become `forced`. Its answer stays the one that the gate chose.
    """
    with _client(uri) as client:
        chosen = by_alias(client, name, CHALLENGER) if version is None else version_of(client, name, version)
        if chosen is None:
            raise RegistryError(f"{name}: no {CHALLENGER}, expected a version to promote; train it, or name a version")
        if CHAMPION in chosen.aliases:
            return chosen
        replaced = by_alias(client, name, CHAMPION)
        if (refusal := chosen.refusal(replaced)) is not None:
            if not force:
                raise RegistryError(refusal)
            client.set_model_version_tag(name, str(chosen.version), VERDICT, FORCED)
            client.set_model_version_tag(name, str(chosen.version), STATUS, FORCED)
            client.set_model_version_tag(name, str(chosen.version), FORCED, datetime.now(UTC).isoformat())
        if replaced is not None:
            client.set_model_version_tag(name, str(chosen.version), REPLACED, str(replaced.version))
        client.set_registered_model_alias(name, CHAMPION, str(chosen.version))
        return version_of(client, name, chosen.version)


def rollback(name: str, *, uri: str) -> ModelVersion:
    """Point `champion` back at the version that the present champion replaced; tag the present one as rolled back."""
    with _client(uri) as client:
        present = by_alias(client, name, CHAMPION)
        if present is None:
            raise RegistryError(f"{name}: no {CHAMPION}, expected one to roll back from; promote a version first")
        if present.replaced is None:
            raise RegistryError(f"{present.reference} replaced no {CHAMPION}; expected one to go back to")
        former = version_of(client, name, present.replaced)
        client.set_registered_model_alias(name, CHAMPION, str(former.version))
        client.set_model_version_tag(name, str(present.version), ROLLED_BACK, str(former.version))
        return version_of(client, name, former.version)


def versions(*, uri: str, name: str | None = None) -> list[ModelVersion]:
    """Return every registered version of taut's models, or of the model `name`, sorted by name and version number."""
    with _client(uri) as client:
        names = [model.name for model in client.search_registered_models(max_results=1000)] if name is None else [name]
        found = []
        for ours in filter(MODEL_NAME.fullmatch, names):
            listed = client.search_model_versions(f"name='{ours}'")
            # Some servers omit aliases in search results, so each version is fetched.
            found += [version_of(client, ours, int(each.version)) for each in listed]
        return sorted(found, key=lambda each: (each.name, each.version))


def version_of(client: Any, name: str, version: int) -> ModelVersion:
    """Return a registered version; raise RegistryError if there is none."""
    try:
        found = client.get_model_version(name, str(version))
    except Exception as error:
        if not is_unknown(error):
            raise
        raise RegistryError(f"{name}: no version {version}, expected one that `taut models` lists") from error
    return ModelVersion(
        name=found.name,
        version=int(found.version),
        aliases=tuple(sorted(found.aliases)),
        verdict=found.tags.get(VERDICT, "unknown"),
        answer=found.tags.get(ANSWER, "unknown"),
        reasons=found.tags.get(REASONS, "no verdict recorded"),
        digest=found.tags.get(DIGEST, ""),
        run_id=found.run_id or "",
        replaced=int(found.tags[REPLACED]) if REPLACED in found.tags else None,
        seen=datetime.fromisoformat(found.tags[SEEN]) if SEEN in found.tags else None,
    )


def by_alias(client: Any, name: str, alias: str) -> ModelVersion | None:
    """Return the version of a model that has an alias, or None; raise RegistryError if there is no such model."""
    try:
        held = client.get_registered_model(name).aliases.get(alias)
    except Exception as error:
        if not is_unknown(error):
            raise
        raise RegistryError(f"{name}: no such model, expected one that `taut models` lists; train it first") from error
    return None if held is None else version_of(client, name, int(held))


@contextmanager
def _client(uri: str, *, make: bool = False) -> Iterator[Any]:  # MLflow's client, which publishes no types
    """Yield a client of the tracking server; convert any exception of MLflow to `RegistryError`.

    Create a SQLite database only with `make`, so that reading leaves no files behind.
    """
    with quietly():
        try:
            if uri.startswith(SQLITE):
                database = Path(uri.removeprefix(SQLITE)).absolute()
                if not make and not database.exists():
                    raise RegistryError(f"no models at {uri} yet; train some first, or set MLFLOW_TRACKING_URI")
                database.parent.mkdir(parents=True, exist_ok=True)
            from mlflow import MlflowClient

            yield MlflowClient(tracking_uri=uri)
        except (PipelineError, ServeError):
            raise
        except Exception as error:
            raise RegistryError(
                f"tracking server {without_password(uri)}: {in_short(error)}; "
                "expected an MLflow server or database (MLFLOW_TRACKING_URI)"
            ) from error


def _experiment(client: Any, uri: str) -> str:
    """Return the id of the MLflow experiment `taut`; create it if missing.

    Its artifacts are stored below MLFLOW_DEFAULT_ARTIFACT_ROOT; if unset, next to a SQLite database, and for another
    registry where MLflow decides.
    """
    found = client.get_experiment_by_name(EXPERIMENT)
    if found is not None:
        return str(found.experiment_id)
    location = load_settings().artifact_root
    if location is None and uri.startswith(SQLITE):
        location = (Path(uri.removeprefix(SQLITE)).absolute().parent / "mlartifacts").as_uri()
    return str(client.create_experiment(EXPERIMENT, artifact_location=location))


def _log_run(client: Any, run_id: str, model: TrainedModel, created: datetime) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param

    moment_ms = int(time.time() * 1000)
    params = [Param(key, str(value)) for key, value in model.params.items()]
    metrics = [Metric(key, value, moment_ms, 0) for key, value in figures(model).items()]
    curves = [] if model.curves is None else model.curves.to_dicts()
    metrics += [
        Metric(f"rounds/{name}", row[name], moment_ms, row["round"])
        for row in curves
        for name in ("latest_trained", "later")
        if row[name] is not None
    ]
    for first in range(0, max(len(metrics), 1), MAX_METRICS):
        client.log_batch(run_id, metrics=metrics[first : first + MAX_METRICS], params=params if first == 0 else ())
    source = f'{{"trace": "{model.trace}", "task_type": "{model.task_type}", "until": "{model.until.isoformat()}"}}'
    data = Dataset(f"{model.trace}.{model.task_type}", model.data_fingerprint[:36], "taut-lake", source)
    client.log_inputs(run_id, [DatasetInput(data, [InputTag("mlflow.data.context", "training")])])
    client.log_text(run_id, card_of(model, created=created).to_json().decode(), "card.json")
    rows = model.importances
    table = {key: [row[key] for row in rows] for key in rows[0]} if rows else {"feature": []}
    client.log_table(run_id, table, "importances.json")
    client.log_text(run_id, model.evaluation.write_json(), "evaluation.json")


def _log_model(
    client: Any, experiment: str, run_id: str, model: TrainedModel, bundle: Path, place: Path
) -> tuple[str, str]:
    """Store the bundle as an MLflow model of the run; return the model's id and the location of its files."""
    import pandas as pd
    from mlflow import pyfunc
    from mlflow.entities import LoggedModelOutput
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema

    logged = client.create_logged_model(experiment, name=model.name.replace(".", "-"), source_run_id=run_id)
    inputs = [ColSpec(dtype, name, required=name == "submit_ts") for name, dtype in INPUTS.items()]
    answers = [ColSpec("double", name) for name in OUTPUTS[model.kind]]
    try:
        pyfunc.save_model(
            str(place),
            loader_module=LOADER,
            data_path=str(bundle),
            signature=ModelSignature(Schema(inputs), Schema(answers)),
            input_example=pd.DataFrame([EXAMPLE]),
            # Requirements are given because MLflow would import and run the model to infer them.
            pip_requirements=[f"taut=={installed_version('taut')}"],
            mlflow_model=Model(run_id=run_id, model_id=logged.model_id, artifact_path=logged.artifact_location),
        )
        client.log_model_artifacts(logged.model_id, str(place))
    except BaseException:
        client.finalize_logged_model(logged.model_id, "FAILED")
        raise
    client.finalize_logged_model(logged.model_id, "READY")
    client.log_outputs(run_id, [LoggedModelOutput(logged.model_id, 0)])
    return str(logged.model_id), str(logged.artifact_location)


def _register(client: Any, name: str, logged: tuple[str, str], run_id: str, tags: dict[str, str]) -> int:
    """Register the logged model as a new version and as challenger; return its number.

    If that fails, delete the registered model if it was created for this version.
    """
    made = not client.search_registered_models(f"name='{name}'")
    if made:
        client.create_registered_model(name)
    try:
        # `models:/<id>` as source would be resolved with the process's tracking server, not with that of this client.
        model_id, source = logged
        version = client.create_model_version(name, source, run_id, tags=tags, model_id=model_id, await_creation_for=0)
    except BaseException:
        if made:
            client.delete_registered_model(name)
        raise
    client.set_registered_model_alias(name, CHALLENGER, version.version)
    return int(version.version)
