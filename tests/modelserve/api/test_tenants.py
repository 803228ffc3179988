"""Ten clusters in one service, each with its models and its token: a tenant sees and changes only what is its own."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from starlette.testclient import TestClient

from features.build import build
from features.contract import FeatureContract
from features.history import History
from modelserve.api.app import create_app
from modelserve.bundle.bundle import write_bundle
from modelserve.callers import Token
from modelserve.scopes import Scope
from modelserve.service import open_service
from modelserve.settings import ServeSettings
from tests.modelserve.api.conftest import job
from tests.modelserve.conftest import make_boosters, make_card, make_jobs, make_usage
from tests.modelserve.feedback_cases import row
from tests.modelserve.mirrored import Folder

pytestmark = pytest.mark.slow

CLUSTERS = [f"c{number}" for number in range(10)]
SCOPES = frozenset({Scope.PREDICT, Scope.FEEDBACK, Scope.ADMIN})


def write_models(folder: Path) -> Folder:
    """Write a run-time and a usage model for each cluster, each over a history of its own trace."""
    mirrored = Folder(folder / "bundles", {})
    boosters = {}
    for cluster in CLUSTERS:
        jobs = make_jobs().with_columns(trace=pl.lit(cluster), cluster=pl.lit(cluster))
        usage = make_usage(jobs)
        history = History.of(jobs, usage)
        for kind, features in (("runtime", "submit"), ("usage", "usage")):
            frame = build(jobs, history, features)
            contract = FeatureContract.fit(frame)
            if kind not in boosters:
                boosters[kind] = make_boosters(kind, contract.encode(frame), jobs, usage)
            name = f"{kind}.{cluster}.ctr"
            card = make_card(kind, contract, name=name, trace=cluster)
            made = folder / "made" / name
            write_bundle(made, card=card, contract=contract, boosters=boosters[kind], history=history, importances=[])
            mirrored.add(name, "1", source=made)
    return mirrored


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("tenants")
    bundles = write_models(folder).path
    bound = {"scopes": SCOPES, "sha256": ""}
    tokens = [
        Token(**{**bound, "name": each, "sha256": digest(each)}, traces={each}, clusters={each}) for each in CLUSTERS
    ]
    tokens.append(Token(**{**bound, "name": "operator", "sha256": digest("operator")}))
    accounting = {"name": "accounting", "sha256": digest("accounting"), "scopes": {Scope.ACCOUNTING}}
    tokens.append(Token(**accounting, traces={"c7"}, clusters={"c7"}))
    settings = ServeSettings(bundles=bundles, store=f"sqlite:///{folder}/serve.db", tokens=tuple(tokens))
    with closing(open_service(settings)) as service, TestClient(create_app(service)) as made:
        yield made


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def of(tenant: str) -> dict[str, str]:
    return {"authorization": f"Bearer {tenant}"}


def own(tenant: str, job_id: str = "a1", **changes: object) -> dict[str, object]:
    return {**job(job_id, cluster=tenant, trace=tenant), **changes}


def ask(client: TestClient, tenant: str, path: str, *jobs: dict[str, object]) -> dict[str, object]:
    answer = client.post(path, json={"jobs": list(jobs)}, headers=of(tenant))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_each_tenant_is_answered_by_its_models_and_sees_no_other(client: TestClient) -> None:
    for tenant in CLUSTERS:
        names = {each["name"] for each in client.get("/v1/models", headers=of(tenant)).json()["models"]}
        [found] = ask(client, tenant, "/v1/predictions", own(tenant))["predictions"]

        assert names == {f"runtime.{tenant}.ctr", f"usage.{tenant}.ctr"}
        assert found["models"] == {"run_time": f"runtime.{tenant}.ctr@1", "usage": f"usage.{tenant}.ctr@1"}
    assert len(client.get("/v1/models", headers=of("operator")).json()["models"]) == 20
    assert client.get("/v1/models/runtime.c1.ctr", headers=of("c0")).status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/predictions", {"jobs": [own("c1")]}),
        ("/v1/recommendations", {"jobs": [own("c0"), own("c1")]}),
        ("/v1/explanations", {"job": own("c1")}),
        ("/v1/what-if", {"job": own("c1"), "resource": "gpus"}),
        ("/v1/feedback", {"feedback": [row(trace="c1", cluster="c1")]}),
        ("/v1/feedback", {"feedback": [row(trace="c0", cluster="c1")]}),
        ("/v1/mode", {"trace": "c1", "cluster": "c1", "mode": "enforce"}),
        ("/v1/mode", {"trace": "c0", "mode": "observe"}),
    ],
)
def test_what_names_another_tenant_is_refused(client: TestClient, path: str, body: dict[str, object]) -> None:
    assert client.post(path, json=body, headers=of("c0")).status_code == 403


def test_kills_and_modes_of_one_tenant_change_no_other(client: TestClient) -> None:
    before = {each: ask(client, each, "/v1/recommendations", own(each)) for each in CLUSTERS}
    named = ask(client, "c3", "/v1/recommendations", own("c3", "k0"), own("c3", "k1"))["answer_id"]
    killed = [
        row(f"k{i}", trace="c3", cluster="c3", outcome="oom", allocation={"mem_gib": 20.0}, answer_id=named)
        for i in range(2)
    ]

    assert client.post("/v1/feedback", json={"feedback": killed}, headers=of("c3")).status_code == 200
    enforced = client.post("/v1/mode", json={"trace": "c3", "cluster": "c3", "mode": "enforce"}, headers=of("c3"))
    assert enforced.status_code == 200
    after = {each: ask(client, each, "/v1/recommendations", own(each)) for each in CLUSTERS}

    changed = [each for each in CLUSTERS if without_id(before[each]) != without_id(after[each])]
    assert changed == ["c3"]
    assert after["c3"]["recommendations"][0]["mode"] == "enforce"
    assert after["c3"]["recommendations"][0]["lower_bound"]["mem_gib"] == pytest.approx(24.0)
    modes = {each: client.get("/v1/mode", headers=of(each)).json() for each in CLUSTERS}
    assert [each for each in CLUSTERS if modes[each]["modes"]] == ["c3"]
    assert [each for each in CLUSTERS if modes[each]["realised"]] == ["c3"]


def test_twenty_reports_of_a_clusters_accounting_move_its_groups_within_seconds(client: TestClient) -> None:
    def runs(tenant: str, group: str) -> int:
        [found] = ask(client, tenant, "/v1/recommendations", own(tenant, group=group))["recommendations"]  # type: ignore[misc]
        return found["evidence"]["measured_runs"]

    def report(caller: str, tenant: str, job_id: str) -> int:
        rows = [row(f"{job_id}{i}", trace=tenant, cluster=tenant, group="new") for i in range(20)]
        return client.post("/v1/feedback", json={"feedback": rows}, headers=of(caller)).status_code

    assert report("c7", "c7", "a") == 200
    assert runs("c7", "new") == 0
    begun = time.monotonic()
    assert report("accounting", "c7", "b") == 200
    assert runs("c7", "new") == 20
    assert time.monotonic() - begun < 10.0
    assert report("accounting", "c8", "b") == 403
    assert runs("c8", "new") == 0


def test_logged_answers_drift_and_metrics_of_others_are_out_of_reach(client: TestClient) -> None:
    for tenant in ("c4", "c5"):
        ask(client, tenant, "/v1/recommendations", own(tenant, f"job-of-{tenant}"))
    client.app.state.desk.service.log.flush()  # type: ignore[attr-defined]

    shown = client.get("/v1/recommendations", headers=of("c4")).json()["recommendations"]
    drift = client.get("/v1/drift", headers=of("c4")).json()

    assert "job-of-c4" in {each["job_id"] for each in shown}
    assert {(each["trace"], each["cluster"]) for each in shown} == {("c4", "c4")}
    assert {each["name"].split(".")[1] for each in drift["models"]} == {"c4"}
    assert client.get("/metrics", headers=of("c4")).status_code == 403
    assert client.get("/metrics", headers=of("operator")).status_code == 200


def without_id(answer: dict[str, object]) -> dict[str, object]:
    """Return an answer without its id and without the age of the history, which grows."""
    rows = [{k: v for k, v in each.items() if k != "evidence"} for each in answer["recommendations"]]  # type: ignore[attr-defined]
    return {"recommendations": rows}
