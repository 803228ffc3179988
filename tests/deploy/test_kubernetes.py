"""The Kubernetes manifest: valid to the letter, locked down, and in step with the settings it sets."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from modelserve.server.supervisor import END_SPARE_S
from modelserve.settings import ServeSettings

MANIFEST = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes.yaml"
DOCUMENTS = list(yaml.safe_load_all(MANIFEST.read_text()))
Spec = dict[str, Any]


def of_kind(kind: str) -> Spec:
    [found] = [each for each in DOCUMENTS if each["kind"] == kind]
    return found


@pytest.fixture
def pod() -> Spec:
    return of_kind("Deployment")["spec"]["template"]["spec"]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> ServeSettings:
    """Return what the ConfigMap says."""
    for name, value in of_kind("ConfigMap")["data"].items():
        monkeypatch.setenv(name, value)
    return ServeSettings()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda each: each["kind"])
def test_it_is_valid_against_the_apis_schemas(document: Spec) -> None:
    version = kubernetes_validate.latest_version()

    # Says the version that it was held against; what is not valid raises.
    assert version.startswith(kubernetes_validate.validate(document, version, strict=True))


def test_containers_are_locked_down(pod: Spec) -> None:
    for container in [*pod["containers"], *pod["initContainers"]]:
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

    assert set(of_kind("ConfigMap")["data"]) <= fields
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
