import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelserve.callers import ANYONE
from modelserve.calls.explanations import values_along
from modelserve.contract.calls import PREDICT, WHAT_IF
from modelserve.contract.jobs import WhatIfAnswer
from modelserve.contract.requests import PredictBody, WhatIfBody
from modelserve.service import Service
from tests.modelserve.answering import REQUEST, folder_of, job, service_of
from tests.modelserve.mirrored import NAME


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, small_bundles: dict[str, Path]) -> Service:
    return service_of(folder_of(tmp_path_factory.mktemp("mirror"), small_bundles).path)


def ask(service: Service, job: dict[str, object], resource: str = "cpu_cores", **said: object) -> dict:
    body = WhatIfBody.model_validate({"job": job, "resource": resource, **said})
    answered = service.decide(WHAT_IF, body, ANYONE)
    WhatIfAnswer.model_validate_json(answered.body)
    return json.loads(answered.body)


def predicted(service: Service, request: dict[str, float]) -> dict[str, float]:
    body = PredictBody.model_validate({"jobs": [job(request=request)]})
    return json.loads(service.decide(PREDICT, body, ANYONE, answer_id="a").body)["predictions"][0]["run_time_s"]


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


@pytest.mark.parametrize(("support", "silent"), [({"cpu_cores": (6.0, 6.0)}, True), ({}, True)], ids=str)
def test_a_model_that_saw_one_value_is_silent(service: Service, support: dict, silent: bool) -> None:
    current = service.models.current
    model = current.champions[NAME]
    card = model.bundle.card.model_copy(update={"support": support, "important": ("cpu_cores",)})
    champions = {**current.champions, NAME: replace(model, bundle=replace(model.bundle, card=card))}
    moved = replace(service, models=SimpleNamespace(current=replace(current, champions=champions)))  # type: ignore[arg-type]

    found = ask(moved, job())

    assert found["silent"] is silent
    assert found["important"]
    assert found["points"][0]["value"] == pytest.approx(0.6)


def test_a_damaged_model_is_an_answer_too(small_bundles: dict[str, Path], tmp_path: Path) -> None:
    folder = folder_of(tmp_path, small_bundles)
    (folder.path / NAME / "7" / "models" / "run_s.ubj").write_bytes(b"damaged")

    found = ask(service_of(folder.path), job())

    assert found["reason"] == "predictor_unavailable"
    assert "run_s.ubj" in found["note"]


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
