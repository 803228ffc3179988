"""Answers about jobs, valid or not: each is read or refused, and no recommendation goes beyond its bounds."""

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelserve.client.advice import Advice, read_advice, row_of
from modelserve.client.messages import message_of, with_jobs
from modelserve.contract.calls import RECOMMEND
from modelserve.errors import WrongAnswer
from scheduler_core.gangs import UNITS
from scheduler_core.types import RESOURCES, Job, Reason
from tests.modelserve.client.services import Row, rows_of
from tests.scheduler_core.cases import job, request

JOBS = [job("a", request(4.0, 8.0, 0.5)), job("b", request(1.0, 0.0, math.nan))]
CALL = message_of(RECOMMEND)


def answer_to(jobs: list[Job]) -> list[Row]:
    return rows_of(json.loads(with_jobs("jobs", [row_of(each) for each in jobs])))


SOUND = answer_to(JOBS)

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.floats(0.0, 9.0)
    | st.text(max_size=5)
    | st.sampled_from([*Reason, "a", "b", "enforce", 10**400])
)
FIELDS = st.sampled_from([*RESOURCES, "p50", "p90", "target", "lower_bound", "job_id", "recommendations"])
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4))
PLACES = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.sampled_from(sorted(SOUND[0])),
        st.none() | st.sampled_from([*RESOURCES, "p50", "p90", "usage"]),
        ANYTHING,
    ),
    max_size=4,
)


def check_within(answer_of: Job, answers: list[Any]) -> None:
    [said] = [each for each in answers if each.job_id == answer_of.job_id]
    assert said.request == answer_of.request or math.isnan(answer_of.request.gpus)
    for target, lower, wanted in zip(said.target.row(), said.lower_bound.row(), answer_of.request.row(), strict=True):
        assert math.isnan(target) == math.isnan(wanted)
        assert math.isnan(wanted) or 0.0 <= target <= wanted
        assert target == wanted or math.isnan(wanted) or target >= lower - 1e-5
    assert math.isnan(said.run_time_p50_s) or 0.0 < said.run_time_p50_s < math.inf


@given(changes=PLACES)
def test_an_answer_with_anything_anywhere_keeps_every_bound(
    changes: list[tuple[int, str, str | None, Any]],
) -> None:
    rows: list[Row] = copy.deepcopy(SOUND)
    for at, field, inner, value in changes:
        if inner is not None and isinstance(rows[at][field], dict):
            rows[at][field][inner] = value
        else:
            rows[at][field] = value
    try:
        answers = read_advice(json.dumps({"recommendations": rows}).encode(), JOBS, CALL, floors_expected=True)
    except WrongAnswer:
        return
    for one in JOBS:
        check_within(one, answers)


@given(said=st.binary(max_size=40) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_an_answer_of_anything_is_refused(said: bytes) -> None:
    with pytest.raises(WrongAnswer):
        read_advice(said, JOBS, CALL, floors_expected=True)


def one_said(**changes: object) -> Advice:
    """Return what is read of a sound answer about one job of 4 cores, 8 GiB and half a GPU, with changes."""
    content = json.dumps({"recommendations": [copy.deepcopy(SOUND[0]) | changes]}).encode()
    return read_advice(content, JOBS[:1], CALL, floors_expected=True)[0]


@pytest.mark.parametrize(("resource", "least"), [*zip(RESOURCES, [1.0 / units for units in UNITS], strict=True)])
def test_a_target_of_less_than_a_cluster_can_give_is_not_believed(resource: str, least: float) -> None:
    nothing = dict.fromkeys(RESOURCES, 0.0)
    reasons = dict.fromkeys(RESOURCES, "shrunk")

    believed, absurd = (
        one_said(target=SOUND[0]["target"] | {resource: target}, lower_bound=nothing, reasons=reasons)
        for target in (least, 1e-9)
    )

    assert getattr(believed.target, resource) == least
    assert absurd.target == JOBS[0].request
    assert set(absurd.reasons.values()) == {Reason.PREDICTOR_UNAVAILABLE}
    assert f"found the target {resource}=1e-09, expected one of at least" in absurd.note


def test_half_of_a_surrogate_pair_in_what_is_said_can_be_written() -> None:
    said = one_said(note="half \ud83d of a pair", models={"run_time": "runtime.\udc00@7", "usage": None})

    assert said.note.encode() == b"half ? of a pair"
    assert said.models[0].encode() == b"runtime.?@7"
