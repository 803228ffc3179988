"""The manifests: valid against the published schemas, safe if the webhook fails, and in step with the code."""

import base64
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cel
import kubernetes_validate
import pytest
import yaml
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.connect.kubernetes.config import KubernetesConfig, read_config
from pipelines.connect.kubernetes.extender import NodeView, extender_app
from pipelines.connect.kubernetes.manifests import WEBHOOKS, write_manifests
from pipelines.connect.kubernetes.objects import KINDS
from pipelines.connect.kubernetes.pods import SHRUNK
from pipelines.connect.kubernetes.reviews import MODE_LABEL
from tests.deploy.tools import tool

Spec = dict[str, Any]
GIVEN = {"image": "registry.example/taut:0.1.0", "url": "http://taut.taut", "trace": "mine", "cluster": "c1"}
CRDS = ("cert-manager.io/v1", "kubescheduler.config.k8s.io/v1")
"""APIs whose schemas Kubernetes does not publish."""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    write_manifests(tmp_path / "out", **GIVEN)
    return tmp_path / "out"


def documents(out: Path) -> list[Spec]:
    return [each for path in sorted(out.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]


def webhooks(out: Path) -> list[Spec]:
    [found] = [each for each in documents(out) if each["kind"] == "MutatingWebhookConfiguration"]
    return found["webhooks"]


def test_all_are_valid_against_the_schemas_of_the_api(out: Path) -> None:
    version = kubernetes_validate.latest_version()
    checked = [each for each in documents(out) if each["apiVersion"] not in CRDS]

    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)

    assert {each["kind"] for each in checked} >= {
        "ConfigMap", "Deployment", "Service", "PodDisruptionBudget", "MutatingWebhookConfiguration", "ServiceAccount",
    }  # fmt: skip
    assert not re.search(r"@[A-Z]+@", "".join(path.read_text() for path in out.iterdir()))


def test_a_webhook_that_fails_refuses_nothing(out: Path) -> None:
    for each in webhooks(out):
        assert each["failurePolicy"] == "Ignore"
        assert each["timeoutSeconds"] == 1
        assert each["sideEffects"] == "NoneOnDryRun"
        assert each["reinvocationPolicy"] == "IfNeeded"


def test_namespaces_opt_in_and_objects_opt_out_by_text(out: Path) -> None:
    for each in webhooks(out):
        [opted_in] = each["namespaceSelector"]["matchExpressions"]
        [opted_out] = each["objectSelector"]["matchExpressions"]
        assert (opted_in["operator"], opted_in["values"]) == ("In", ["on"])
        assert (opted_out["key"], opted_out["operator"], opted_out["values"]) == (MODE_LABEL, "NotIn", ["off"])


def test_the_webhook_is_shown_the_kinds_that_it_can_read(out: Path) -> None:
    shown = {
        (group, resource)
        for each in webhooks(out)
        for rule in each["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if rule["operations"] == ["CREATE"]
    }

    assert shown == {(group, f"{kind.lower()}s") for group, kind in KINDS}
    assert len(webhooks(out)) == WEBHOOKS


def pod(*limits: Spec | None, annotations: Spec | None = None) -> Spec:
    containers = [{"name": "c"} if each is None else {"name": "c", "resources": {"limits": each}} for each in limits]
    noted = {"annotations": annotations} if annotations else {}
    return {"metadata": {"name": "p", **noted}, "spec": {"containers": containers}}


@pytest.mark.parametrize(
    ("webhook", "shown", "hidden"),
    [
        (
            "pods.taut.dev",
            [pod({"nvidia.com/gpu": "1"}), pod(None, {"cpu": "1"}, {"amd.com/gpu": 2}, annotations={"a": "b"})],
            [pod(None), pod({"cpu": "1"}), pod({"nvidia.com/gpu": "1"}, annotations={SHRUNK: "x"})],
        ),
        ("jobs.taut.dev", [{"spec": {"suspend": True}}], [{"spec": {"suspend": False}}, {"spec": {}}]),
        (
            "pytorchjobs.taut.dev",
            [{"spec": {"runPolicy": {"suspend": True}}}],
            [{"spec": {}}, {"spec": {"runPolicy": {}}}, {"spec": {"runPolicy": {"suspend": False}}}],
        ),
    ],
)
def test_the_match_conditions_hold_for_what_the_webhook_shrinks(
    out: Path, webhook: str, shown: list[Spec], hidden: list[Spec]
) -> None:
    [conditions] = [each["matchConditions"] for each in webhooks(out) if each["name"] == webhook]
    expression = " && ".join(f"({each['expression']})" for each in conditions)
    assert [cel.evaluate(expression, {"object": each}) for each in shown] == [True] * len(shown)
    assert [cel.evaluate(expression, {"object": each}) for each in hidden] == [False] * len(hidden)


def test_the_names_of_gpus_are_those_given(out: Path, tmp_path: Path) -> None:
    gpus = webhooks(out)[0]["matchConditions"][0]["expression"]
    assert all(f"'{name}'" in gpus for name in KubernetesConfig(trace="a").gpus)
    write_manifests(tmp_path / "other", **GIVEN, gpus=["example.com/gpu"])
    assert "name in ['example.com/gpu']" in webhooks(tmp_path / "other")[0]["matchConditions"][0]["expression"]


def test_the_deployments_start_commands_that_exist_locked_down(out: Path) -> None:
    pods = [each["spec"]["template"]["spec"] for each in documents(out) if each["kind"] == "Deployment"]

    commands = [container["command"] for pod in pods for container in pod["containers"]]

    assert [command[:3] for command in commands] == [
        ["taut", "kube", "extender"], ["taut", "kube", "feedback"],
        ["taut", "kube", "reclaim"], ["taut", "kube", "webhook"],
    ]  # fmt: skip
    for command in commands:
        help_text = CliRunner().invoke(app, [*command[1:3], "--help"], env={"COLUMNS": "200"}).stdout
        assert all(option.partition("=")[0] in help_text for option in command[3:])
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in pod["containers"])


