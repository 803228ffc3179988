"""Schedules: equal to a recommendation and then a placement, from one snapshot, with one record in the log."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from modelserve.bundle.bundle import Bundle
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.callers import Caller
from modelserve.calls.schedule import schedule
from modelserve.contract.calls import PLACE, RECOMMEND, SCHEDULE
from modelserve.contract.placements import ScheduleBody
from modelserve.errors import Forbidden
from modelserve.scopes import Scope
from modelserve.service import Service
from tests.modelserve.answering import answer_of, folder_of, job, service_of

IDENTITY = ("task_type", "group", "vc", "role", "workload", "submit_ts", "opted_out", "floors")
"""Fields of a waiting job that only models read."""
LIMITS = {"theta": 0.2, "alpha": 0.3, "floors": {"mem_gib": 20.0}}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, small_bundles: dict[str, Path]) -> Iterator[Service]:
    folder = folder_of(tmp_path_factory.mktemp("models"), small_bundles)
    return service_of(folder.path)


def drawn(seed: int) -> dict[str, Any]:
    """Return a small cluster in which some jobs start, some wait, and some have no model."""
    rng = random.Random(seed)
    gpu_types = ("T4", "V100")
    machines = [
        {"machine": f"m{i}", "cpu_cores": 16, "mem_gib": 64, "gpus": 4, "gpu_type": rng.choice(gpu_types)}
        for i in range(rng.randint(2, 6))
    ]
    running = [
        {"job_id": f"r{i}", "request": {"cpu_cores": 4, "mem_gib": 8, "gpus": 1}, "on": [{"machine": f"m{i % 2}"}]}
        for i in range(rng.randint(0, 4))
    ]
    odd = ({}, {"task_type": "nlp"}, {"opted_out": True}, {"run_time_s": 60.0}, {"floors": {"cpu_cores": 5.0}})
    jobs = [
        job(
            i,
            instances=rng.randint(1, 3),
            gpu_type=rng.choice((*gpu_types, "T4|V100", None)),
            request={"cpu_cores": rng.choice((2, 6, 8)), "mem_gib": 29.3, "gpus": rng.choice((0.25, 0.5, 1))},
            priority=float(rng.randint(0, 3)),
            waited_s=float(rng.randint(0, 900)),
            **rng.choice(odd),
        )
        for i in range(rng.randint(4, 20))
    ]
    rules = {
        "policy": rng.choice(("fifo", "sjf", "srtf", "drf", "priority")),
        "placement": rng.choice(("best_fit", "fgd", "spread", "gpu_packing")),
        "backfill": rng.choice(("none", "easy")),
    }
    return {"machines": machines, "running": running, "jobs": jobs, "cluster": "pai", **rules}


def recommended_then_placed(service: Service, body: dict[str, Any], limits: dict[str, Any]) -> list[dict[str, Any]]:
    """Do in two calls what a schedule does in one."""
    of_cluster = [{**each, "cluster": "pai"} for each in body["jobs"]]
    queueing = ("machines", "priority", "waited_s", "run_time_s")
    asked = [{name: value for name, value in each.items() if name not in queueing} for each in of_cluster]
    advice = answer_of(service, RECOMMEND, jobs=asked, **limits)["recommendations"]
    waiting = []
    for row, said in zip(body["jobs"], advice, strict=True):
        queued = {name: value for name, value in row.items() if name not in IDENTITY}
        queued["request"] = said["target"] if said["mode"] == "enforce" else said["request"]
        queued.setdefault("run_time_s", said["run_time_s"]["p50"])
        waiting.append(queued)
    placed = answer_of(service, PLACE, **{**body, "jobs": waiting})["placements"]
    rows = zip(advice, waiting, placed, strict=True)
    return [{**said, "given": queued["request"], **where} for said, queued, where in rows]


@pytest.mark.parametrize("mode", ["enforce", "observe"])
def test_a_schedule_is_a_recommendation_then_a_placement(
    service: Service, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("modelserve.calls.context.RequestContext.mode", lambda *_: mode)
    outcomes = set()

    for seed in range(12):
        limits = LIMITS if seed % 2 else {}
        body = drawn(seed)
        found = answer_of(service, SCHEDULE, **body, **limits)["schedule"]
        assert found == recommended_then_placed(service, body, limits), seed
        outcomes |= {(row["starts"], row["given"] != row["request"]) for row in found}

    assert {starts for starts, _ in outcomes} == {True, False}
    assert {shrunk for _, shrunk in outcomes} == ({True, False} if mode == "enforce" else {False})


def test_smaller_requests_let_more_jobs_start(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = [{"machine": "m1", "cpu_cores": 24, "mem_gib": 1024, "gpus": 8, "gpu_type": "T4"}]
    body = {"machines": machines, "jobs": [job(i, instances=1) for i in range(8)], "cluster": "pai"}
    starts = {}

    for mode in ("observe", "enforce"):
        monkeypatch.setattr("modelserve.calls.context.RequestContext.mode", lambda *_, mode=mode: mode)
        starts[mode] = sum(row["starts"] for row in answer_of(service, SCHEDULE, **body)["schedule"])

    assert starts["observe"] == 4
    assert starts["enforce"] > 4


def test_the_log_has_one_record_that_counts_as_recommendations(service: Service) -> None:
    service.log.records.clear()
    said = answer_of(service, SCHEDULE, **drawn(1))

    [record] = service.log.records
    assert (record.kind, record.models) == ("recommendation", "runtime.pai.ctr@7 usage.pai.ctr@7")
    pairs = record.recommendations()
    assert [answer["target"] for _, answer in pairs] == [row["target"] for row in said["schedule"]]
    assert {each["cluster"] for each in record.jobs()} == {"pai"}


def test_without_a_service_every_target_is_applied(service: Service, bundles: dict[str, Bundle]) -> None:
    body = drawn(3) | LIMITS
    rows = schedule(ScheduleBody.model_validate(body), InProcessPredictor(bundles=bundles), trace="pai")

    online = {row["job_id"]: row for row in answer_of(service, SCHEDULE, **body)["schedule"]}
    assert all(row["given"] == row["target"] for row in rows)
    assert any(row["given"] != row["request"] for row in rows)
    assert all(json.dumps(row["reasons"]) == json.dumps(online[row["job_id"]]["reasons"]) for row in rows)


def test_a_call_is_of_one_cluster_which_the_token_must_reach(service: Service) -> None:
    bound = Caller(name="bound", scopes=frozenset({Scope.PREDICT}), traces={"pai"}, clusters={"elsewhere"})

    with pytest.raises(Forbidden, match=r"call\.cluster"):
        answer_of(service, SCHEDULE, caller=bound, **drawn(1))
