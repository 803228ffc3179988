"""Whatever a service answers: it is read or refused, and no recommendation goes beyond its bounds."""

import copy
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.demand import UNITS
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import RESOURCES, Job, Reason
from scheduler_core.wire import Said, body_of, read_answer
from tests.modelserve.client.services import Row, rows_of
from tests.scheduler_core.cases import job, request

JOBS = [job("a", request(4.0, 8.0, 0.5)), job("b", request(1.0, 0.0, math.nan))]
SOUND = rows_of(json.loads(body_of(JOBS, {})))

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
    [said] = [each.recommendation for each in answers if each.recommendation.job_id == answer_of.job_id]
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
        answers = read_answer(json.dumps({"recommendations": rows}).encode(), JOBS, floors_expected=True)
    except PredictorUnavailable:
        return
    for one in JOBS:
        check_within(one, answers)


@given(said=st.binary(max_size=40) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_an_answer_of_anything_is_refused(said: bytes) -> None:
    with pytest.raises(PredictorUnavailable):
        read_answer(said, JOBS, floors_expected=True)


def test_a_sound_answer_is_read() -> None:
    first, second = read_answer(json.dumps({"recommendations": SOUND}).encode(), JOBS, floors_expected=True)
    assert first.recommendation.target.row() == (3.0, 4.6, 0.1)
    assert first.models == ("runtime.toy.ctr@7", "usage.toy.ctr@5")
    assert first.enforced
    assert second.recommendation.target.row()[:2] == (1.0, 0.0)


def one_said(**changes: object) -> Said:
    """Return what is read of a sound answer about one job of 4 cores, 8 GiB and half a GPU, with changes."""
    content = json.dumps({"recommendations": [copy.deepcopy(SOUND[0]) | changes]}).encode()
    return read_answer(content, JOBS[:1], floors_expected=True)[0]


@pytest.mark.parametrize(("resource", "least"), [*zip(RESOURCES, [1.0 / units for units in UNITS], strict=True)])
def test_a_target_of_less_than_a_cluster_can_give_is_not_believed(resource: str, least: float) -> None:
    nothing = dict.fromkeys(RESOURCES, 0.0)
    reasons = dict.fromkeys(RESOURCES, "shrunk")

    believed, absurd = (
        one_said(target=SOUND[0]["target"] | {resource: target}, lower_bound=nothing, reasons=reasons)
        for target in (least, 1e-9)
    )

    assert getattr(believed.recommendation.target, resource) == least
    assert absurd.recommendation.target == JOBS[0].request
    assert set(absurd.recommendation.reasons.values()) == {Reason.PREDICTOR_UNAVAILABLE}
    assert f"found the target {resource}=1e-09, expected one of at least" in absurd.recommendation.note


def test_a_request_of_less_than_a_cluster_can_give_may_stand() -> None:
    tiny = [job("a", request(0.0004, 8.0, 0.5))]

    [said] = read_answer(
        json.dumps({"recommendations": rows_of(json.loads(body_of(tiny, {})))}).encode(), tiny, floors_expected=True
    )

    assert said.recommendation.target.cpu_cores == 0.0004
    assert Reason.PREDICTOR_UNAVAILABLE not in said.recommendation.reasons.values()


def test_half_of_a_surrogate_pair_in_what_is_said_can_be_written() -> None:
    said = one_said(note="half \ud83d of a pair", models={"run_time": "runtime.\udc00@7", "usage": None})

    assert said.recommendation.note.encode() == b"half ? of a pair"
    assert said.models[0].encode() == b"runtime.?@7"
