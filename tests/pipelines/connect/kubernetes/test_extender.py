"""The extender with arguments that a real scheduler sent: what fits, the order of nodes, and answers in time."""

import json
import time
from typing import Any

import pytest
from starlette.testclient import TestClient

from pipelines.connect.kubernetes import extender
from pipelines.connect.kubernetes.extender import NodeView, extender_app
from tests.pipelines.connect.kubernetes.api_server import recorded

Json = dict[str, Any]
GPUS = ("nvidia.com/gpu",)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up later than a busy machine needs."""
    monkeypatch.setattr(extender, "DEADLINE_S", 30.0)


def node(name: str, *, cpu: str = "96", memory: str = "512Gi", gpus: int = 8) -> Json:
    allocatable = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus)}
    return {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def pod(uid: str, host: str | None, *, gpus: int, cpu: str = "6", phase: str = "Running") -> Json:
    amounts = {"cpu": cpu, "memory": "29Gi", "nvidia.com/gpu": str(gpus)}
    spec = {"nodeName": host, "containers": [{"name": "main", "resources": {"requests": amounts}}]}
    return {"kind": "Pod", "metadata": {"uid": uid}, "spec": spec, "status": {"phase": phase}}


def view_of(*objects: Json) -> NodeView:
    view = NodeView(GPUS)
    for each in objects:
        view.apply("ADDED", each)
    return view


def asked(view: NodeView, verb: str, **changes: object) -> Any:
    body = {**recorded(f"extender-{verb}"), **changes}
    return TestClient(extender_app(view)).post(f"/kubernetes/{verb}", json=body).json()


BUSY = (node("gpu-0"), node("gpu-1"), node("gpu-2"), pod("a", "gpu-0", gpus=8), pod("b", "gpu-1", gpus=4))


def test_nodes_without_room_fail_and_others_pass() -> None:
    answer = asked(view_of(*BUSY), "filter")

    assert answer["NodeNames"] == ["gpu-1", "gpu-2"]
    assert list(answer["FailedNodes"]) == ["gpu-0"]
    assert (answer["Nodes"], answer["Error"]) == (None, "")


def test_one_gpu_goes_where_whole_machines_are_kept_together() -> None:
    scores = {each["Host"]: each["Score"] for each in asked(view_of(*BUSY), "prioritize")}

    assert scores == {"gpu-0": 0, "gpu-1": 10, "gpu-2": 0}


def test_without_gpus_the_fuller_node_is_the_best() -> None:
    small = {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]}}

    answer = asked(view_of(*BUSY[1:], pod("c", "gpu-2", gpus=8, cpu="64")), "prioritize", Pod=small)

    assert max(answer, key=lambda each: each["Score"])["Host"] == "gpu-2"


def test_a_pod_frees_its_node_when_it_ends_or_is_deleted() -> None:
    view = view_of(*BUSY)
    assert "gpu-0" not in asked(view, "filter")["NodeNames"]

    view.apply("MODIFIED", pod("a", "gpu-0", gpus=8, phase="Succeeded"))
    assert "gpu-0" in asked(view, "filter")["NodeNames"]
    view.apply("MODIFIED", pod("a", "gpu-0", gpus=8))
    view.apply("MODIFIED", pod("a", "gpu-0", gpus=8))
    assert "gpu-0" not in asked(view, "filter")["NodeNames"]
    view.apply("DELETED", pod("a", "gpu-0", gpus=8))
    assert "gpu-0" in asked(view, "filter")["NodeNames"]


def test_a_pod_that_fits_nowhere_is_left_to_the_scheduler() -> None:
    full = [pod(f"f{i}", f"gpu-{i}", gpus=8) for i in range(3)]

    answer = asked(view_of(*BUSY[:3], *full), "filter")

    assert answer["NodeNames"] == ["gpu-0", "gpu-1", "gpu-2"]
    assert answer["FailedNodes"] == {}


def test_nodes_that_are_sent_are_sent_back() -> None:
    nodes = {"items": [node("gpu-0"), node("gpu-1")]}

    answer = asked(view_of(*BUSY), "filter", Nodes=nodes, NodeNames=None)

    assert [each["metadata"]["name"] for each in answer["Nodes"]["items"]] == ["gpu-1"]


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
@pytest.mark.parametrize("wrong", ["late", "broken", "quantity"])
def test_a_late_or_broken_extender_leaves_the_choice_to_the_scheduler(
    monkeypatch: pytest.MonkeyPatch, verb: str, wrong: str
) -> None:
    view, changes = view_of(*BUSY), {}
    if wrong == "late":
        monkeypatch.setattr(extender, "DEADLINE_S", 0.02)
        monkeypatch.setattr(view, "room", lambda names: time.sleep(0.3))
    elif wrong == "broken":
        monkeypatch.setattr(view, "room", lambda names: 1 / 0)
    else:
        changes = {"Pod": {"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}}

    answer = asked(view, verb, **changes)

    if verb == "filter":
        assert (answer["NodeNames"], answer["FailedNodes"]) == (["gpu-0", "gpu-1", "gpu-2"], {})
    else:
        assert answer == [{"Host": f"gpu-{i}", "Score": 0} for i in range(3)]


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[1]", b'{"Pod": {}, "NodeNames": []}', json.dumps({"Pod": {"a": 1}}).encode()]
)
def test_other_bodies_are_refused_as_http(body: bytes) -> None:
    assert TestClient(extender_app(view_of())).post("/kubernetes/filter", content=body).status_code == 400


def test_a_pod_takes_the_larger_of_its_containers_and_its_init_containers() -> None:
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}] * 2,
        "initContainers": [
            {"resources": {"requests": {"cpu": "5"}}},
            {"restartPolicy": "Always", "resources": {"requests": {"memory": "1Gi"}}},
        ],
        "overhead": {"cpu": "250m"},
    }

    assert view_of().demand({"spec": spec}).units == (5250, 3072, 0)
    assert view_of().demand({"spec": {**spec, "resources": {"requests": {"cpu": "8"}}}}).units == (8250, 3072, 0)
