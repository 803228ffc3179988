import json
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xgboost as xgb

from features.build import build
from features.contract import FeatureContract
from features.history import History
from modelserve.bundle import CHECKSUMS, read_bundle
from modelserve.champions import read_champions, read_pointer
from modelserve.errors import BundleError, MirrorError
from modelserve.predictor import InProcessPredictor, run_time_features, run_time_quantiles
from modelserve.registry import mirror
from pipelines import tracking
from pipelines.errors import RegistryError
from pipelines.packaging import write_model
from pipelines.tracking import promote, rollback, track, versions
from pipelines.training.model import USAGE_TARGETS, TrainedModel
from scheduler_core.types import Job, Request

CUT = datetime(2020, 7, 4, tzinfo=UTC)


def jobs_of(count: int = 150) -> pl.DataFrame:
    rng = np.random.default_rng(2)
    user = rng.integers(0, 4, count)
    run_s = np.exp(rng.normal(4 + user, 0.3, count)).round()
    submit = [datetime(2020, 7, 1, tzinfo=UTC) + timedelta(minutes=20 * i) for i in range(count)]
    said = {
        "trace": "pai",
        "cluster": "pai",
        "job_id": [f"j{i}" for i in range(count)],
        "role": "worker",
        "user": [f"u{i}" for i in user],
        "group": [f"g{i}" for i in user],
        "workload": "ctr",
        "task_type": "ctr",
        "gpu_type": "T4",
        "submit_ts": submit,
        "start_ts": submit,
        "end_ts": [at + timedelta(seconds=float(s)) for at, s in zip(submit, run_s, strict=True)],
        "run_s": run_s,
        "status": "completed",
        "instances": 1,
        "req_cpu_cores": rng.choice([2.0, 6.0], count),
        "req_mem_gib": 29.3,
        "req_gpus": rng.choice([0.25, 0.5], count),
    }
    moments = dict.fromkeys(("submit_ts", "start_ts", "end_ts"), pl.Datetime("us", "UTC"))
    return pl.DataFrame(said, schema_overrides=moments).with_columns(vc=pl.lit(None, dtype=pl.String))


def evaluation_of(lead: float) -> pl.DataFrame:
    rows = [
        {"model": "xgboost", "split": "time", "n": 400, "pinball": 0.3, "lead": None, "lead_lo": None},
        {"model": "user_median", "split": "time", "n": 400, "pinball": 0.3 + lead, "lead": lead, "lead_lo": lead / 2},
    ]
    return pl.DataFrame(rows)


def model_of(task_type: str, *, kind: str = "runtime", lead: float = 0.1, rounds: int = 5) -> TrainedModel:
    jobs = jobs_of()
    history = History.of(jobs)
    frame = build(jobs, history, "request")
    contract = FeatureContract.fit(frame)
    rows = xgb.DMatrix(contract.encode(frame), np.log(np.maximum(jobs["run_s"].to_numpy(), 1.0)), nthread=1)
    levels = (0.5, 0.9) if kind == "runtime" else (0.95,)
    params = {"objective": "reg:quantileerror", "quantile_alpha": list(levels), "nthread": 1, "max_depth": 3}
    booster = xgb.train(params, rows, rounds)
    coverage = {"model": "xgboost", "split": "time", "n": 90, "level": 0.95, "coverage": 0.96}
    return TrainedModel(
        name=f"{kind}.pai.{task_type}",
        kind=kind,
        trace="pai",
        task_type=task_type,
        contract=contract,
        boosters={"run_s": booster} if kind == "runtime" else dict.fromkeys(USAGE_TARGETS, booster),
        quantiles=levels,
        offsets={"p50": 0.0, "p90": 0.1},
        history=history,
        importances=[{"feature": "req_gpus", "mean": 0.2, "std": 0.1, "repeats": 5, "sign": None}],
        important=("gpus",),
        support={"gpus": (0.25, 0.5)},
        params={"max_depth": 3, "seed": 0},
        metrics={"pinball": 0.3, "wmape": float("nan")},
        evaluation=evaluation_of(lead)
        if kind == "runtime"
        else pl.DataFrame([{**coverage, "target": target} for target in USAGE_TARGETS]),
        until=CUT,
        rows=150,
        data_fingerprint="f" * 64,
    )


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a database that the tests of this file share: each test has models of its own name."""
    return f"sqlite:///{tmp_path_factory.mktemp('tracking')}/deep/mlflow.db"


@pytest.fixture
def mlflow_of(uri: str) -> Iterator[object]:
    """Return MLflow as a user has it, pointed at the database."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import mlflow

        mlflow.set_tracking_uri(uri)
        yield mlflow
        mlflow.set_tracking_uri(None)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


