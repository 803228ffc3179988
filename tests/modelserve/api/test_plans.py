"""Plans and holds over HTTP: decisions, fields at fault, clients and metrics."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pytest
from starlette.testclient import TestClient

from modelserve.calls.plans import hold_rows, plan_rows, utc_text
from modelserve.client import Client
from modelserve.contract.plans import MAX_GPUS, MAX_GROUPS, MAX_PLANNED, HoldBody, PlanBody
from modelserve.errors import BadRequest, Refused
from scheduler_core.planning.hourly import HourlySeries
from scheduler_core.planning.release import foreseen
from tests.modelserve.api.conftest import job
from tests.modelserve.api.test_gate import check_problem
from tests.modelserve.running import serving

Make = Callable[..., TestClient]
NODE = {"name": "a", "gpu_type": "V100", "gpus": 8, "gpu_idle_w": 30.0, "gpu_full_w": 300.0}
CARBON = {"objective": "carbon", "nodes": [NODE], "g_per_kwh": 300.0, "budget_g": 200.0, "period_s": 3600.0}
HOURS = {"start_ts": "2023-06-01T00:00:00Z", "values": [300.0, 200.0, 100.0, 400.0]}
HOLD = {"by": "carbon", "hours": HOURS, "now_ts": "2023-06-01T00:30:00Z"}


def planned(job_id: str = "a1", gpus: float = 2.0, run_s: float = 7200.0, **changes: object) -> dict[str, object]:
    return job(job_id, **{"request": {"gpus": gpus}, "instances": 1, "run_s": run_s, **changes})


def test_a_plan_keeps_the_budget_of_its_rule_and_says_why_a_job_waits(serve: Make) -> None:
    client = serve()
    # 600 W at 300 g/kWh: 180 g an hour, 360 g until the end
    jobs = [planned("long"), planned("short", run_s=600.0)]

    by_period, whole = (
        client.post("/v1/plan", json={**CARBON, "budget": rule, "jobs": jobs}).json()
        for rule in ("period", "to-completion")
    )

    assert [(row["job_id"], row["gpus"], row["reason"]) for row in whole["plans"]] == [
        ("long", 0, "budget"),
        ("short", 2, "runs"),
    ]
    assert by_period["planned_g"] == pytest.approx(30.0)
    assert {row["mode"] for row in whole["plans"]} == {"observe"}
    assert "budget of 200 g" in whole["plans"][0]["note"]
    later = client.post("/v1/plan", json={**CARBON, "budget_g": 210.1, "jobs": jobs}).json()
    assert [row["gpus"] for row in later["plans"]] == [2, 2]
    assert later["planned_g"] == pytest.approx(210.0)


@pytest.mark.parametrize(
    ("chosen", "gpus"),
    [({}, 2), ({"price_s_per_kwh": 1e5}, 1), ({"planner": "two_stages", "price_s_per_kwh": 1e5}, 2)],
)
def test_gpus_are_added_where_they_save_the_price_of_their_energy(
    serve: Make, chosen: dict[str, object], gpus: int
) -> None:
    # The second GPU saves 2700 s of 7200 s for 0.15 kWh more: 18 000 s per kWh.
    body = {**CARBON, "budget_g": 1e6, "jobs": [planned(gpus=1.0, speedup={"2": 1.6})], **chosen}

    assert [row["gpus"] for row in serve().post("/v1/plan", json=body).json()["plans"]] == [gpus]


def test_a_plan_by_cost_puts_due_jobs_first(serve: Make) -> None:
    jobs = [planned("free", gpus=8), planned("due", gpus=8, due_ts="2023-06-01T02:30:00Z", weight_usd_per_h=9.0)]
    body = {"objective": "cost", "nodes": [NODE], "usd_per_kwh": 0.2, "now_ts": "2023-06-01T00:30:00Z", "jobs": jobs}

    said = serve().post("/v1/plan", json=body).json()

    assert [(row["reason"], row["nodes"]) for row in said["plans"]] == [("postponed", {}), ("runs", {"a-0": 8})]


def test_a_hold_is_the_cleanest_start_within_its_slack_by_the_forecast() -> None:
    rng, begin = np.random.default_rng(0), datetime(2023, 6, 1, tzinfo=UTC).timestamp()
    days = 300.0 - 150.0 * np.cos(2.0 * np.pi * np.arange(40 * 24) / 24.0) + rng.normal(0.0, 60.0, 40 * 24)
    for hour in range(20 * 24, 30 * 24, 7):
        now, start_s = begin + 3600.0 * hour + 900.0, begin + 3600.0 * (hour + 1 - 15 * 24)
        values = days.clip(1.0)[hour + 1 - 15 * 24 : hour + 1]
        hours = {"start_ts": datetime.fromtimestamp(start_s, UTC), "values": tuple(values.tolist())}
        amounts = ((7200.0, 900.0), (36_000.0, 14_400.0), (86_400.0, 50_000.0))
        jobs = [planned(str(at), run_s=run_s, slack_s=slack_s) for at, (slack_s, run_s) in enumerate(amounts)]

        rows = hold_rows(HoldBody.model_validate({"by": "carbon", "hours": hours, "jobs": jobs}), now)

        series = foreseen(HourlySeries(start_s=start_s, values=values, unit="g/kWh"), now + 2e5)
        for row, (slack_s, run_s) in zip(rows, amounts, strict=True):
            later = [now + 2700.0 + 3600.0 * step for step in range(24) if 2700.0 + 3600.0 * step <= slack_s]
            cleanest = min([now, *later], key=lambda ts: series.mean(ts, ts + run_s))
            assert row["until_ts"] == (utc_text(cleanest) if cleanest > now else None)


NAN, FAR = float("nan"), "9999-12-31T23:00:00Z"
CLOCKS = [{"mhz": 900.0, "speed": 0.8, "power": 0.5}, {"mhz": 1500.0, "speed": 1.0, "power": 1.0}]
COST = {"objective": "cost", "usd_per_kwh": 0.1}
MANY = [planned(str(number), speedup={"1": 0.6}) for number in range(MAX_PLANNED)]
PLAN_AT_FAULT: tuple[tuple[dict[str, object], str], ...] = (
    ({"jobs": [planned(gpus=0.5)]}, "jobs.0.request.gpus"),
    ({"jobs": [planned(gpus=MAX_GPUS + 1.0)]}, "jobs.0.request.gpus"),
    ({"jobs": [planned(run_s=0.0)]}, "jobs.0.run_s"),
    ({"jobs": [planned(run_s=NAN)]}, "jobs.0.run_s"),
    ({"jobs": [planned(speedup={"0": 1.0})]}, "jobs.0.speedup.0.[key]"),
    ({"jobs": [planned(speedup={"4": 0.0})]}, "jobs.0.speedup.4"),
    ({"jobs": [planned(speed_on={"V100": NAN})]}, "jobs.0.speed_on.V100"),
    ({"jobs": [planned(done_frac=1.0)]}, "jobs.0.done_frac"),
    ({"jobs": [planned(weight_usd_per_h=-1.0)]}, "jobs.0.weight_usd_per_h"),
    ({"jobs": [planned(due_ts=FAR)]}, "jobs.0.due_ts"),
    ({"jobs": [planned(surplus=1)]}, "jobs.0.surplus"),
    ({"jobs": [planned(node="a-0")]}, "jobs.0.running_gpus"),
    ({"jobs": [planned(), planned()]}, "jobs"),
    ({"jobs": [planned(node="b-7", running_gpus=2)]}, "jobs.0.node"),
    ({"jobs": [planned(str(i), gpus=5.0, node="a-0", running_gpus=5) for i in range(2)]}, "jobs"),
    ({"jobs": []}, "jobs"),
    ({"jobs": [planned()] * (MAX_PLANNED + 1)}, "jobs"),
    ({"nodes": [{**NODE, "gpus": 0}]}, "nodes.0.gpus"),
    ({"nodes": [{**NODE, "gpu_full_w": 0.0}]}, "nodes.0.gpu_full_w"),
    ({"nodes": [{**NODE, "gpu_full_w": 20.0}]}, "nodes.0.gpu_full_w"),
    ({"nodes": [NODE, NODE]}, "nodes"),
    ({"nodes": [{**NODE, "count": MAX_PLANNED}, {**NODE, "name": "b"}]}, "nodes"),
    ({"nodes": [NODE, {**NODE, "name": "b", "gpu_type": "A100"}]}, "nodes"),
    ({"nodes": [{**NODE, "name": str(i)} for i in range(MAX_GROUPS + 1)]}, "nodes"),
    ({"clocks": CLOCKS[::-1]}, "clocks"),
    ({"clocks": CLOCKS[:1]}, "clocks"),
    ({"clocks": [{**CLOCKS[0], "speed": 1.1}]}, "clocks.0.speed"),
    ({"objective": "speed"}, "objective"),
    ({"budget": "weekly"}, "budget"),
    ({"budget_g": -1.0}, "budget_g"),
    ({"budget_g": None}, "body"),
    ({"g_per_kwh": NAN}, "g_per_kwh"),
    ({"period_s": 0.0}, "period_s"),
    ({"pue": 0.9}, "pue"),
    ({"restart_s": -1.0}, "restart_s"),
    ({"now_ts": FAR}, "now_ts"),
    ({"objective": "cost"}, "body"),
    ({**COST, "usd_per_kwh": 1e9}, "usd_per_kwh"),
    ({**COST, "later_usd_per_kwh": NAN}, "later_usd_per_kwh"),
    ({**COST, "jobs": [planned(gpus=9.0)]}, "jobs.0"),
    ({**COST, "jobs": MANY, "nodes": [{**NODE, "count": MAX_PLANNED}]}, "nodes"),
)
HOLD_AT_FAULT: tuple[tuple[dict[str, object], str], ...] = (
    ({"jobs": [planned(slack_s=-1.0)]}, "jobs.0.slack_s"),
    ({"jobs": [planned(slack_s=8 * 86_400.0)]}, "jobs.0.slack_s"),
    ({"jobs": [planned()]}, "jobs.0.slack_s"),
    ({"jobs": [planned(slack_s=1.0)] * 2}, "jobs"),
    ({"jobs": [planned(slack_s=1.0)] * (MAX_PLANNED + 1)}, "jobs"),
    ({"by": "wind"}, "by"),
    ({"hours": {**HOURS, "values": []}}, "hours.values"),
    ({"hours": {**HOURS, "values": [NAN]}}, "hours.values.0"),
    ({"hours": {**HOURS, "values": [1e9]}}, "hours.values.0"),
    ({"hours": {**HOURS, "values": [-1.0]}}, "hours"),
    ({"hours": {**HOURS, "start_ts": "2023-06-01T00:10:00Z"}}, "hours.start_ts"),
    ({"hours": {**HOURS, "start_ts": "2023-06-01T00:00:00"}}, "hours.start_ts"),
    ({"now_ts": FAR}, "now_ts"),
    ({"now_ts": "2024-01-01T00:00:00Z"}, "hours"),
)


@pytest.mark.parametrize(
    ("path", "base", "faults"),
    [
        ("/v1/plan", {**CARBON, "jobs": [planned()]}, PLAN_AT_FAULT),
        ("/v1/hold", {**HOLD, "jobs": [planned(slack_s=60.0)]}, HOLD_AT_FAULT),
    ],
)
def test_a_field_at_fault_is_named_in_one_line(
    serve: Make, path: str, base: dict[str, object], faults: tuple[tuple[dict[str, object], str], ...]
) -> None:
    client = serve()
    json_body = {"headers": {"content-type": "application/json"}}
    assert client.post(path, content=json.dumps(base), **json_body).status_code == 200

    for changes, field in faults:
        said = check_problem(client.post(path, content=json.dumps({**base, **changes}), **json_body), 422)
        assert said["errors"][0]["field"] == field, (changes, said["detail"])
        assert "\n" not in said["detail"]


def test_a_client_gets_the_plan_of_the_command(serve: Make) -> None:
    plan = {**CARBON, "trace": "pai", "now_ts": "2023-06-01T00:30:00Z", "jobs": [planned(), planned("a2", gpus=8.0)]}
    here = plan_rows(PlanBody.model_validate(plan), 0.0)

    with serving(serve().app) as address, Client(address) as client:
        found = client.plan(plan)
        with pytest.raises(BadRequest, match="budget"):
            client.plan({**plan, "budget": "weekly"})
        with pytest.raises(Refused, match="the current hour"):
            client.holds([planned(slack_s=7200.0)], by="carbon", hours=HOURS, trace="pai")

    assert [(row.gpus, row.reason) for row in found.plans] == [(row["gpus"], row["reason"]) for row in here["plans"]]
