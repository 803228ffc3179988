import json
import math
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.flavor import INPUTS
from modelserve.bundle.registry import mirror
from modelserve.errors import BundleError, MirrorError
from pipelines.errors import RegistryError
from pipelines.models.model import write_model
from pipelines.models.tracking import promote, rollback, track, versions
from tests.modelserve.by_frame import run_times_of
from tests.pipelines.models.tracking.tracked import CUT, jobs_of, model_of


def test_a_tracked_model_is_a_challenger_with_the_gates_word(uri: str) -> None:
    tracked = track(model_of("first"), uri=uri)

    assert (tracked.reference, tracked.aliases) == ("runtime.pai.first@1", ("challenger",))
    assert (tracked.verdict, tracked.answer) == ("better", "trees")
    assert "of same_gpus" in tracked.reasons
    assert track(model_of("first"), uri=uri).version == 2
    assert [each.aliases for each in versions(uri=uri, name="runtime.pai.first")] == [(), ("challenger",)]


def test_the_run_holds_all_that_is_known(uri: str, mlflow_of: object, tmp_path: Path) -> None:
    curves = pl.DataFrame({"round": [1, 2, 3], "latest_trained": [0.5, 0.4, 0.3], "later": [0.6, 0.5, None]})

    tracked = track(replace(model_of("logged"), curves=curves), uri=uri)

    client = mlflow_of.MlflowClient()
    run = client.get_run(tracked.run_id)
    files = {each.path for each in client.list_artifacts(tracked.run_id)}
    logged = {
        name: [(each.step, each.value) for each in client.get_metric_history(tracked.run_id, f"rounds/{name}")]
        for name in ("latest_trained", "later")
    }
    card = json.loads(Path(client.download_artifacts(tracked.run_id, "card.json", str(tmp_path))).read_text())

    assert run.info.status == "FINISHED"
    assert logged == {"latest_trained": [(1, 0.5), (2, 0.4), (3, 0.3)], "later": [(1, 0.6), (2, 0.5)]}
    assert run.data.params == {"max_depth": "3", "seed": "0"}
    assert run.data.metrics["pinball"] == 0.3
    assert run.data.metrics["time/user_median/lead_lo"] == pytest.approx(0.15)
    assert "wmape" not in run.data.metrics
    assert run.data.tags["data_fingerprint"] == "f" * 64
    assert (run.data.tags["verdict"], run.data.tags["answer"]) == ("better", "trees")
    assert (card["verdict"], card["why"]) == ("better", run.data.tags["gate"])
    assert run.inputs.dataset_inputs[0].dataset.digest == "f" * 36
    assert files == {"card.json", "evaluation.json", "importances.json"}
    assert card["name"] == "runtime.pai.logged"
    assert client.get_model_version(tracked.name, "1").tags["bundle_sha256"] == tracked.digest
    folder = Path(uri.removeprefix("sqlite:///")).parent
    assert {p.name for p in folder.iterdir()} == {"mlflow.db", "mlartifacts"}
    assert not list(folder.rglob("*.pkl"))


@pytest.mark.parametrize("kind", ["runtime", "usage"])
def test_mlflow_loads_and_answers_as_the_bundle_does(uri: str, mlflow_of: object, kind: str, tmp_path: Path) -> None:
    model = model_of("pyfunc", kind=kind)
    promote(track(model, uri=uri).name, uri=uri)
    write_model(model, tmp_path / "bundle", created=CUT)
    bundle = read_bundle(tmp_path / "bundle")
    asked = jobs_of().tail(8)
    known = asked.select(name for name in INPUTS if name not in {"vc", "cluster"})
    plain = known.with_columns(pl.col("submit_ts").dt.replace_time_zone(None)).to_pandas()

    answer = mlflow_of.pyfunc.load_model(f"models:/{kind}.pai.pyfunc@champion").predict(plain)

    if kind == "runtime":
        expected = run_times_of(bundle, asked)
        assert answer["run_s_p50"].tolist() == expected.p50.tolist()
        assert answer["run_s_p90"].tolist() == expected.p90.tolist()
    else:
        assert list(answer.columns) == ["used_cpu_cores", "used_mem_gib", "used_gpus", "used_gpu_mem_gib"]
        assert np.isfinite(answer.to_numpy()).all()


def test_mlflow_answers_a_job_that_names_little(uri: str, mlflow_of: object) -> None:
    import pandas as pd

    promote(track(model_of("little"), uri=uri).name, uri=uri)
    loaded = mlflow_of.pyfunc.load_model("models:/runtime.pai.little@champion")

    answer = loaded.predict(pd.DataFrame({"submit_ts": [pd.Timestamp("2020-07-05 12:00")], "req_gpus": [0.5]}))

    assert 0 < answer["run_s_p50"][0] <= answer["run_s_p90"][0]
    assert loaded.input_example is not None
    assert loaded.predict(loaded.input_example).shape == (1, 2)


def test_only_what_the_gate_passed_is_promoted(uri: str) -> None:
    track(model_of("gated"), uri=uri)
    good = promote("runtime.pai.gated", uri=uri)
    track(model_of("gated", pinball=math.nan), uri=uri)

    with pytest.raises(
        RegistryError,
        match=r"gated@2 is not promoted.*no finite loss.*gated@1 goes on.*--force",
    ):
        promote("runtime.pai.gated", uri=uri)

    first, second = versions(uri=uri, name="runtime.pai.gated")
    assert (good.version, good.aliases) == (1, ("challenger", "champion"))
    assert first.aliases == ("champion",)
    assert (second.aliases, second.verdict) == (("challenger",), "failed")
    assert tags_of(uri, "runtime.pai.gated", 2)["validation_status"] == "failed"


