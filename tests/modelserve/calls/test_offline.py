import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from pydantic import ValidationError

from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import complaint
from modelserve.bundle.predictor import InProcessPredictor, Sources
from modelserve.calls.offline import predict, recommend
from modelserve.calls.recommendations import POLICY
from modelserve.contract.feedback import FeedbackRow
from modelserve.contract.requests import JobRow, parse_lines
from modelserve.contract.writing import flat
from modelserve.errors import BadRequest
from scheduler_core.types import IntArray, Job, Knowledge, PeakUse, RunTimes

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


@dataclass(frozen=True)
class Failing:
    """A predictor whose model of one task type fails; the other answers as told."""

    inner: InProcessPredictor
    task_type: str

    def _check(self, jobs: Sequence[Job]) -> None:
        if any(job.task_type == self.task_type for job in jobs):
            raise RuntimeError("the model fell over")

    def run_times(self, jobs: Sequence[Job], rows: IntArray, requests: np.ndarray) -> RunTimes:
        self._check(jobs)
        return self.inner.run_times(jobs, rows, requests)

    def peak_use(self, jobs: Sequence[Job]) -> PeakUse:
        return self.inner.peak_use(jobs)

    def knowledge(self, jobs: Sequence[Job]) -> Sequence[Knowledge]:
        return self.inner.knowledge(jobs)

    def sources(self, job: Job) -> Sources:
        return self.inner.sources(job)


def test_an_answer_has_the_shape_of_the_contract(predictor: InProcessPredictor) -> None:
    [answer] = recommend([row()], predictor, trace="pai")

    assert list(answer) == [
        "job_id",
        "request",
        "target",
        "lower_bound",
        "run_time_s",
        "run_time_change",
        "reasons",
        "models",
        "history",
        "measured_runs",
        "raise_to",
        "note",
    ]
    assert answer["request"] == REQUEST
    assert answer["models"] == {"run_time": "runtime.pai.ctr@7", "usage": "usage.pai.ctr@7"}
    assert answer["history"] == "2020-08-01T00:00:00Z"
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer


def test_targets_lie_between_floor_and_request(predictor: InProcessPredictor) -> None:
    answers = recommend([row(i, user=f"u{i % 6}", group=f"g{i % 3}") for i in range(20)], predictor, trace="pai")

    for answer in answers:
        for resource, asked in REQUEST.items():
            assert answer["lower_bound"][resource] <= answer["target"][resource] + 1e-9
            assert answer["target"][resource] <= asked
            assert (answer["target"][resource] < asked) >= (answer["reasons"][resource] == "shrunk")
    assert any("shrunk" in answer["reasons"].values() for answer in answers)


def test_the_share_of_a_gpu_holds_the_peak_of_its_memory(predictor: InProcessPredictor) -> None:
    [t4, big] = recommend([row(0), row(1, gpu_type="V100M32")], predictor, trace="pai")

    [peak, _] = predict([row(0), row(1, gpu_type="V100M32")], predictor, trace="pai")

    margin = 1.0 + POLICY.gpu_mem_margin
    assert peak["peak_gpus"] < peak["peak_gpu_mem_gib"] * margin / 16.0
    assert t4["lower_bound"]["gpus"] == pytest.approx(peak["peak_gpu_mem_gib"] * margin / 16.0)
    assert big["lower_bound"]["gpus"] < t4["lower_bound"]["gpus"]


@pytest.mark.parametrize(
    "changes",
    [
        {"task_type": "unheard-of"},
        {"trace": "helios"},
        {"user": "never-seen", "group": "never-seen"},
        {"user": None, "group": None},
    ],
    ids=str,
)
def test_what_is_unknown_is_a_cold_start(predictor: InProcessPredictor, changes: dict[str, object]) -> None:
    [cold, warm] = recommend([row(0, **changes), row(1)], predictor, trace="pai")

    assert set(cold["reasons"].values()) == {"cold_start"}
    assert cold["target"] == cold["request"]
    assert set(warm["reasons"].values()) != {"cold_start"}


def test_an_unknown_device_is_answered(predictor: InProcessPredictor) -> None:
    [answer] = recommend([row(0, gpu_type="H999")], predictor, trace="pai")

    assert answer["reasons"]["mem_gib"] != "predictor_unavailable"


def test_a_model_that_fails_takes_only_its_own_jobs_along(bundles: dict[str, Bundle]) -> None:
    both = {**bundles, "runtime.pai.nlp": bundles["runtime.pai.ctr"], "usage.pai.nlp": bundles["usage.pai.ctr"]}
    renamed = {name: _named(bundle, name) for name, bundle in both.items()}
    predictor = Failing(inner=InProcessPredictor(bundles=renamed), task_type="nlp")

    answers = recommend([row(0, task_type="nlp"), row(1), row(2, task_type="nlp")], predictor, trace="pai")

    assert [set(a["reasons"].values()) == {"predictor_unavailable"} for a in answers] == [True, False, True]
    assert answers[0]["target"] == answers[0]["request"] == REQUEST
    assert "the model fell over" in answers[0]["note"]
    assert [a["job_id"] for a in answers] == ["a0", "a1", "a2"]


