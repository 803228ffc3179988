"""What a refused body is told: the field at fault, and what was expected of it in plain words."""

import json

import pytest
from pydantic import BaseModel, ValidationError

from modelserve.api.problems import invalid_body, refusal_of
from modelserve.callers import Caller
from modelserve.contract.feedback import FeedbackBody
from modelserve.contract.requests import ModeBody, PredictBody
from modelserve.contract.reservations import MAX_RUNNING, MAX_SAMPLES, ReserveBody
from modelserve.errors import Forbidden

JOB = '{"job_id": "a", "task_type": "ctr", "request": {"cpu_cores": 1}, "age_s": 60%s}'
LONG = f', "samples": {{"at_s": [{", ".join(["0"] * (MAX_SAMPLES + 1))}]}}'


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([], "jobs: expected at least 1 item"),
        ([JOB % ""] * (MAX_RUNNING + 1), f"jobs: expected at most {MAX_RUNNING} items"),
        ([JOB % LONG], f"jobs.0.samples.at_s: expected at most {MAX_SAMPLES} items"),
        ([JOB % ', "held": 2'], "jobs.0.held: expected true or false"),
    ],
)
def test_a_list_of_the_wrong_length_is_refused_with_the_limit(jobs: list[str], expected: str) -> None:
    with pytest.raises(ValidationError) as error:
        ReserveBody.model_validate_json(f'{{"jobs": [{", ".join(jobs)}]}}', strict=True)

    refusal = invalid_body(error.value)

    assert (refusal.status, str(refusal)) == (422, expected)


REPORT = {
    "job_id": "a", "task_type": "ctr", "outcome": "completed", "request": {"cpu_cores": 1},
    "submit_ts": "2024-01-02T00:00:00Z", "start_ts": "2024-01-02T01:00:00Z", "end_ts": "2024-01-02T00:30:00Z",
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "given", "field", "expected", "found"),
    [
        (
            PredictBody,
            {"jobs": [{"job_id": "a", "task_type": "ctr", "group": "\0", "request": {"cpu_cores": 1}}]},
            *("jobs.0.group", "text without a NUL character", '"\\u0000"'),
        ),
        (
            FeedbackBody,
            {"feedback": [REPORT]},
            *("feedback.0.end_ts", "no time before start_ts", None),
        ),
        (ModeBody, {"mode": "observe", "unset": True}, "body", "one of mode, unset and reset", None),
        (
            ModeBody,
            {"mode": "observe", "user": "u"},
            "user",
            "it with reset and without a group; modes are of groups",
            None,
        ),
    ],
)
def test_a_fault_holds_what_was_expected_apart_from_what_was_found(
    body: type[BaseModel], given: object, field: str, expected: str, found: str | None
) -> None:
    with pytest.raises(ValidationError) as error:
        body.model_validate_json(json.dumps(given), strict=True)

    [fault] = invalid_body(error.value).faults

    assert (fault["field"], fault["expected"], fault.get("found")) == (field, expected, found)


@pytest.mark.parametrize(
    ("trace", "cluster", "field", "expected", "found"),
    [
        ("other", "c1", "jobs.0.trace", "one within the token's reach: pai, philly", "'other'"),
        ("pai", "c2", "jobs.0.cluster", "one within the token's reach: c1", "'c2'"),
        ("pai", None, "jobs.0.cluster", "one within the token's reach: c1", None),
    ],
)
def test_a_trace_or_cluster_out_of_reach_is_refused_with_those_within(
    trace: str, cluster: str | None, field: str, expected: str, found: str | None
) -> None:
    caller = Caller(name="a", scopes=frozenset(), traces=frozenset({"philly", "pai"}), clusters=frozenset({"c1"}))

    with pytest.raises(Forbidden) as error:
        caller.check_reach(trace, cluster, field="jobs.0")
    refusal = refusal_of(error.value)

    assert refusal.status == 403
    [fault] = refusal.faults
    assert (fault["field"], fault["expected"], fault.get("found")) == (field, expected, found)