UNPROVEN = [("worse", {"pinball": 0.6}), ("too few", {"n": 3})]


@pytest.mark.parametrize(("word", "figures"), UNPROVEN)
def test_an_unproven_version_serves_only_while_no_proven_one_does(uri: str, word: str, figures: dict) -> None:
    name = f"runtime.pai.unproven-{word[:3]}"
    for _ in range(2):
        track(model_of(name.rpartition(".")[2], **figures), uri=uri)
        assert promote(name, uri=uri).verdict == word
    track(model_of(name.rpartition(".")[2]), uri=uri)
    promote(name, uri=uri)
    track(model_of(name.rpartition(".")[2], **figures), uri=uri)

    with pytest.raises(RegistryError, match=rf"{name}@4 is not promoted.*{name}@3 goes on answering"):
        promote(name, uri=uri)

    assert [each.aliases for each in versions(uri=uri, name=name)] == [(), (), ("champion",), ("challenger",)]


def test_force_leaves_its_tag_and_rollback_returns(uri: str) -> None:
    name = "runtime.pai.forced"
    track(model_of("forced"), uri=uri)
    promote(name, uri=uri)
    track(model_of("forced", pinball=math.nan), uri=uri)

    forced = promote(name, uri=uri, force=True)
    back = rollback(name, uri=uri)

    assert (forced.version, forced.verdict, forced.replaced) == (2, "forced", 1)
    assert forced.aliases == ("challenger", "champion")
    assert (back.version, back.aliases, back.verdict) == (1, ("champion",), "better")
    assert tags_of(uri, name, 2)["rolled_back_to"] == "1"
    assert "forced" in tags_of(uri, name, 2)
    with pytest.raises(RegistryError, match="replaced no champion"):
        rollback(name, uri=uri)


def tags_of(uri: str, name: str, version: int) -> dict[str, str]:
    with sqlite3.connect(uri.removeprefix("sqlite:///")) as database:
        rows = database.execute(
            "select key, value from model_version_tags where name = ? and version = ?", (name, version)
        ).fetchall()
    database.close()
    return dict(rows)


def test_a_version_is_promoted_by_number_and_twice_is_once(uri: str) -> None:
    name = "runtime.pai.numbered"
    for _ in range(2):
        track(model_of("numbered"), uri=uri)

    promote(name, uri=uri, version=1)
    promote(name, uri=uri, version=2)
    again = promote(name, uri=uri, version=2)

    assert (again.version, again.replaced) == (2, 1)
    assert rollback(name, uri=uri).version == 1


def test_a_failed_registration_leaves_no_empty_model(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("the server went away")

    monkeypatch.setattr(MlflowClient, "create_model_version", refuse)

    with pytest.raises(RegistryError, match="went away"):
        track(model_of("lost"), uri=uri)

    monkeypatch.undo()
    with pytest.raises(RegistryError):
        versions(uri=uri, name="runtime.pai.lost") or promote("runtime.pai.lost", uri=uri)
    names = {each.name for each in versions(uri=uri)}
    assert "runtime.pai.lost" not in names
    assert not MlflowClient(tracking_uri=uri).search_registered_models("name='runtime.pai.lost'")


@pytest.mark.slow
def test_nothing_is_said_on_stdout_or_stderr(tmp_path: Path) -> None:
    """In a process of its own, since MLflow speaks at its import and at the first use of a database."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from tracked import model_of\n"
        "from modelserve.bundle.registry import mirror\n"
        "from pipelines.models.tracking import promote, track\n"
        "uri = 'sqlite:///deep/mlflow.db'\n"
        "promote(track(model_of('quiet'), uri=uri).name, uri=uri)\n"
        "assert len(mirror(uri, Path('bundles'))) == 1\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {p.name for p in tmp_path.iterdir()} == {"deep", "bundles"}


def test_a_model_without_later_jobs_is_tracked_as_such_and_models_that_are_not_ours_are_not_listed(
    uri: str, mlflow_of: object
) -> None:
    judged = model_of("unjudged")
    bare = replace(judged, evaluation=judged.evaluation.clear(), importances=[], metrics={})
    mlflow_of.MlflowClient().create_registered_model("somebody-elses")

    assert track(bare, uri=uri).verdict == "too few"
    assert "somebody-elses" not in {each.name for each in versions(uri=uri)}


def test_a_question_makes_no_database(tmp_path: Path) -> None:
    absent = f"sqlite:///{tmp_path}/absent.db"

    with pytest.raises(RegistryError, match="train some first"):
        versions(uri=absent)
    with pytest.raises(RegistryError):
        versions(uri="nonsense://x")
    with pytest.raises(MirrorError, match="no such database"):
        mirror(absent, tmp_path / "bundles")

    assert list(tmp_path.iterdir()) == []


def test_parts_that_do_not_belong_together_are_not_tracked(uri: str) -> None:
    model = model_of("mixed")

    for odd, said in [
        (replace(model, boosters={}), "targets"),
        (replace(model, trace="my trace", name="runtime.my trace.mixed"), "name 'runtime.my trace.mixed'"),
        (replace(model, contract=model_of("mixed", kind="usage").contract, boosters={"gpus": 0}), "targets"),
    ]:
        with pytest.raises(BundleError, match=said):
            track(odd, uri=uri)

    assert "runtime.pai.mixed" not in {each.name for each in versions(uri=uri)}
