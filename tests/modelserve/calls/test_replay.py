import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from modelserve.callers import ANYONE
from modelserve.calls.replay import replay
from modelserve.contract.requests import PredictBody, RecommendBody
from modelserve.errors import BadRequest, NotKnown
from modelserve.learning.learned import Learned, Stop
from modelserve.loading.feature_records import Scored, decode_features, encode_features
from modelserve.loading.served import ServedModel
from modelserve.service import Service
from modelserve.settings import TypePolicy
from modelserve.store.answers import AnswerRecord
from tests.modelserve.answering import folder_of, job, mixed, service_of
from tests.modelserve.mirrored import NAME, USAGE, run_of

LEARNED = Learned(
    modes={("pai", "", "ctr", ""): "enforce"},
    brakes={("pai", "", "nlp"): Stop(why="too many kills", since=1.0)},
    floors={("pai", "pai", "group", "g1", "worker"): 28.5},
    seq=12,
)


@pytest.fixture
def service(small_bundles: dict[str, Path], tmp_path: Path) -> Service:
    folder = folder_of(tmp_path, small_bundles)
    types = {"ctr": TypePolicy(minimums={"cpu_cores": 4.5}, mem_margin=0.3)}
    return service_of(folder.path, learned=LEARNED, types=types)


def predicted(service: Service, jobs: list[dict[str, object]], **said: object) -> AnswerRecord:
    body = PredictBody.model_validate({"jobs": jobs, **said})
    service.predict_jobs(body, ANYONE, answer_id="0190-p")
    return service.log.records[-1]  # type: ignore[attr-defined]


def recommended(service: Service, jobs: list[dict[str, object]], **said: object) -> AnswerRecord:
    body = RecommendBody.model_validate({"jobs": jobs, **said})
    service.recommend_jobs(body, ANYONE, answer_id="0190-r")
    return service.log.records[-1]  # type: ignore[attr-defined]


@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize("outputs", [["run_time"], ["peak_use", "run_time"]], ids=str)
def test_predictions_are_made_again_to_the_byte(service: Service, count: int, outputs: list[str]) -> None:
    record = predicted(service, mixed(count), outputs=outputs)

    assert record.kind == "prediction"
    assert replay(record, service.settings.bundles) == record.response


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize(
    "said",
    [{}, {"guard": "none"}, {"theta": 0.5, "alpha": 0.0, "floors": {"gpus": 0.4}}],
    ids=str,
)
def test_recommendations_are_made_again_to_the_byte(service: Service, count: int, said: dict[str, object]) -> None:
    record = recommended(service, [*mixed(count), job(99, floors={"mem_gib": 20.0})], **said)

    assert record.kind == "recommendation"
    assert replay(record, service.settings.bundles) == record.response


def test_an_answer_is_made_again_after_everything_moved_on(
    service: Service, small_bundles: dict[str, Path], other_version: Path
) -> None:
    records = [predicted(service, mixed(9)), recommended(service, mixed(9))]
    folder = folder_of(service.settings.bundles.parent / "same", small_bundles)
    folder.path = service.settings.bundles

    folder.add(NAME, "8", source=other_version)
    service.models.refresh()
    service.models.learn([run_of(f"late{i}", group="g1") for i in range(30)])
    later = [predicted(service, mixed(9)), recommended(service, mixed(9))]

    assert service.models.current.champions[NAME].bundle.version == "8"
    for before, after in zip(records, later, strict=True):
        assert before.response != after.response
        assert replay(before, folder.path) == before.response
        assert replay(after, folder.path) == after.response


def test_failures_are_made_again_too(service: Service) -> None:
    current = service.models.current
    fallen = {**current.champions, USAGE: replace(current.champions[USAGE], trees={})}
    unread = replace(current, champions=fallen, failures={"runtime.pai.nlp": "damaged"})
    service = replace(service, models=SimpleNamespace(current=unread))  # type: ignore[arg-type]

    for record in (predicted(service, mixed(9)), recommended(service, mixed(9))):
        assert b"damaged" in record.response
        assert f"{USAGE}@7: ".encode() in record.response
        assert replay(record, service.settings.bundles) == record.response


def test_a_record_says_what_it_was_made_from(service: Service) -> None:
    record = predicted(service, mixed(9))

    said = json.loads(record.context)
    digest = service.models.current.champions[NAME].bundle.digest
    assert said["models"][f"{NAME}@7"] == {"name": NAME, "version": "7", "digest": digest, "history": [0, 0]}
    assert (said["seq"], said["trace"], record.caller) == (12, "pai", "anyone")
    assert record.models == f"{NAME}@7 {USAGE}@7"
    shown = {each.model: each for each in decode_features(record.features)}
    assert set(shown) == {f"{NAME}@7", f"{USAGE}@7"}
    assert shown[f"{NAME}@7"].rows.tolist() == [0, 2, 3, 4, 5, 7]


def test_feedback_that_comes_after_the_rows_is_not_said_to_be_in_them(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, late = ServedModel.outputs, iter(range(9))

    def taught_meanwhile(model: ServedModel, matrix: object) -> object:
        service.models.learn([run_of(f"late{next(late)}")])
        return answers(model, matrix)

    service.models.learn([run_of("early")])
    monkeypatch.setattr(ServedModel, "outputs", taught_meanwhile)
    record = predicted(service, [job()], outputs=["run_time"])

    assert service.models.current.champions[NAME].history.version == 2
    assert json.loads(record.context)["models"][f"{NAME}@7"]["history"] == [1, 1]


def test_a_version_that_is_gone_or_another_is_refused(service: Service, other_version: Path) -> None:
    record = predicted(service, [job()])
    place = service.settings.bundles / NAME / "7"

    shutil.rmtree(place)
    with pytest.raises(NotKnown, match=f"{NAME}@7.*mirror it again"):
        replay(record, service.settings.bundles)
    shutil.copytree(other_version, place)
    with pytest.raises(NotKnown, match="which answered"):
        replay(record, service.settings.bundles)


def test_records_of_another_kind_are_refused(service: Service) -> None:
    record = predicted(service, [job()])

    for wrong in (
        replace(record, kind="feedback"),
        replace(record, context=b"{}"),
        replace(record, features=b"nothing"),
        replace(record, features=encode_features([])),
        replace(record, features=record.features[:-40]),
    ):
        with pytest.raises(BadRequest):
            replay(wrong, service.settings.bundles)


def test_features_come_back_as_they_went() -> None:
    rng = np.random.default_rng(1)
    scored = [
        Scored(
            model=f"runtime.pai.ctr@{n}",
            digest="ab",
            rows=np.arange(n, dtype=np.int64),
            matrix=np.where(rng.random((n, 5)) < 0.2, np.nan, rng.random((n, 5))).astype(np.float32),
            reference_log_s=rng.random((n, 2)),
            shift_log_s=rng.random((n, 2)),
            evidence=rng.integers(0, 1000, (n, 3)),
            runs=rng.integers(0, 9, n),
        )
        for n in (1, 0, 7)
    ]

    again = decode_features(encode_features(scored))

    assert [(each.model, each.digest) for each in again] == [(each.model, each.digest) for each in scored]
    for one, other in zip(again, scored, strict=True):
        for name in ("rows", "matrix", "reference_log_s", "shift_log_s", "evidence", "runs"):
            left, right = getattr(one, name), getattr(other, name)
            assert (left.dtype, left.shape, left.tobytes()) == (right.dtype, right.shape, right.tobytes())