def test_a_model_that_could_not_be_read_is_unavailable_with_its_fault(bundles: dict[str, Bundle]) -> None:
    readable = {name: bundle for name, bundle in bundles.items() if name.startswith("usage.")}
    predictor = InProcessPredictor(bundles=readable, failures={"runtime.pai.ctr": "run_s.ubj: changed"})

    [damaged, cold] = recommend([row(0), row(1, task_type="nlp")], predictor, trace="pai")

    assert set(damaged["reasons"].values()) == {"predictor_unavailable"}
    assert damaged["note"] == "run_s.ubj: changed"
    assert damaged["target"] == REQUEST
    assert set(cold["reasons"].values()) == {"cold_start"}


def _named(bundle: Bundle, name: str) -> Bundle:
    from dataclasses import replace

    kind, trace, task_type = name.split(".")
    card = bundle.card.model_copy(update={"name": name, "kind": kind, "trace": trace, "task_type": task_type})
    return replace(bundle, card=card)


def test_one_call_answers_as_many_calls_do(predictor: InProcessPredictor) -> None:
    rows = [row(i, user=f"u{i % 7}", group=f"g{i % 4}", task_type="ctr" if i % 3 else "nlp") for i in range(12)]

    together = recommend(rows, predictor, trace="pai")

    assert together == [recommend([each], predictor, trace="pai")[0] for each in rows]


def test_a_resource_the_trace_lacks_stays_unknown(predictor: InProcessPredictor) -> None:
    [answer] = recommend([row(0, request={"gpus": 0.5})], predictor, trace="pai")

    assert answer["target"]["mem_gib"] is None
    assert answer["reasons"]["mem_gib"] is None
    assert answer["reasons"]["gpus"] is not None


def test_an_opted_out_job_keeps_its_request(predictor: InProcessPredictor) -> None:
    [answer] = recommend([row(0, opted_out=True)], predictor, trace="pai")

    assert set(answer["reasons"].values()) == {"opted_out"}
    assert answer["target"] == REQUEST


def test_a_job_without_a_time_is_submitted_when_the_history_was_cut(predictor: InProcessPredictor) -> None:
    at_cut = row(0, submit_ts=datetime(2020, 8, 1, tzinfo=UTC))

    assert recommend([row(0)], predictor, trace="pai") == recommend([at_cut], predictor, trace="pai")


def test_now_stands_in_for_a_missing_time_only(predictor: InProcessPredictor) -> None:
    early = datetime(2020, 7, 1, 1, tzinfo=UTC)

    [dated] = recommend([row(0, submit_ts=LATER)], predictor, trace="pai", now=early)
    [undated] = recommend([row(0)], predictor, trace="pai", now=early)

    assert dated["measured_runs"] > undated["measured_runs"]


def test_a_smaller_theta_never_passes_more(predictor: InProcessPredictor) -> None:
    rows = [row(i, user=f"u{i}", group=f"g{i // 2}") for i in range(6)]

    strict, lax = (recommend(rows, predictor, trace="pai", theta=theta) for theta in (1e-9, 1.0))

    assert all(abs(answer["run_time_change"]) < 1e-9 for answer in strict if answer["run_time_change"] is not None)
    assert [a["target"] for a in strict] != [a["target"] for a in lax]


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


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"job_id": ""}, "job_id"),
        ({"job_id": 3}, "job_id"),
        ({"request": {"cpu_cores": -1}}, "request.cpu_cores"),
        ({"request": {"gpus": math.inf}}, "request.gpus"),
        ({"request": {"gpus": math.nan}}, "request.gpus"),
        ({"request": {"gpu": 1}}, "request.gpu"),
        ({"request": None}, "request"),
        ({"instances": 0}, "instances"),
        ({"submit_ts": "2020-07-01T00:00:00"}, "submit_ts"),
        ({"user": "u" * 300}, "user"),
        ({"cores": 3}, "cores"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused_by_field(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        row(0, **changes)

    assert complaint(refused.value).startswith(f"{field}: ")


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


def test_times_of_any_zone_are_one_moment(predictor: InProcessPredictor) -> None:
    utc = row(0, submit_ts="2020-08-02T00:00:00Z")
    shanghai = row(0, submit_ts="2020-08-02T08:00:00+08:00")

    assert recommend([utc], predictor, trace="pai") == recommend([shanghai], predictor, trace="pai")
    assert utc.submit_ts - shanghai.submit_ts == timedelta(0)
