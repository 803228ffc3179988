"""The webhook's answers to reviews that a real API server sent, checked by the API server's own rules."""

import copy
import json
from typing import Any

import kubernetes_validate
import pytest

from pipelines.connect.kubernetes.pods import SHRUNK
from tests.pipelines.connect.kubernetes.advising import Asked, answer
from tests.pipelines.connect.kubernetes.api_server import admitted, amount, check_kept, recorded, refusals

Json = dict[str, Any]

UNCHANGED = {
    "pod-no-resources": "no GPU",
    "pod-many-containers": "restartable init container",
    "pod-level-resources": "pod-level resources",
    "pod-dry-run": "dry run",
    "job-update": "not a creation",
    "pod-resize": "not a creation",
}


def changed(review: Json, *path: str | int, to: object) -> Json:
    """Return a review whose object has another value at a path."""
    review = copy.deepcopy(review)
    place = review["request"]["object"]
    for part in path[:-1]:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    place[path[-1]] = to
    return review


def main(pod: Json) -> Json:
    return pod["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize(("name", "reason"), UNCHANGED.items())
def test_what_must_not_be_shrunk_is_allowed_without_asking(name: str, reason: str) -> None:
    ask, review = Asked(), recorded(name)

    response, after = admitted(review, answer(review, ask))

    assert response["auditAnnotations"]["reason"] == f"left alone: {reason}"
    assert "warnings" not in response
    assert after == review["request"]["object"]
    assert not ask.jobs


@pytest.mark.parametrize("name", ["pod-of-job", "pod-gated"])
def test_a_pod_is_shrunk_within_the_rules(name: str) -> None:
    review = recorded(name)
    before = review["request"]["object"]

    response, after = admitted(review, answer(review))

    assert main(after)["requests"] == {"cpu": "1500m", "memory": "7424Mi", "nvidia.com/gpu": "1"}
    assert main(after)["limits"] == main(before)["limits"]
    assert response["warnings"] == ["taut shrank container main: cpu 6 -> 1500m, memory 29Gi -> 7424Mi"]
    check_kept(before, after)
    assert not refusals(before, after, [])
    kubernetes_validate.validate(after, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize(("runs", "memory"), [(0, "29Gi"), (10, "14848Mi"), (40, "7424Mi")])
def test_with_few_measured_runs_memory_falls_less(runs: int, memory: str) -> None:
    review = recorded("pod-of-job")

    _, after = admitted(review, answer(review, Asked(runs=runs)))

    assert main(after)["requests"] == {**main(after)["requests"], "cpu": "1500m", "memory": memory}


def test_the_annotation_keeps_the_request_and_the_answer() -> None:
    review = recorded("pod-of-job")

    _, after = admitted(review, answer(review))

    assert json.loads(after["metadata"]["annotations"][SHRUNK]) == {
        "answer_id": "a1", "job_id": f"{review['request']['uid']}-0", "container": "main", "instances": 1,
        "cpu_cores": 6.0, "mem_gib": 29.0,
    }  # fmt: skip


def test_the_template_of_a_suspended_job_is_shrunk_once_for_all_its_pods() -> None:
    ask, review = Asked(), recorded("job-suspended")
    before = review["request"]["object"]

    _, after = admitted(review, answer(review, ask))

    assert [job.instances for job in ask.jobs] == [4]
    assert after["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m"
    check_kept(before["spec"]["template"], after["spec"]["template"])
    assert {**after, "spec": {**after["spec"], "template": None}} == {
        **before,
        "spec": {**before["spec"], "template": None},
    }
    kubernetes_validate.validate(after, kubernetes_validate.latest_version(), strict=True)


def test_a_second_call_with_the_shrunk_object_changes_nothing() -> None:
    review, ask = recorded("pod-of-job"), Asked()
    _, once = admitted(review, answer(review))
    again = {**review, "request": {**review["request"], "object": once}}

    response, twice = admitted(again, answer(again, ask))

    assert twice == once
    assert response["auditAnnotations"]["reason"] == "left alone: shrunk before"
    assert not ask.jobs


TEMPLATES = {
    ("kubeflow.org", "PyTorchJob"): lambda pod: {
        "runPolicy": {"suspend": True},
        "pytorchReplicaSpecs": {"Master": {"replicas": 1, "template": pod}, "Worker": {"replicas": 3, "template": pod}},
    },
    ("ray.io", "RayJob"): lambda pod: {
        "suspend": True,
        "rayClusterSpec": {
            "headGroupSpec": {"template": pod},
            "workerGroupSpecs": [{"groupName": "gpu", "replicas": 3, "template": pod}],
        },
    },
    ("jobset.x-k8s.io", "JobSet"): lambda pod: {
        "suspend": True,
        "replicatedJobs": [
            {"name": "driver", "template": {"spec": {"template": pod}}},
            {"name": "workers", "replicas": 3, "template": {"spec": {"parallelism": 1, "template": pod}}},
        ],
    },
}
ROLES = {"PyTorchJob": ["master", "worker"], "RayJob": ["head", "gpu"], "JobSet": ["driver", "workers"]}


@pytest.mark.parametrize(("group", "kind"), TEMPLATES)
def test_all_templates_of_a_suspended_gang_are_shrunk(group: str, kind: str) -> None:
    pod = {"spec": copy.deepcopy(recorded("pod-of-job")["request"]["object"]["spec"])}
    review = recorded("job-suspended")
    review["request"]["kind"] = {"group": group, "version": "v1", "kind": kind}
    review["request"]["object"] = {"metadata": {"name": "g"}, "spec": TEMPLATES[group, kind](pod)}
    ask = Asked()

    _, after = admitted(review, answer(review, ask))

    assert [(job.role, job.instances) for job in ask.jobs] == list(zip(ROLES[kind], (1, 3), strict=True))
    # Ray counts cores by limits, and these pods have none for CPU.
    assert json.dumps(after).count('"cpu": "1500m"') == (0 if kind == "RayJob" else 2)
    assert json.dumps(after).count('"memory": "7424Mi"') == 2
    assert json.dumps(after).count(SHRUNK) == 2


def guaranteed(cpu: str = "6") -> Json:
    same = {"cpu": cpu, "memory": "29Gi", "nvidia.com/gpu": "1"}
    review = changed(
        recorded("pod-of-job"), "spec", "containers", 0, "resources", to={"limits": same, "requests": same}
    )
    return json.loads(json.dumps(review))


def test_a_guaranteed_pod_is_left_alone_by_default() -> None:
    response, _ = admitted(guaranteed(), answer(guaranteed()))

    assert response["auditAnnotations"]["reason"] == "left alone: QoS class Guaranteed"


@pytest.mark.parametrize(("cpu", "becomes"), [("6", "2"), ("6500m", "1625m")])
def test_a_guaranteed_pod_stays_guaranteed_with_whole_cores(cpu: str, becomes: str) -> None:
    review = guaranteed(cpu)

    _, after = admitted(review, answer(review, guaranteed="shrink"))

    assert main(after)["requests"] == main(after)["limits"]
    assert (main(after)["requests"]["cpu"], main(after)["requests"]["memory"]) == (becomes, "7424Mi")
    check_kept(review["request"]["object"], after)


RANGES = {
    "least of a container": [{"type": "Container", "min": {"cpu": "2", "memory": "10Gi"}}],
    "ratio of a container": [{"type": "Container", "max_limit_request_ratio": {"memory": "2"}}],
    "least of a pod": [{"type": "Pod", "min": {"cpu": "3", "memory": "12Gi"}}],
    "ratio of a pod": [{"type": "Pod", "max_limit_request_ratio": {"memory": "1.5"}}],
    "of another namespace": [{"type": "Container", "min": {"cpu": "5"}, "namespace": "else"}],
}


@pytest.mark.parametrize("ranges", RANGES.values(), ids=RANGES)
def test_limit_ranges_hold(ranges: list[Json]) -> None:
    review = recorded("pod-of-job")
    before = review["request"]["object"]
    mine = [each for each in ranges if "namespace" not in each]

    _, after = admitted(review, answer(review, limit_ranges=ranges))

    assert not refusals(before, after, mine)
    assert amount(main(after)["requests"]["cpu"]) < 6
    _, without = admitted(review, answer(review))
    assert bool(refusals(before, without, mine)) == bool(mine), "the range would not have been broken"


MODES = [
    ({"mode": "off"}, None, None, "left alone: mode off"),
    ({"mode": "warn"}, None, None, "would shrink; mode warn, service enforce"),
    ({"mode": "off", "namespaces": {"default": "enforce"}}, None, None, "shrunk"),
    ({"namespaces": {"default": "warn"}}, None, None, "would shrink; mode warn, service enforce"),
    ({}, "warn", None, "would shrink; mode warn, service enforce"),
    ({}, "off", None, "left alone: mode off"),
    ({}, "on", None, "left alone: mode off"),
    ({"mode": "warn"}, "enforce", None, "would shrink; mode warn, service enforce"),
    ({}, None, "observe", "would shrink; mode enforce, service observe"),
]


@pytest.mark.parametrize(("settings", "label", "service", "reason"), MODES)
def test_the_lowest_mode_holds(settings: Json, label: str | None, service: str | None, reason: str) -> None:
    review = recorded("pod-of-job")
    if label:
        review = changed(review, "metadata", "labels", "taut.dev/mode", to=label)
    ask = Asked(mode=service) if service else Asked()

    response, _ = admitted(review, answer(review, ask, **settings))

    assert response["auditAnnotations"]["reason"] == reason
    assert ("patch" in response) == (reason == "shrunk")
    assert ("warnings" in response) == (reason != "left alone: mode off")


def test_a_job_has_the_names_that_the_templates_give() -> None:
    review = changed(recorded("pod-of-job"), "spec", "nodeSelector", to={"nvidia.com/gpu.product": "Tesla-T4"})
    review["request"]["userInfo"]["username"] = "ada"
    ask = Asked()

    answer(
        review, ask, cluster="c1", gpu_types={"Tesla-T4": "T4"},
        group=["{label:absent}", "{label:team}/{owner}/{container}/{image}/{namespace}"],
        user=["{username}"], role=["{annotation:none}"],
    )  # fmt: skip

    [job] = ask.jobs
    assert (job.trace, job.cluster, job.user, job.role, job.gpu_type) == ("pai", "c1", "ada", "job", "T4")
    assert job.group == "nlp/train-x#k#/main/train:1/default"
    assert job.request.row() == (6.0, 29.0, 1.0)
    assert job.minimum is not None
    assert job.minimum.gpus == 1.0


def test_service_accounts_are_no_users() -> None:
    review = recorded("pod-of-job")
    review["request"]["userInfo"]["username"] = "system:serviceaccount:kube-system:job-controller"
    ask = Asked()

    answer(review, ask)

    assert ask.jobs[0].user is None
