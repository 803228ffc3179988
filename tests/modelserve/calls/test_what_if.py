import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelserve.calls.explanations import values_along
from modelserve.contract.calls import PREDICT, WHAT_IF
from modelserve.service import Service
from tests.modelserve.answering import REQUEST, answer_of, job, with_card


def ask(service: Service, job: dict[str, object], resource: str = "cpu_cores", **said: object) -> dict:
    return answer_of(service, WHAT_IF, job=job, resource=resource, **said)


def predicted(service: Service, request: dict[str, float]) -> dict[str, float]:
    return answer_of(service, PREDICT, jobs=[job(request=request)])["predictions"][0]["run_time_s"]


@pytest.mark.parametrize("resource", ["cpu_cores", "mem_gib", "gpus"])
def test_every_point_is_what_a_prediction_with_that_request_says(service: Service, resource: str) -> None:
    found = ask(service, job(), resource, points=6)

    for point in found["points"]:
        assert point["run_time_s"] == predicted(service, {**REQUEST, resource: point["value"]})


def test_the_curve_reaches_from_the_smallest_to_the_larger_of_request_and_support(service: Service) -> None:
    found = ask(service, job())

    values = [point["value"] for point in found["points"]]
    assert len(values) == 20
    assert (values[0], values[-1]) == (2.0, 8.0)
    assert values == sorted(values)
    assert found["support"] == [2.0, 8.0]
    assert [point["value"] for point in found["points"] if point["requested"]] == [6.0]
    assert not found["silent"]


def test_what_training_never_saw_is_marked(service: Service) -> None:
    found = ask(service, job(request={**REQUEST, "cpu_cores": 16}))

    assert found["points"][-1]["value"] == 16.0
    assert [point["supported"] for point in found["points"]] == [p["value"] <= 8.0 for p in found["points"]]
    assert found["points"][-1]["requested"]


@pytest.mark.parametrize("support", [{"cpu_cores": (6.0, 6.0)}, {}], ids=str)
def test_a_model_that_saw_one_value_is_silent(service: Service, support: dict) -> None:
    found = ask(with_card(service, support=support, important=("cpu_cores",)), job())

    assert found["silent"] is True
    assert found["important"]
    assert found["points"][0]["value"] == pytest.approx(0.6)


def test_a_job_that_does_not_ask_for_it_gets_the_support(service: Service) -> None:
    found = ask(service, job(request={"gpus": 1.0}))

    assert found["requested"] is None
    assert [found["points"][0]["value"], found["points"][-1]["value"]] == [2.0, 8.0]
    assert not any(point["requested"] for point in found["points"])


@given(
    requested=st.one_of(st.just(math.nan), st.floats(0.0, 1e6)),
    ends=st.one_of(st.none(), st.tuples(st.floats(0.0, 64.0), st.floats(0.0, 64.0)).map(sorted).map(tuple)),
    points=st.integers(2, 40),
    shared=st.booleans(),
)
def test_values_ascend_and_hold_the_request(
    requested: float, ends: tuple[float, float] | None, points: int, shared: bool
) -> None:
    values = values_along(requested, ends, points, shared=shared).tolist()

    assert values == sorted(set(values))
    assert len(values) <= points + shared
    assert math.isnan(requested) or requested in values
