import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from features.rows import RowBuilder
from modelserve.bundle.boosters import contributions, raw_outputs
from modelserve.callers import ANYONE, Caller
from modelserve.contract.calls import EXPLAIN, PREDICT
from modelserve.contract.jobs import ExplainAnswer
from modelserve.contract.requests import ExplainBody, PredictBody
from modelserve.errors import Forbidden
from modelserve.scopes import Scope
from modelserve.service import Service
from tests.modelserve.answering import folder_of, job, service_of
from tests.modelserve.mirrored import NAME


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, small_bundles: dict[str, Path]) -> Service:
    return service_of(folder_of(tmp_path_factory.mktemp("mirror"), small_bundles).path)


def explain(service: Service, job: dict[str, object], **said: object) -> dict:
    body = ExplainBody.model_validate({"job": job, **said})
    answered = service.decide(EXPLAIN, body, ANYONE)
    ExplainAnswer.model_validate_json(answered.body)
    return json.loads(answered.body)


def with_card(service: Service, **changes: object) -> Service:
    current = service.models.current
    model = current.champions[NAME]
    bundle = replace(model.bundle, card=model.bundle.card.model_copy(update=changes))
    rows = RowBuilder.of(bundle.contract, relative=bundle.card.relative)
    champions = {**current.champions, NAME: replace(model, bundle=bundle, rows=rows)}
    return replace(service, models=SimpleNamespace(current=replace(current, champions=champions)))  # type: ignore[arg-type]


CARDS: list[dict[str, object]] = [
    {},
    {"relative": True},
    {"offsets": {"p50": 9.0, "p90": 0.0}},
    {"relative": True, "offsets": {"p50": 9.0}},
]


@pytest.mark.parametrize("card", CARDS, ids=str)
@pytest.mark.parametrize("quantile", ["p50", "p90"])
@pytest.mark.parametrize("i", [0, 1, 2])
def test_seconds_add_up_and_factors_multiply_to_the_run_time(
    service: Service, card: dict[str, object], quantile: str, i: int
) -> None:
    service = with_card(service, **card)
    body = PredictBody.model_validate({"jobs": [job(i)]})
    predicted = json.loads(service.decide(PREDICT, body, ANYONE, answer_id="a").body)["predictions"][0]

    found = explain(service, job(i), quantile=quantile, top=3)

    assert found["run_time_s"] == predicted["run_time_s"][quantile]
    seconds = sum(each["seconds"] for each in found["contributions"])
    assert found["base_s"] + seconds + found["rest_s"] == pytest.approx(found["run_time_s"], rel=1e-12)
    factors = math.prod(each["factor"] for each in found["contributions"])
    assert found["base_s"] * factors * found["rest_factor"] == pytest.approx(found["run_time_s"], rel=1e-4)
    assert (found["reference_s"] is not None) == bool(card.get("relative"))


def test_a_contribution_points_the_way_its_factor_does(service: Service) -> None:
    found = explain(service, job(), top=1000)

    assert len(found["contributions"]) == len(service.models.current.champions[NAME].bundle.contract.names)
    assert found["rest_factor"] == 1.0
    assert found["rest_s"] == pytest.approx(0.0, abs=1e-6)
    for each in found["contributions"]:
        assert each["seconds"] * math.log(each["factor"]) >= 0.0
    sizes = [abs(math.log(each["factor"])) for each in found["contributions"]]
    assert sizes == sorted(sizes, reverse=True)


def test_the_strongest_features_come_first_and_the_rest_is_summed_up(service: Service) -> None:
    whole, few = explain(service, job(), top=1000), explain(service, job(), top=2)

    assert few["contributions"] == whole["contributions"][:2]
    assert len(explain(service, job())["contributions"]) == 10
    assert few["rest_s"] == pytest.approx(sum(each["seconds"] for each in whole["contributions"][2:]), abs=1e-6)


def test_values_are_what_a_person_takes_them_for(service: Service) -> None:
    plain = {each["feature"]: each for each in explain(service, job(), top=1000)["contributions"]}
    relative = {
        each["feature"]: each for each in explain(with_card(service, relative=True), job(), top=1000)["contributions"]
    }

    assert plain["req_cpu_cores"]["value"] == 6.0
    assert plain["gpu_type"]["value"] == "T4"
    assert plain["user_run_s_p50_20"]["unit"] == "s"
    assert relative["user_run_s_p50_20"]["value"] == pytest.approx(plain["user_run_s_p50_20"]["value"], rel=1e-5)
    unknown = explain(service, job(gpu_type="H999"), top=1000)["contributions"]
    assert {each["feature"]: each["value"] for each in unknown}["gpu_type"] is None


def test_shap_values_add_up_to_the_boosters_own_answer(service: Service) -> None:
    booster = service.models.current.champions[NAME].bundle.boosters["run_s"]
    row = np.random.default_rng(1).random((1, booster.num_features())).astype(np.float32)

    assert contributions(booster, row).sum(axis=1) == pytest.approx(raw_outputs(booster, row)[0], abs=1e-5)


def test_a_model_that_falls_over_is_an_answer_too(service: Service) -> None:
    current = service.models.current
    fallen = replace(current.champions[NAME], bundle=replace(current.champions[NAME].bundle, forests={}))
    champions = {**current.champions, NAME: fallen}
    fallen = replace(service, models=SimpleNamespace(current=replace(current, champions=champions)))  # type: ignore[arg-type]

    assert explain(fallen, job())["reason"] == "predictor_unavailable"


def test_a_quantile_that_no_model_answers_is_said(service: Service) -> None:
    found = explain(with_card(service, quantiles=(0.5, 0.8)), job(), quantile="p90")

    assert found["reason"] == "no_model"
    assert "p90" in found["note"]


def test_a_job_out_of_reach_is_refused(service: Service) -> None:
    bound = Caller(name="t", scopes=frozenset({Scope.PREDICT}), clusters=frozenset({"pai"}))

    with pytest.raises(Forbidden, match=r"^job\.cluster"):
        service.decide(EXPLAIN, ExplainBody.model_validate({"job": job()}), bound)


def test_measured_runs_of_the_group_are_counted_by_role(service: Service) -> None:
    known, other_role = explain(service, job()), explain(service, job(role="chief"))

    (only,) = known["roles"]
    assert only["role"] == "worker"
    assert only["measured_runs"] > 0
    assert other_role["roles"] == known["roles"]
    assert explain(service, job(group="never seen"))["roles"] == []
    assert explain(service, job(group=None))["roles"] == []
