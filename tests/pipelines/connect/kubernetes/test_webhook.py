"""The webhook as an application: late, failing or absent services, and bodies that are no reviews."""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from modelserve.client import Advice
from modelserve.client.policy import Breaker
from pipelines.connect.kubernetes.api import LIMIT_RANGES, ApiServer
from pipelines.connect.kubernetes.serving import BODY_LIMIT_BYTES
from pipelines.connect.kubernetes.webhook import Webhook, _follow_limit_ranges, webhook_app
from scheduler_core.types import Job
from tests.pipelines.connect.kubernetes.advising import Asked, answer, config
from tests.pipelines.connect.kubernetes.api_server import admitted, recorded
from tests.pipelines.connect.kubernetes.fake import Cluster, api_server

PATH = "/kubernetes/mutate"


async def late(jobs: Sequence[Job]) -> list[Advice]:
    await asyncio.sleep(30.0)
    raise AssertionError


async def failing(jobs: Sequence[Job]) -> list[Advice]:
    raise RuntimeError("boom")


async def short(jobs: Sequence[Job]) -> list[Advice]:
    return []


def reason(ask: Any, **settings: Any) -> str:
    response, after = admitted(recorded("pod-of-job"), answer(recorded("pod-of-job"), ask))
    assert after == recorded("pod-of-job")["request"]["object"]
    return response["auditAnnotations"]["reason"]


def test_a_late_service_leaves_the_pod_as_it_is_within_the_deadline() -> None:
    started_s = time.perf_counter()

    assert reason(late) == "failed: no advice within 0.2 s"
    assert time.perf_counter() - started_s < 1.0


@pytest.mark.parametrize(("ask", "why"), [(failing, "RuntimeError"), (short, "ValueError")])
def test_a_failing_service_leaves_the_pod_as_it_is(ask: Any, why: str) -> None:
    assert reason(ask) == f"failed: {why}"


def test_a_service_that_was_late_several_times_rests() -> None:
    now, asked = [0.0], Asked()
    breaker = Breaker(clock=lambda: now[0])
    slow = [late] * breaker.failures

    async def ask(jobs: Sequence[Job]) -> list[Advice]:
        return await (slow.pop() if slow else asked)(jobs)

    webhook = Webhook(config=config(), ask=ask, deadline_s=0.01, breaker=breaker)
    body = json.dumps(recorded("pod-of-job")).encode()

    async def reviews(count: int) -> list[str]:
        return [json.loads(await webhook.answer(body))["response"]["auditAnnotations"]["reason"] for _ in range(count)]

    assert asyncio.run(reviews(breaker.failures + 1))[-1] == "failed: the service was late, and rests 5 s"
    now[0] = 5.0
    assert asyncio.run(reviews(2)) == ["shrunk", "shrunk"]


def test_pods_are_left_alone_until_the_limit_ranges_are_read(caplog: pytest.LogCaptureFixture) -> None:
    least = {"type": "Container", "min": {"memory": "20Gi"}}
    cluster = Cluster({LIMIT_RANGES: [{"metadata": {"namespace": "default"}, "spec": {"limits": [least]}}]})
    webhook, seen = Webhook(config=None, ask=Asked()), []

    def reviewed(_: float) -> None:
        answer = asyncio.run(webhook.answer(json.dumps(recorded("pod-of-job")).encode()))
        response, after = admitted(recorded("pod-of-job"), answer)
        seen.append((response["auditAnnotations"]["reason"], after["spec"]["containers"][0]["resources"]["requests"]))
        cluster.status = 200
        if len(seen) == 2:
            raise SystemExit

    cluster.status = 403
    with api_server(cluster) as url, httpx2.Client(base_url=url) as client, pytest.raises(SystemExit):
        _follow_limit_ranges(webhook, config(), ApiServer(client=client, token_file=None, sleep=reviewed))

    assert [reason for reason, _ in seen] == ["left alone: the LimitRanges are not read yet", "shrunk"]
    assert seen[1][1]["memory"] == "20Gi"
    assert "see that the account may list it" in caplog.text


@pytest.fixture
def web() -> TestClient:
    return TestClient(webhook_app(Webhook(config=config(), ask=Asked())))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"kind": "AdmissionReview"}'])
def test_what_is_no_review_is_refused_as_http(web: TestClient, body: bytes) -> None:
    assert web.post(PATH, content=body).status_code == 400


def test_huge_bodies_are_refused_as_http(web: TestClient) -> None:
    assert web.post(PATH, content=b"x" * (BODY_LIMIT_BYTES + 1)).status_code == 413
    assert web.get(PATH).status_code == 405


def test_reviews_are_counted(web: TestClient) -> None:
    for name in ("pod-of-job", "pod-dry-run"):
        assert web.post(PATH, json=recorded(name)).json()["response"]["allowed"] is True

    page = web.get("/metrics").text
    assert 'taut_webhook_reviews_total{outcome="shrunk"} 1.0' in page
    assert 'taut_webhook_reviews_total{outcome="left alone"} 1.0' in page
    assert "taut_webhook_review_duration_seconds_count 2.0" in page
    assert web.get("/healthz").status_code == 200