def test_rights_are_to_read_only(out: Path) -> None:
    rules = {each["metadata"]["name"]: each["rules"] for each in documents(out) if each["kind"] == "ClusterRole"}

    assert rules == {
        "taut-extender": [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}],
        "taut-feedback": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}],
        "taut-webhook": [{"apiGroups": [""], "resources": ["limitranges"], "verbs": ["list"]}],
        "taut-reclaim": [
            {"apiGroups": [""], "resources": ["limitranges", "pods"], "verbs": ["list"]},
            {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["list"]},
        ],
    }


def test_the_settings_are_a_valid_configuration(out: Path, tmp_path: Path) -> None:
    [settings] = [each for each in documents(out) if each["kind"] == "ConfigMap"]
    (tmp_path / "kubernetes.toml").write_text(settings["data"]["kubernetes.toml"])

    config = read_config(tmp_path / "kubernetes.toml")

    assert (config.trace, config.cluster, config.mode) == ("mine", "c1", "warn")


def test_the_scheduler_goes_on_without_the_extender(out: Path) -> None:
    [found] = [each for each in documents(out) if each["kind"] == "KubeSchedulerConfiguration"]

    [extender] = found["extenders"]
    assert (extender["ignorable"], extender["nodeCacheCapable"], extender["httpTimeout"]) == (True, True, "200ms")
    routes = {route.path for route in extender_app(NodeView([])).routes}
    path = urlsplit(extender["urlPrefix"]).path
    assert {f"{path}/{extender['filterVerb']}", f"{path}/{extender['prioritizeVerb']}"} <= routes


@pytest.mark.parametrize("wrong", [{"url": "taut.taut"}, {"image": "a b"}, {"trace": 'a"'}, {"cluster": "é:"}])
def test_values_that_do_not_fit_are_named(tmp_path: Path, wrong: dict[str, str]) -> None:
    [(name, _)] = wrong.items()
    given = [part for option, value in {**GIVEN, **wrong}.items() for part in (f"--{option}", value)]

    result = CliRunner().invoke(app, ["kube", "manifests", "--out", str(tmp_path / "out"), *given])

    assert result.exit_code == 2
    assert f"--{name}" in result.stderr


def test_a_renewed_certificate_is_trusted_before_it_is_used(out: Path, tmp_path: Path) -> None:
    tool("openssl")
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    (programs / "kubectl").write_text(f'#!/bin/sh\necho "$*" >> {calls}\ncat </dev/null\n')
    (programs / "kubectl").chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "TAUT_CERTIFICATES": str(tmp_path / "kept")}

    first, second = (
        [subprocess.run([out / "certificate.sh"], env=environment, check=True, capture_output=True), calls.read_text()][
            1
        ]
        for _ in range(2)
    )

    patches = [line for line in second.splitlines() if line.startswith("patch mutatingwebhookconfiguration taut")]
    bundles = [base64.b64decode(text).decode() for text in re.findall(r'"value":"([^"]+)"', patches[1])]
    assert len(bundles) == WEBHOOKS
    assert bundles[0].count("BEGIN CERTIFICATE") == 2
    assert (tmp_path / "kept" / "tls.crt").read_text() in bundles[0]
    assert base64.b64decode(re.findall(r'"value":"([^"]+)"', patches[0])[0]).decode() in bundles[0]
    assert first.index("patch") < first.index("create secret tls")
