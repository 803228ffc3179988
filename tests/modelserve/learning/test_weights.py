"""A combined model: its weights follow feedback, in every worker alike, and each answer can be repeated."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.card import COMBINABLE
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.calls.predictions import predict
from modelserve.contract.calls import EXPLAIN, PREDICT
from modelserve.contract.requests import JobRow
from modelserve.errors import BundleError
from modelserve.store.finished import newest_finished
from tests.modelserve.answering import answer_of, folder_of, job
from tests.modelserve.feedback_cases import ACCOUNTING, body, finished, service_of
from tests.modelserve.mirrored import NAME, models_of, reseal


@pytest.fixture
def folder(tmp_path: Path, small_bundles: dict[str, Path], combined_bundle: Path) -> Path:
    return folder_of(tmp_path / "bundles", {**small_bundles, "runtime": combined_bundle}).path


@pytest.fixture
def service(tmp_path: Path, folder: Path) -> Iterator[Any]:
    opened = worker(tmp_path, folder)
    yield opened
    opened.store.close()


def worker(tmp_path: Path, folder: Path) -> Any:
    models = models_of(folder)
    models.refresh()
    return service_of(tmp_path / "serve.db", models)


def predicted(service: Any, **changes: Any) -> dict[str, Any]:
    jobs = [job(submit_ts="2020-08-20T00:00:00Z", **changes)]
    return answer_of(service, PREDICT, jobs=jobs)["predictions"][0]


def weights(service: Any, cluster: str = "pai") -> list[float]:
    learning = service.models.current.champions[NAME].learning
    return learning.of_cluster.get(cluster, learning.start).weights(0.5).tolist()


def test_the_service_answers_as_the_commands_do(service: Any, folder: Path) -> None:
    bundle = read_bundle(folder / NAME / "7", version="7")
    said = job(submit_ts="2020-08-20T00:00:00Z")
    [expected] = predict([JobRow.model_validate(said)], InProcessPredictor(bundles={NAME: bundle}), trace="pai")

    found = predicted(service)

    assert found["run_time_s"] == {"p50": expected["run_time_p50_s"], "p90": expected["run_time_p90_s"]}
    assert (found["basis"], found["ended_jobs"]) == (expected["basis"], expected["ended_jobs"])
    assert (found["basis"], found["ended_jobs"] > 0) == ("model", True)


def test_feedback_moves_the_weights_of_its_cluster_only(service: Any) -> None:
    before, elsewhere = weights(service), weights(service, "west")

    service.take_feedback(body([finished(f"a{i}", i, run_s=5e4) for i in range(30)]), ACCOUNTING)

    assert weights(service) != before
    assert weights(service, "west") == elsewhere == before
    assert sum(weights(service)) == pytest.approx(1.0)
    kept = json.loads(newest_finished(service.store, limit=1)[0].forecasts or "")
    assert np.shape(kept) == (len(COMBINABLE), 2)


def test_all_workers_and_a_later_one_have_the_same_weights(service: Any, tmp_path: Path, folder: Path) -> None:
    other = worker(tmp_path, folder)
    for i in range(6):
        (service if i % 2 else other).take_feedback(body([finished(f"a{i}", i, run_s=100.0 * (i + 1))]), ACCOUNTING)
    service.feed.poll()
    other.feed.poll()

    late = worker(tmp_path, folder)
    late.feed.poll()

    assert weights(service) == weights(other) == weights(late)
    assert predicted(service)["run_time_s"] == predicted(other)["run_time_s"]
    for each in (other, late):
        each.store.close()


def test_an_explanation_adds_up_to_the_combined_answer(service: Any) -> None:
    found = answer_of(service, EXPLAIN, job=job(submit_ts="2020-08-20T00:00:00Z"), quantile="p50", top=3)

    parts = sum(each["seconds"] for each in found["contributions"])
    assert found["base_s"] + parts + found["rest_s"] == pytest.approx(found["run_time_s"])
    assert found["run_time_s"] == pytest.approx(predicted(service)["run_time_s"]["p50"])


@pytest.mark.parametrize("spoiled", ["trees", "values", "missing", "surplus"])
def test_a_spoiled_forest_is_refused(tmp_path: Path, combined_bundle: Path, spoiled: str) -> None:
    bundle = Path(shutil.copytree(combined_bundle, tmp_path / "bundle"))
    file = bundle / "models" / {"trees": "forest.ubj", "surplus": "forest.pkl"}.get(spoiled, "forest.f32")
    if spoiled == "missing":
        file.unlink()
    else:
        file.write_bytes(b"x" * 100)
    reseal(bundle, surplus=True)

    with pytest.raises(BundleError, match="forest"):
        read_bundle(bundle)