def test_a_tracked_model_is_a_challenger_with_the_gates_word(uri: str) -> None:
    tracked = track(model_of("first"), uri=uri)

    assert (tracked.reference, tracked.aliases, tracked.status) == ("runtime.pai.first@1", ("challenger",), "passed")
    assert "of user_median" in tracked.reasons
    assert track(model_of("first"), uri=uri).version == 2
    assert [each.aliases for each in versions(uri=uri, name="runtime.pai.first")] == [(), ("challenger",)]


def test_the_run_holds_all_that_is_known(uri: str, mlflow_of: object, tmp_path: Path) -> None:
    tracked = track(model_of("logged"), uri=uri)

    client = mlflow_of.MlflowClient()
    run = client.get_run(tracked.run_id)
    files = {each.path for each in client.list_artifacts(tracked.run_id)}
    card = json.loads(Path(client.download_artifacts(tracked.run_id, "card.json", str(tmp_path))).read_text())

    assert run.info.status == "FINISHED"
    assert run.data.params == {"max_depth": "3", "seed": "0"}
    assert run.data.metrics["pinball"] == 0.3
    assert run.data.metrics["time/user_median/lead_lo"] == 0.05
    assert "wmape" not in run.data.metrics
    assert run.data.tags["data_fingerprint"] == "f" * 64
    assert run.inputs.dataset_inputs[0].dataset.digest == "f" * 36
    assert files == {"card.json", "evaluation.json", "importances.json"}
    assert card["name"] == "runtime.pai.logged"
    assert client.get_model_version(tracked.name, "1").tags["bundle_sha256"] == tracked.digest


def test_artifacts_lie_beside_the_database(uri: str) -> None:
    track(model_of("beside"), uri=uri)

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
    columns = [
        "submit_ts",
        "user",
        "group",
        "role",
        "workload",
        "gpu_type",
        "instances",
        "req_cpu_cores",
        "req_mem_gib",
    ]
    plain = asked.select(*columns, "req_gpus").with_columns(pl.col("submit_ts").dt.replace_time_zone(None)).to_pandas()

    answer = mlflow_of.pyfunc.load_model(f"models:/{kind}.pai.pyfunc@champion").predict(plain)

    if kind == "runtime":
        built = run_time_features(bundle, asked)
        expected = run_time_quantiles(bundle, built.features, built.reference_log_s)
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
    track(model_of("gated", lead=0.1), uri=uri)
    good = promote("runtime.pai.gated", uri=uri)
    track(model_of("gated", lead=-0.1), uri=uri)

    with pytest.raises(RegistryError, match=r"runtime\.pai\.gated@2 is not promoted.*lead -0\.1000.*--force"):
        promote("runtime.pai.gated", uri=uri)

    first, second = versions(uri=uri, name="runtime.pai.gated")
    assert (good.version, good.aliases) == (1, ("challenger", "champion"))
    assert first.aliases == ("champion",)
    assert (second.aliases, second.status) == (("challenger",), "failed")


def test_force_leaves_its_tag_and_rollback_returns(uri: str) -> None:
    name = "runtime.pai.forced"
    track(model_of("forced", lead=0.1), uri=uri)
    promote(name, uri=uri)
    track(model_of("forced", lead=-0.1), uri=uri)

    forced = promote(name, uri=uri, force=True)
    back = rollback(name, uri=uri)

    assert (forced.version, forced.status, forced.replaced) == (2, "forced", 1)
    assert forced.aliases == ("challenger", "champion")
    assert (back.version, back.aliases, back.status) == (1, ("champion",), "passed")
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


def test_what_is_not_there_is_said_to_be(uri: str, impatient: None) -> None:
    track(model_of("alone"), uri=uri)

    for ask in (
        lambda: promote("runtime.pai.nothing", uri=uri),
        lambda: promote("runtime.pai.alone", uri=uri, version=9),
        lambda: rollback("runtime.pai.alone", uri=uri),
        lambda: versions(uri="http://127.0.0.1:9/"),
        lambda: versions(uri="nonsense://x"),
    ):
        with pytest.raises(RegistryError):
            ask()


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
        "from test_tracking import model_of\n"
        "from modelserve.registry import mirror\n"
        "from pipelines.tracking import promote, track\n"
        "uri = 'sqlite:///deep/mlflow.db'\n"
        "promote(track(model_of('quiet'), uri=uri).name, uri=uri)\n"
        "assert len(mirror(uri, Path('bundles'))) == 1\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {p.name for p in tmp_path.iterdir()} == {"deep", "bundles"}


