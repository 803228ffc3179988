"""The Kubernetes manifests: valid to the letter, locked down, and in step with the settings they set."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from modelserve.server.supervisor import END_SPARE_S
from modelserve.settings import ServeSettings
from pipelines.settings import Settings
from tests.deploy.tools import check_command, tool

BASE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((BASE / "kustomization.yaml").read_text())
DOCUMENTS = [each for name in KUSTOMIZATION["resources"] for each in yaml.safe_load_all((BASE / name).read_text())]
Spec = dict[str, Any]


def of_kind(kind: str, name: str = "taut") -> Spec:
    [found] = [each for each in DOCUMENTS if each["kind"] == kind and each["metadata"]["name"].startswith(name)]
    return found


def pod_of(document: Spec) -> Spec:
    """Return the pod of a Deployment or CronJob."""
    spec = document["spec"]
    return (spec["jobTemplate"]["spec"] if "jobTemplate" in spec else spec)["template"]["spec"]


def containers(document: Spec) -> list[Spec]:
    pod = pod_of(document)
    return [*pod["containers"], *pod.get("initContainers", ())]


def settings_of(name: str) -> dict[str, str]:
    return of_kind("ConfigMap", name)["data"]


WORKLOADS = [each for each in DOCUMENTS if each["kind"] in ("Deployment", "CronJob")]


@pytest.fixture
def pod() -> Spec:
    return pod_of(of_kind("Deployment"))


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> ServeSettings:
    """Return what the ConfigMap says."""
    for name, value in settings_of("taut-settings").items():
        monkeypatch.setenv(name, value)
    return ServeSettings()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: f"{each['kind']} {each['metadata']['name']}")
def test_it_is_valid_against_the_apis_schemas(document: Spec) -> None:
    version = kubernetes_validate.latest_version()

    # Says the version that it was held against; what is not valid raises.
    assert version.startswith(kubernetes_validate.validate(document, version, strict=True))


def test_all_files_are_resources_and_one_setting_names_the_image() -> None:
    assert {path.name for path in BASE.iterdir()} == {*KUSTOMIZATION["resources"], "kustomization.yaml"}
    [image] = KUSTOMIZATION["images"]
    assert {each["image"] for workload in WORKLOADS for each in containers(workload)} == {image["name"]}

    done = subprocess.run(
        [tool("kubectl"), "kustomize", str(BASE)], capture_output=True, text=True, timeout=60, check=True
    )

    built = list(yaml.safe_load_all(done.stdout))
    named = f"{image['newName']}:{image['newTag']}"
    assert sorted((each["kind"], each["metadata"]["name"]) for each in built) == sorted(
        (each["kind"], each["metadata"]["name"]) for each in DOCUMENTS
    )
    assert set(re.findall(r"^ *image: (.+)$", done.stdout, re.MULTILINE)) == {named}


def test_the_trainer_runs_a_command_that_exists_and_fails_only_if_training_does(tmp_path: Path) -> None:
    [trainer] = containers(of_kind("CronJob"))
    _, *words = shlex.split(trainer["command"][-1].partition("||")[0])
    check_command(words)
    taut = tmp_path / "taut"
    for code, ends in ((0, 0), (1, 1), (2, 1), (3, 0), (4, 0)):
        taut.write_text(f"#!/bin/sh\nexit {code}\n")
        taut.chmod(0o755)
        words = ["/bin/sh", *trainer["command"][1:]]
        assert subprocess.run(words, env={"PATH": str(tmp_path)}, check=False).returncode == ends
    taken = {each["configMapRef"]["name"] for each in trainer["envFrom"] if "configMapRef" in each}
    known = {f"TAUT_{name.upper()}" for name in Settings.model_fields}
    assert taken == {"taut-trainer"}
    assert {name for name in settings_of("taut-trainer") if name.startswith("TAUT_")} <= known


def test_the_service_never_sends_calls_to_the_trainer() -> None:
    labels = of_kind("CronJob")["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    assert not of_kind("Service")["spec"]["selector"].items() <= labels.items()


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each["kind"])
def test_containers_are_locked_down(workload: Spec) -> None:
    pod = pod_of(workload)
    for container in containers(workload):
        held = container["securityContext"]
        assert held["allowPrivilegeEscalation"] is False
        assert held["readOnlyRootFilesystem"] is True
        assert held["capabilities"] == {"drop": ["ALL"]}
        assert "memory" in container["resources"]["limits"]
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False


def test_what_is_set_are_settings_and_secrets_come_from_the_secret(pod: Spec, settings: ServeSettings) -> None:
    [container] = pod["containers"]
    fields = {f"TAUT_SERVE_{name.upper()}" for name in ServeSettings.model_fields}
    secret = {each["name"] for each in container["env"] if "secretKeyRef" in each.get("valueFrom", {})}

    assert set(settings_of("taut-settings")) <= fields
    assert secret == {"TAUT_SERVE_TOKENS", "TAUT_SERVE_STORE"}
    assert settings.workers == 2
    assert all(each["kind"] != "Secret" for each in DOCUMENTS)


def test_a_pod_is_given_the_time_that_draining_takes(pod: Spec, settings: ServeSettings) -> None:
    [container] = pod["containers"]
    ready = container["readinessProbe"]

    assert pod["terminationGracePeriodSeconds"] >= settings.drain_s + settings.stop_limit_s + END_SPARE_S
    assert "lifecycle" not in container  # the server itself waits: a preStop would only come on top
    assert settings.drain_s > ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"]


def test_every_place_that_is_written_to_is_a_volume(pod: Spec) -> None:
    [container] = pod["containers"]
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    variables = {each["name"]: each.get("value") for each in container["env"]}

    assert {"/tmp", "/var/lib/taut", "/var/cache/taut"} <= set(mounted)
    assert variables["PROMETHEUS_MULTIPROC_DIR"] in mounted
    assert set(mounted.values()) == {each["name"] for each in pod["volumes"]}
    assert all("emptyDir" in each for each in pod["volumes"])


def test_selectors_and_ports_meet(pod: Spec) -> None:
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    [port] = pod["containers"][0]["ports"]

    assert of_kind("Service")["spec"]["selector"] == labels
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert of_kind("Service")["spec"]["ports"][0]["targetPort"] == port["name"]
    assert port["containerPort"] == ServeSettings.model_fields["port"].default
