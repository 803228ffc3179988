import math

import numpy as np
import pytest

from modelserve.bundle.boosters import contributions, raw_outputs
from modelserve.contract.calls import EXPLAIN, PREDICT
from modelserve.service import Service
from tests.modelserve.answering import answer_of, job, with_card, without_trees
from tests.modelserve.mirrored import NAME


def explain(service: Service, job: dict[str, object], **said: object) -> dict:
    return answer_of(service, EXPLAIN, job=job, **said)


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
    [predicted] = answer_of(service, PREDICT, jobs=[job(i)])["predictions"]

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
    assert explain(without_trees(service), job())["reason"] == "predictor_unavailable"


def test_a_quantile_that_no_model_answers_is_said(service: Service) -> None:
    found = explain(with_card(service, quantiles=(0.5, 0.8)), job(), quantile="p90")

    assert found["reason"] == "no_model"
    assert "p90" in found["note"]


def test_measured_runs_of_the_group_are_counted_by_role(service: Service) -> None:
    known, other_role = explain(service, job()), explain(service, job(role="chief"))

    (only,) = known["roles"]
    assert only["role"] == "worker"
    assert only["measured_runs"] > 0
    assert other_role["roles"] == known["roles"]
    assert explain(service, job(group="never seen"))["roles"] == []
    assert explain(service, job(group=None))["roles"] == []
