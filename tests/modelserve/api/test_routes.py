"""Routes among sites over HTTP: decisions by hand, refusals, tenants, and safe mode."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from starlette.testclient import TestClient

from modelserve.bundle.routing_policy import RoutingPolicy
from modelserve.calls.context import RequestContext
from modelserve.calls.placements import routed
from modelserve.contract.placements import RouteAnswer, RouteBody
from modelserve.learning.learned import Learned
from scheduler_core.planning.sites import Support, policy
from tests.modelserve.api.test_answers import ROUTES
from tests.modelserve.api.test_gate import check_problem

Make = Callable[..., TestClient]
PATH = "/v1/route"
SITE, JOB = ROUTES["sites"][0], ROUTES["jobs"][0]


def test_a_job_is_sent_where_energy_is_cheap(serve: Make) -> None:
    client = serve()
    said = RouteAnswer.model_validate(client.post(PATH, json=ROUTES).json())

    [found] = said.routes
    assert (said.policy, found.site, found.reason, found.safe_mode) == ("greedy", "b", "sent", False)
    # Worth 1.60 and no miss 0.50, less 0.40 of energy and moving 1 GB at 0.05 and 0.03 kWh of 0.20.
    assert found.gain_usd == pytest.approx(1.60 + 0.50 - 0.40 - 0.05 - 0.006)
    assert 'taut_routes_total{reason="sent"} 1.0' in client.get("/metrics").text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**ROUTES, "sites": [SITE, SITE]}, "sites"),
        ({**ROUTES, "sites": [{**SITE, "free": 9}]}, "sites"),
        ({**ROUTES, "sites": [{**SITE, "price_usd_per_kwh": [0.1] * 23}]}, "sites"),
        ({**ROUTES, "jobs": [{**JOB, "site": "c"}]}, "jobs"),
        ({**ROUTES, "jobs": [{**JOB, "run_time_s": 0}]}, "jobs"),
        ({**ROUTES, "jobs": []}, "jobs"),
    ],
)
def test_a_wrong_call_names_its_field(serve: Make, body: dict[str, object], field: str) -> None:
    answer = serve().post(PATH, json=body)
    assert field in check_problem(answer, 422)["detail"]


def test_outside_its_support_a_policy_leaves_the_decision_to_greedy() -> None:
    narrow = Support(low=np.full(18, 1.0), high=np.full(18, -1.0))
    rules = RoutingPolicy(policy=policy("local"), support=narrow)
    context = RequestContext(snapshot=None, learned=Learned(), answer_id="x", now=1_700_000_000.0, routing=rules)  # type: ignore[arg-type]

    found = routed(context, RouteBody.model_validate_json(json.dumps(ROUTES)))

    assert [row.safe_mode for row in RouteAnswer.model_validate_json(found.body).routes] == [True]
