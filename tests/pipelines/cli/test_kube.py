"""`taut kube`: bad usage is named, and the commands work together against a service and an API server."""

import asyncio
import json
import re
import signal
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from modelserve.client import Advice
from pipelines.cli import app
from pipelines.connect.kubernetes import webhook
from pipelines.connect.kubernetes.webhook import DEADLINE_S
from scheduler_core.types import Job
from tests.modelserve.running import running
from tests.modelserve.server.running import start, stop, until
from tests.pipelines.connect.kubernetes.advising import advice
from tests.pipelines.connect.kubernetes.api_server import recorded
from tests.pipelines.connect.kubernetes.fake import Cluster, api_server

Json = dict[str, Any]
CONFIG = (
    'trace = "pai"\nmode = "enforce"\ngroup = ["{label:team}"]\ntask_type = ["{label:kind}"]\nrole = ["{label:role}"]\n'
)
LABELS = {"team": "g0", "kind": "ctr", "role": "worker"}
RAN = {"startedAt": "2026-11-22T18:06:00Z", "finishedAt": "2026-11-22T19:06:00Z"}


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["kube", *arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def config(tmp_path: Path) -> str:
    (tmp_path / "kubernetes.toml").write_text(CONFIG)
    return str(tmp_path / "kubernetes.toml")


def pod_file(folder: Path) -> str:
    found = recorded("pod-of-job")["request"]["object"]
    found["metadata"]["labels"] = LABELS
    (folder / "pod.json").write_text(json.dumps(found))
    return str(folder / "pod.json")


def test_what_cannot_be_used_is_one_line_with_exit_two(tmp_path: Path, config: str) -> None:
    given = ("--config", config, "--url", "http://127.0.0.1:9")
    pod = pod_file(tmp_path)
    (tmp_path / "list.json").write_text("[]")
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    named = ("--trace", "pai", "--cluster", "pai")
    cases = {
        ("webhook", *given, "--tls-key", "a"): "expected both or neither",
        ("webhook", *given, "--tls-key", "a", "--tls-certificate", "b"): "expected a PEM certificate",
        ("webhook", "--config", "absent.toml", "--url", "http://127.0.0.1:9"): "absent.toml: cannot be read",
        ("review", "absent.json", *given): "absent.json: No such file or directory;",
        ("review", str(tmp_path / "list.json"), *given): "expected one object",
        ("review", pod, "--config", "absent.toml", "--url", "http://127.0.0.1:9"): "absent.toml",
        ("feedback", *given): "--api-server",
        ("extender",): "--api-server",
        ("reclaim", *given): "--api-server",
        ("extender", "--api-server", "zz"): "--api-server 'zz': expected an address",
        ("review", str(deep), *given): "expected one object",
        ("manifests", "--out", str(tmp_path / "m"), *named, "--url", "zz"): "expected an address such as",
    }
    for arguments, named in cases.items():
        code, _, errors = invoke(*arguments)
        assert (code, errors.count("\n")) == (2, 1), errors
        assert named in errors


def test_a_review_without_a_service_says_so_and_fails(tmp_path: Path, config: str) -> None:
    code, out, _ = invoke("review", pod_file(tmp_path), "--config", config, "--url", "http://127.0.0.1:9")

    assert code == 1
    assert json.loads(out)["reason"].startswith("failed: POST /v1/recommendations")
    assert json.loads(out)["patch"] == []


class Late:
    """A client of a service that answers later than a webhook would wait."""

    def __init__(self, *_: object, **__: object) -> None:
        """Ignore the address, the token and the limits."""

    async def __aenter__(self) -> "Late":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close nothing."""

    async def recommend(self, jobs: Sequence[Job]) -> list[Advice]:
        await asyncio.sleep(2 * DEADLINE_S)
        return [advice(job) for job in jobs]


@pytest.mark.parametrize("unwrapped", [False, True])
def test_a_recorded_review_is_answered_as_its_object_though_the_service_is_late(
    tmp_path: Path, config: str, monkeypatch: pytest.MonkeyPatch, unwrapped: bool
) -> None:
    monkeypatch.setattr(webhook, "AsyncClient", Late)
    found = recorded("pod-dry-run")
    (tmp_path / "found.json").write_text(json.dumps(found["request"]["object"] if unwrapped else found))

    code, out, _ = invoke("review", str(tmp_path / "found.json"), "--config", config, "--url", "http://127.0.0.1:9")

    assert code == 0
    assert json.loads(out)["reason"] == "shrunk"


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({"apiVersion": "apps/v1", "kind": "Deployment"}, "Deployment"),
        ({"kind": "AdmissionReview", "request": {"kind": {"kind": "Node"}, "object": {"kind": "Node"}}}, "Node"),
        ({"kind": "AdmissionReview"}, "no kind"),
        ({"Pod": {}}, "no kind"),
    ],
)
def test_a_review_of_another_kind_names_the_kind(
    tmp_path: Path, config: str, found: dict[str, object], kind: str
) -> None:
    (tmp_path / "found.json").write_text(json.dumps(found))

    code, out, _ = invoke("review", str(tmp_path / "found.json"), "--config", config, "--url", "http://127.0.0.1:9")

    assert code == 0
    assert json.loads(out)["reason"] == f"left alone: {kind}, expected a pod or a suspended job with a template"


@pytest.mark.slow
def test_a_pod_killed_for_memory_raises_the_memory_of_the_next_one(tmp_path: Path, config: str) -> None:
    pod = pod_file(tmp_path)
    with running(tmp_path, mode="enforce") as url:
        given = ("--config", config, "--url", url)
        first = json.loads(invoke("review", pod, *given)[1])
        assert first["reason"] == "shrunk"
        killed = killed_pod(first["patch"])
        with api_server(Cluster({"/api/v1/pods": [killed]})) as cluster:
            options = ("--once", "--api-server", cluster, "--format", "json")
            code, out, errors = invoke("feedback", *given, *options)
            assert code == 0, errors
            [counts] = json.loads(out)
            assert json.loads(invoke("feedback", *given, *options)[1])[0]["duplicates"] == 1
            usage = {"metadata": {"name": "p", "namespace": "default"}, "containers": []}
            objects = {"/api/v1/pods": [running_pod()], "/apis/metrics.k8s.io/v1beta1/pods": [usage]}
            objects["/api/v1/limitranges"] = []
            with api_server(Cluster(objects)) as busy:
                options = ("--rounds", "1", "--enforce", "--api-server", busy, "--format", "json")
                assert json.loads(invoke("reclaim", *given, *options)[1]) == []  # nothing is measured yet
        after = json.loads(invoke("review", pod, *given)[1])

    assert counts == {"pods": 1, "reports": 1, "accepted": 1, "duplicates": 0, "conflicts": 0}
    assert memory_mib(after) > memory_mib(first)


def running_pod() -> Json:
    """Return the recorded pod while it runs."""
    found = recorded("pod-of-job")["request"]["object"]
    found["metadata"] |= {"uid": "u2", "name": "p", "labels": LABELS}
    found["status"] = {"phase": "Running", "startTime": RAN["startedAt"]}
    return found


def memory_mib(answer: Json) -> int:
    """Return the memory in an answer's patch; the whole request if it is not shrunk."""
    given = [each["value"] for each in answer["patch"] if each["path"].endswith("/requests/memory")]
    if not given:
        return 29 * 1024
    number, unit = re.fullmatch(r"(\d+)([MG])i", given[0]).groups()
    return int(number) * (1024 if unit == "G" else 1)


def killed_pod(patch: list[Json]) -> Json:
    """Return the recorded pod after a patch, killed for memory."""
    found = recorded("pod-of-job")["request"]["object"]
    found["metadata"] |= {"uid": "u1", "creationTimestamp": "2026-11-22T18:05:24Z", "labels": LABELS}
    requests = found["spec"]["containers"][0]["resources"]["requests"]
    for each in patch:
        if each["path"].endswith(("/cpu", "/memory")):
            requests[each["path"].rpartition("/")[2]] = each["value"]
        elif each["path"].endswith("taut.dev~1shrunk"):
            found["metadata"]["annotations"] = {"taut.dev/shrunk": each["value"]}
    ended = {"terminated": {**RAN, "exitCode": 137, "reason": "OOMKilled"}}
    found["status"] = {"phase": "Failed", "containerStatuses": [{"name": "main", "state": ended}]}
    return found


@pytest.mark.slow
def test_the_extender_follows_the_api_server() -> None:
    nodes = [
        {
            "metadata": {"name": f"gpu-{i}"},
            "status": {"allocatable": {"cpu": "96", "memory": "512Gi", "nvidia.com/gpu": "8"}},
        }
        for i in range(3)
    ]
    busy = {
        "metadata": {"uid": "a"},
        "spec": {"nodeName": "gpu-0", "containers": [{"resources": {"requests": {"nvidia.com/gpu": "8"}}}]},
    }
    cluster = Cluster({"/api/v1/nodes": nodes, "/api/v1/pods": [busy]})
    cluster.watches = {path: [[] for _ in range(1000)] for path in cluster.objects}
    with api_server(cluster) as url:
        command = [sys.executable, "-c", "from pipelines.cli import main; main()", "kube", "extender"]
        server = start([*command, "--port", "0", "--api-server", url], {"TERM": "dumb"})
        try:
            until(lambda: server.process.poll() is not None or listening(server.errors), what="listening")
            body = json.dumps(recorded("extender-filter")).encode()

            def passed() -> list[str]:
                with urllib.request.urlopen(f"{listening(server.errors)}/kubernetes/filter", body, timeout=10) as reply:
                    return json.load(reply)["NodeNames"]

            until(lambda: passed() == ["gpu-1", "gpu-2"], what="the node that is full")
            assert server.end(signal.SIGTERM, within_s=30) == 0
        finally:
            stop(server)


def listening(lines: list[str]) -> str:
    return next((line.removeprefix("listening on ") for line in lines if line.startswith("listening on ")), "")
