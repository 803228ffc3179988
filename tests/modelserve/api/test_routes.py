"""Routes among sites over HTTP: decisions by hand, refusals, tenants, safe mode and replay."""

import json
from collections.abc import Callable

import numpy as np
import pytest
from starlette.testclient import TestClient

from modelserve.bundle.routing_policy import RoutingPolicy
from modelserve.calls.logged_context import Call
from modelserve.calls.routes import read_logged_routes, routed, write_logged_routes
from modelserve.contract.routes import RouteAnswer, RouteBody
from scheduler_core.planning.sites.policies import policy
from scheduler_core.planning.sites.routing import Support
from tests.modelserve.api.conftest import TOKENS, bearer
from tests.modelserve.api.test_answers import ROUTES
from tests.modelserve.api.test_gate import check_problem

Make = Callable[..., TestClient]
PATH = "/v1/route"
CALL = Call(answer_id="x", trace="pai", now=1_700_000_000.0)
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


def test_a_tenant_names_its_cluster(serve: Make) -> None:
    client = serve(tokens=TOKENS)
    assert client.post(PATH, json=ROUTES).status_code == 401
    assert client.post(PATH, json=ROUTES, headers=bearer("reporter")).status_code == 403
    theirs = {**ROUTES, "trace": "pai", "cluster": "c1"}
    assert client.post(PATH, json=theirs, headers=bearer("bound")).status_code == 200
    assert client.post(PATH, json={**theirs, "cluster": "c2"}, headers=bearer("bound")).status_code == 403


def test_outside_its_support_a_policy_leaves_the_decision_to_greedy_and_a_replay_repeats_it() -> None:
    body = RouteBody.model_validate_json(json.dumps(ROUTES))
    narrow = Support(low=np.full(18, 1.0), high=np.full(18, -1.0))
    rules = RoutingPolicy(policy=policy("rolling", (0.1, 5.0)), support=narrow)
    found = routed(body, CALL, rules)
    assert [row.safe_mode for row in RouteAnswer.model_validate_json(found.body).routes] == [True]
    again, logged = read_logged_routes(json.loads(write_logged_routes(body, rules)))
    assert routed(again, CALL, logged).body == found.body