def test_a_champion_is_mirrored_and_answers_without_mlflow(uri: str, tmp_path: Path) -> None:
    promote(track(model_of("served"), uri=uri).name, uri=uri)
    track(model_of("unpromoted"), uri=uri)

    [fetched] = mirror(uri, tmp_path, names=["runtime.pai.served"])
    [present] = mirror(uri, tmp_path, names=["runtime.pai.served"])
    champions = read_champions(tmp_path)

    assert (fetched.outcome, present.outcome, fetched.version) == ("fetched", "present", "1")
    assert sorted(p.name for p in (tmp_path / "runtime.pai.served").iterdir()) == ["1", "champion.json"]
    assert champions.failures == {}
    predictor = InProcessPredictor(bundles=champions.bundles)
    job = Job(
        job_id="a1",
        trace="pai",
        task_type="served",
        request=Request(cpu_cores=2.0, mem_gib=29.3, gpus=0.5),
        submit_ts=CUT.timestamp(),
    )
    assert predictor.run_times([job], np.array([0]), np.array([job.request.row()])).p50[0] > 0
    assert predictor.sources(job).run_time == "runtime.pai.served@1"


def test_every_champion_is_mirrored_and_only_those(uri: str, tmp_path: Path) -> None:
    promote(track(model_of("everyone"), uri=uri).name, uri=uri)
    track(model_of("challenging"), uri=uri)

    names = {each.name for each in mirror(uri, tmp_path)}

    assert names == {each.name for each in versions(uri=uri) if "champion" in each.aliases}
    assert "runtime.pai.everyone" in names
    assert "runtime.pai.challenging" not in names


def test_the_mirror_follows_the_alias_back_and_forth(uri: str, tmp_path: Path) -> None:
    name = "runtime.pai.moving"
    seen = []
    promote(track(model_of("moving"), uri=uri).name, uri=uri)
    mirror(uri, tmp_path, names=[name])
    seen.append(read_pointer(tmp_path, name).version)
    promote(track(model_of("moving", rounds=7), uri=uri).name, uri=uri)
    mirror(uri, tmp_path, names=[name])
    seen.append(read_pointer(tmp_path, name).version)
    rollback(name, uri=uri)
    [back] = mirror(uri, tmp_path, names=[name])
    seen.append(read_pointer(tmp_path, name).version)

    assert seen == ["1", "2", "1"]
    assert back.outcome == "present"


def test_a_damaged_mirror_is_fetched_again(uri: str, tmp_path: Path) -> None:
    name = promote(track(model_of("damaged"), uri=uri).name, uri=uri).name
    mirror(uri, tmp_path, names=[name])
    (tmp_path / name / "1" / "card.json").write_text("{}")
    assert list(read_champions(tmp_path).failures) == [name]

    [again] = mirror(uri, tmp_path, names=[name])

    assert again.outcome == "fetched"
    assert list(read_champions(tmp_path).bundles) == [name]


def test_a_registered_bundle_that_was_changed_does_not_move_the_pointer(uri: str, tmp_path: Path) -> None:
    name = promote(track(model_of("tampered"), uri=uri).name, uri=uri).name
    mirror(uri, tmp_path, names=[name])
    second = promote(track(model_of("tampered", rounds=9), uri=uri).name, uri=uri)
    for sums in Path(uri.removeprefix("sqlite:///")).parent.rglob(CHECKSUMS):
        if read_bundle(sums.parent).digest == second.digest:
            (sums.parent / "importances.json").write_text("[]")

    [failed] = mirror(uri, tmp_path, names=[name])

    assert failed.outcome == "failed"
    assert "importances.json" in failed.detail
    assert read_pointer(tmp_path, name).version == "1"
    assert list(read_champions(tmp_path).bundles) == [name]
    assert sorted(p.name for p in (tmp_path / name).iterdir()) == ["1", "champion.json"]


def test_a_registry_that_is_away_leaves_the_mirror_alone(uri: str, tmp_path: Path, impatient: None) -> None:
    name = promote(track(model_of("away"), uri=uri).name, uri=uri).name
    mirror(uri, tmp_path, names=[name])

    with pytest.raises(MirrorError, match="still serves"):
        mirror("http://127.0.0.1:9/", tmp_path)

    assert list(read_champions(tmp_path).bundles) == [name]


