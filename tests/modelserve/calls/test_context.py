import json
from pathlib import Path

import pytest

from modelserve.bundle.served import ServedModel
from modelserve.contract.calls import PREDICT
from modelserve.learning.learned import Learned, Stop
from modelserve.service import Service
from modelserve.settings import TypePolicy
from modelserve.store.answers import AnswerRecord
from tests.modelserve.answering import answer_of, folder_of, job, mixed, service_of
from tests.modelserve.mirrored import NAME, USAGE, run_of

LEARNED = Learned(
    modes={("pai", "", "ctr", ""): "enforce"},
    brakes={("pai", "", "nlp", "", ""): Stop(scope=("pai", "", "nlp", "", ""), why="too many kills", since=1.0)},
    floors={("pai", "pai", "group", "g1", "worker"): 28.5},
    seq=12,
)


@pytest.fixture
def service(small_bundles: dict[str, Path], tmp_path: Path) -> Service:
    folder = folder_of(tmp_path, small_bundles)
    types = {"ctr": TypePolicy(minimums={"cpu_cores": 4.5}, mem_margin=0.3)}
    return service_of(folder.path, learned=LEARNED, types=types)


def predicted(service: Service, jobs: list[dict[str, object]], **said: object) -> AnswerRecord:
    answer_of(service, PREDICT, jobs=jobs, **said)
    return service.log.records[-1]  # type: ignore[attr-defined]


def test_a_record_says_what_it_was_made_from(service: Service) -> None:
    record = predicted(service, mixed(9))

    said = json.loads(record.context)
    digest = service.models.current.champions[NAME].bundle.digest
    assert said["models"][f"{NAME}@7"] == {"name": NAME, "version": "7", "digest": digest, "history": [0, 0]}
    assert (said["seq"], said["trace"], record.caller) == (12, "pai", "anyone")
    assert record.models == f"{NAME}@7 {USAGE}@7"


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
