import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from modelserve.bundle.bundle import Bundle
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.calls.predictions import predict
from modelserve.calls.recommendations import recommend
from modelserve.contract.feedback import FeedbackRow
from modelserve.contract.jobs import flat
from modelserve.contract.requests import JobRow, parse_lines
from modelserve.errors import BadRequest

REQUEST = {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5}
LATER = datetime(2020, 8, 2, tzinfo=UTC)


def row(i: int = 0, **changes: object) -> JobRow:
    said: dict[str, object] = {
        "job_id": f"a{i}",
        "task_type": "ctr",
        "user": "u2",
        "group": "g1",
        "role": "worker",
        "gpu_type": "T4",
        "instances": 2,
        "request": REQUEST,
    }
    return JobRow.model_validate({**said, **changes})


@pytest.fixture
def predictor(bundles: dict[str, Bundle]) -> InProcessPredictor:
    return InProcessPredictor(bundles=bundles)


def test_a_job_without_a_time_is_submitted_when_the_history_was_cut(predictor: InProcessPredictor) -> None:
    at_cut = row(0, submit_ts=datetime(2020, 8, 1, tzinfo=UTC))

    assert recommend([row(0)], predictor, trace="pai") == recommend([at_cut], predictor, trace="pai")


def test_now_stands_in_for_a_missing_time_only(predictor: InProcessPredictor) -> None:
    early = datetime(2020, 7, 1, 1, tzinfo=UTC)

    [dated] = recommend([row(0, submit_ts=LATER)], predictor, trace="pai", now=early)
    [undated] = recommend([row(0)], predictor, trace="pai", now=early)

    assert dated["measured_runs"] > undated["measured_runs"]


def test_a_flat_answer_keeps_every_value(predictor: InProcessPredictor) -> None:
    [answer] = recommend([row()], predictor, trace="pai")

    flattened = flat(answer)

    assert flattened["cpu_cores"] == 6.0
    assert flattened["gpus_target"] == answer["target"]["gpus"]
    assert flattened["mem_gib_reason"] == answer["reasons"]["mem_gib"]
    assert flattened["run_time_s_p90"] == answer["run_time_s"]["p90"]
    assert not any(isinstance(value, Mapping) for value in flattened.values())
    assert len(flattened) == sum(len(v) if isinstance(v, Mapping) else 1 for v in answer.values())


def test_predictions_are_those_at_the_request(predictor: InProcessPredictor) -> None:
    [known, unknown] = predict([row(0), row(1, task_type="rl")], predictor, trace="pai")
    [answer] = recommend([row(0, opted_out=True)], predictor, trace="pai")

    assert known["run_time_p50_s"] == answer["run_time_s"]["p50"]
    assert known["model_usage"] == "usage.pai.ctr@7"
    assert unknown["run_time_p50_s"] is unknown["peak_mem_gib"] is unknown["model_run_time"] is None
    assert unknown["measured_runs"] == 0
    assert predict([], predictor, trace="pai") == []


def test_lines_are_read_and_refused_by_number() -> None:
    good = json.dumps({"job_id": "a1", "task_type": "ctr", "request": REQUEST})

    assert [each.job_id for each in parse_lines([good, "\n", good])] == ["a1", "a1"]
    with pytest.raises(BadRequest, match="line 3: request"):
        parse_lines([good, "", '{"job_id": "a1", "task_type": "ctr"}'])
    with pytest.raises(BadRequest, match="line 1"):
        parse_lines(["nonsense"])


def test_a_job_without_a_type_is_of_the_type_other(predictor: InProcessPredictor) -> None:
    [without] = parse_lines([json.dumps({"job_id": "a1", "request": REQUEST})])
    named = row(0, job_id="a1", task_type="other", user=None, group=None, role="job", gpu_type=None, instances=1)

    assert without == named
    assert without.task_type == "other"
    assert recommend([without], predictor, trace="pai") == recommend([named], predictor, trace="pai")
    report = {"job_id": "a1", "submit_ts": LATER, "end_ts": LATER, "run_s": 0.0, "outcome": "oom", "request": {}}
    assert FeedbackRow.model_validate(report).task_type == "other"