def test_a_registry_that_is_away_is_told_in_one_short_line(uri: str, tmp_path: Path, impatient: None) -> None:
    with pytest.raises(MirrorError) as mirrored:
        mirror("http://me:secret@127.0.0.1:9/", tmp_path)
    with pytest.raises(RegistryError) as listed:
        versions(uri="http://me:secret@127.0.0.1:9/")

    for told in (str(mirrored.value), str(listed.value)):
        assert "127.0.0.1:9" in told
        assert "no connection" in told
        assert len(told) < 200
        assert not any(word in told for word in ("secret", "Pool", "urllib3", "retries", "\n"))


def test_a_name_the_registry_does_not_know_is_said_so_with_what_is_near(uri: str, tmp_path: Path) -> None:
    promote(track(model_of("nearby"), uri=uri).name, uri=uri)

    with pytest.raises(MirrorError, match=r"no such model, expected one of .*runtime\.pai\.nearby.*; train it first"):
        mirror(uri, tmp_path, names=["runtime.pai.nearbi"])
    with pytest.raises(RegistryError, match="no such model, expected one that"):
        promote("runtime.pai.nearbi", uri=uri)
    with pytest.raises(RegistryError, match="no version 99, expected one that"):
        promote("runtime.pai.nearby", uri=uri, version=99)


def test_each_alias_has_a_pointer_of_its_own(uri: str, mlflow_of: object, tmp_path: Path) -> None:
    name = promote(track(model_of("both"), uri=uri).name, uri=uri).name
    second = track(model_of("both"), uri=uri)

    mirror(uri, tmp_path, names=[name])
    [challenger] = mirror(uri, tmp_path, names=[name], alias="challenger")

    assert challenger.outcome == "fetched"
    assert read_pointer(tmp_path, name).version == "1"
    assert read_pointer(tmp_path, name, "challenger").version == str(second.version) == "2"

    mlflow_of.MlflowClient().delete_registered_model_alias(name, "challenger")
    withdrawn = {each.name: each.outcome for each in mirror(uri, tmp_path, alias="challenger")}

    assert withdrawn[name] == "withdrawn"
    assert read_pointer(tmp_path, name, "challenger") is None
    assert read_pointer(tmp_path, name).version == "1"


@pytest.mark.parametrize("name", ["../outside", "runtime.pai.ctr/../../x", "runtime.pai", "other.pai.ctr", ""])
def test_a_name_that_is_no_folder_of_ours_is_refused(uri: str, tmp_path: Path, name: str) -> None:
    with pytest.raises(MirrorError, match="expected <runtime"):
        mirror(uri, tmp_path, names=[name])


def test_a_model_without_a_champion_is_said_to_have_none(uri: str, tmp_path: Path) -> None:
    track(model_of("nochampion"), uri=uri)

    with pytest.raises(MirrorError, match="promote one first"):
        mirror(uri, tmp_path, names=["runtime.pai.nochampion"])


def test_models_that_are_not_ours_are_passed_over(uri: str, mlflow_of: object) -> None:
    mlflow_of.MlflowClient().create_registered_model("somebody-elses")

    assert "somebody-elses" not in {each.name for each in versions(uri=uri)}


def test_an_unjudged_model_is_tracked_as_failed(uri: str) -> None:
    bare = replace(model_of("unjudged"), evaluation=pl.DataFrame(), importances=[], metrics={})

    assert track(bare, uri=uri).status == "failed"


def test_a_question_makes_no_database(tmp_path: Path) -> None:
    absent = f"sqlite:///{tmp_path}/absent.db"

    with pytest.raises(RegistryError, match="train some first"):
        versions(uri=absent)
    with pytest.raises(MirrorError, match="no such database"):
        mirror(absent, tmp_path / "bundles")

    assert list(tmp_path.iterdir()) == []


def test_a_model_that_lost_the_alias_is_withdrawn(uri: str, mlflow_of: object, tmp_path: Path) -> None:
    name = promote(track(model_of("withdrawn"), uri=uri).name, uri=uri).name
    mirror(uri, tmp_path, names=[name])
    mlflow_of.MlflowClient().delete_registered_model_alias(name, "champion")

    outcomes = {each.name: each.outcome for each in mirror(uri, tmp_path)}

    assert outcomes[name] == "withdrawn"
    assert name not in read_champions(tmp_path).bundles


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


def test_names_said_on_both_sides_of_a_border_are_the_same() -> None:
    from modelserve import card, registry
    from pipelines.training import model

    assert (registry.CHAMPION, registry.DIGEST_TAG) == (tracking.CHAMPION, tracking.DIGEST)
    assert (card.RUNTIME_TARGET, card.USAGE_TARGETS) == (model.RUNTIME_TARGET, model.USAGE_TARGETS)
