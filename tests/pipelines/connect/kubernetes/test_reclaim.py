"""Running pods are resized to what a real service reserves, and get their request back when they press on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from modelserve.client import Client
from pipelines.connect.kubernetes.api import LIMIT_RANGES, TIMEOUT, ApiServer
from pipelines.connect.kubernetes.config import KubernetesConfig
from pipelines.connect.kubernetes.reclaim import Reclaimer, resized_slot, running_job
from pipelines.errors import ConnectError
from tests.modelserve.running import running
from tests.pipelines.connect.kubernetes.api_server import amount, recorded
from tests.pipelines.connect.kubernetes.fake import Cluster, api_server

Json = dict[str, Any]
START = datetime(2026, 11, 22, 18, 6, tzinfo=UTC)
CONFIG = KubernetesConfig.model_validate({"trace": "pai", "group": ["{label:team}"]})
USAGE = "/apis/metrics.k8s.io/v1beta1/pods"


def pod(**status: object) -> Json:
    found = recorded("pod-of-job")["request"]["object"]
    found["metadata"] |= {"uid": "u1", "name": "train-1"}
    found["status"] = {"phase": "Running", "startTime": "2026-11-22T18:06:00Z", **status}
    return found


def used(cpu: str, memory: str) -> Json:
    containers = [{"name": "main", "usage": {"cpu": cpu, "memory": memory}}]
    return {"metadata": {"name": "train-1", "namespace": "default"}, "containers": containers}


@contextmanager
def reclaiming(place: Path, cluster: Cluster, *, mode: str = "enforce", enforce: bool = True) -> Iterator[Reclaimer]:
    with running(place, mode=mode) as url, api_server(cluster) as address, Client(url) as client:
        server = ApiServer(client=httpx2.Client(base_url=address, timeout=TIMEOUT), token_file=None)
        yield Reclaimer(server, client, CONFIG, enforce=enforce)


def rounds(reclaimer: Reclaimer, first: int, last: int) -> list[Json]:
    return [row for minute in range(first, last) for row in reclaimer.round(START + timedelta(minutes=minute))]


@pytest.mark.slow
def test_a_pod_that_uses_little_is_resized_and_gets_its_request_back_when_it_presses(tmp_path: Path) -> None:
    least = {"type": "Container", "min": {"memory": "20Gi"}}
    ranges = {LIMIT_RANGES: [{"metadata": {"namespace": "default"}, "spec": {"limits": [least]}}]}
    cluster = Cluster({**ranges, "/api/v1/pods": [pod()], USAGE: [used("500m", "4Gi")]})
    with reclaiming(tmp_path, cluster) as reclaimer:
        assert rounds(reclaimer, 1, 3) == []
        rows = rounds(reclaimer, 3, 40)
        assert rows[-1]["done"] is True
        path, patch = cluster.resizes[-1]
        assert path == "/api/v1/namespaces/default/pods/train-1/resize"
        [container] = patch["spec"]["containers"]
        requests = container["resources"]["requests"]
        assert container["name"] == "main"
        assert 0 < amount(requests["cpu"]) < 6
        assert requests["memory"] == "20Gi"

        small = pod()
        small["spec"]["containers"][0]["resources"]["requests"] |= requests
        small["metadata"]["annotations"] = {"taut.dev/shrunk": '{"cpu_cores": 6.0, "mem_gib": 29.0}'}
        cluster.objects = {**ranges, "/api/v1/pods": [small], USAGE: [used("5900m", "28Gi")]}
        back = rounds(reclaimer, 40, 42)[0]

    assert amount(back["memory"]) > amount("28Gi")
    assert amount(back["cpu"]) > amount(requests["cpu"])


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "enforce"), [("observe", True), ("enforce", False)])
def test_nothing_is_resized_unless_both_enforce(tmp_path: Path, mode: str, enforce: bool) -> None:
    cluster = Cluster({LIMIT_RANGES: [], "/api/v1/pods": [pod()], USAGE: [used("500m", "4Gi")]})
    with reclaiming(tmp_path, cluster, mode=mode, enforce=enforce) as reclaimer:
        rows = rounds(reclaimer, 1, 30)

    assert rows
    assert not any(row["done"] for row in rows)
    assert cluster.resizes == []


def test_a_killed_or_restarted_pod_is_held_and_others_are_left_alone() -> None:
    now = START + timedelta(minutes=5)
    slot = resized_slot(pod(), CONFIG)
    assert slot is not None
    again = pod(containerStatuses=[{"name": "main", "restartCount": 1}])
    restarted = running_job(again, slot, used("1", "1Gi"), now, None, CONFIG)
    assert restarted is not None
    assert restarted.held
    fresh = running_job(pod(), slot, {}, now, None, CONFIG)
    assert fresh is not None
    assert (fresh.held, fresh.samples, fresh.age_s) == (False, None, 300.0)
    assert running_job(pod(phase="Pending"), slot, {}, now, None, CONFIG) is None
    assert resized_slot(recorded("pod-level-resources")["request"]["object"], CONFIG) is None


def test_an_api_server_without_metrics_changes_nothing() -> None:
    cluster = Cluster({LIMIT_RANGES: [], "/api/v1/pods": [pod()]})
    cluster.status = 404
    with api_server(cluster) as address, Client("http://127.0.0.1:9") as client:
        server = ApiServer(client=httpx2.Client(base_url=address, timeout=TIMEOUT), token_file=None)
        reclaimer = Reclaimer(server, client, CONFIG, enforce=True)
        with pytest.raises(ConnectError, match="replied 404"):
            reclaimer.round(START)
        with pytest.raises(ConnectError, match="pods/resize"):
            server.resize("default", "train-1", "main", {"cpu": "1"})
