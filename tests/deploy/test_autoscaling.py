"""Autoscaling: the metric that scales the deployment is served by the adapter's rule from a series of the service."""

import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.tools import tool

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PARTS = yaml.safe_load((DEPLOY / "autoscaling.yaml").read_text())
Spec = dict[str, Any]


@pytest.fixture
def documents() -> dict[str, Spec]:
    return {each["kind"]: each for each in yaml.safe_load_all((DEPLOY / "kubernetes" / "service.yaml").read_text())}


@pytest.fixture
def rule() -> Spec:
    [found] = yaml.safe_load(PARTS["data"]["adapter.yaml"])["rules"]
    return found


def asked_of_prometheus(rule: Spec) -> str:
    """Return the adapter's query for all pods of the namespace, as the adapter fills in its template."""
    filled = {"<<.Series>>": rule["seriesQuery"].partition("{")[0], "<<.GroupBy>>": "pod"}
    filled["<<.LabelMatchers>>"] = 'namespace="taut",pod=~"taut-1|taut-2"'
    query = rule["metricsQuery"]
    for hole, text in filled.items():
        assert hole in query
        query = query.replace(hole, text)
    return query


def test_the_file_is_valid_against_the_schema() -> None:
    version = kubernetes_validate.latest_version()
    assert version.startswith(kubernetes_validate.validate(PARTS, version, strict=True))


def test_the_autoscaler_scales_the_deployment_by_the_metric_that_the_adapter_serves(
    documents: dict[str, Spec], rule: Spec
) -> None:
    scaler, deployment = documents["HorizontalPodAutoscaler"]["spec"], documents["Deployment"]
    [metric] = scaler["metrics"]
    target = {key: deployment[key] for key in ("apiVersion", "kind")} | {"name": deployment["metadata"]["name"]}

    assert documents["HorizontalPodAutoscaler"]["apiVersion"] == "autoscaling/v2"
    assert scaler["scaleTargetRef"] == target
    assert scaler["minReplicas"] == 2
    assert scaler["maxReplicas"] > scaler["minReplicas"] > documents["PodDisruptionBudget"]["spec"]["minAvailable"]
    assert "replicas" not in deployment["spec"]  # applying the file again would set them back
    assert metric["pods"]["metric"]["name"] == rule["name"]["as"]
    assert re.match(rule["name"]["matches"], rule["seriesQuery"].partition("{")[0])


def test_the_metric_is_the_number_of_calls_being_answered(rule: Spec, tmp_path: Path) -> None:
    series = 'taut_prediction_duration_seconds_sum{namespace="%s",pod="%s",endpoint="%s"}'
    played = {
        "rule_files": [],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [
                    {"series": series % ("taut", "taut-1", "/v1/predictions"), "values": "0+15x20"},
                    {"series": series % ("taut", "taut-1", "/v1/recommendations"), "values": "0+7.5x20"},
                    {"series": series % ("taut", "taut-2", "/v1/predictions"), "values": "0+3x20"},
                    {"series": series % ("other", "taut-1", "/v1/predictions"), "values": "0+90x20"},
                ],
                "promql_expr_test": [
                    {
                        "expr": asked_of_prometheus(rule),
                        "eval_time": "5m",
                        "exp_samples": [
                            {"labels": '{pod="taut-1"}', "value": 1.5},
                            {"labels": '{pod="taut-2"}', "value": 0.2},
                        ],
                    }
                ],
            }
        ],
    }
    (tmp_path / "played.yaml").write_text(yaml.safe_dump(played))

    done = subprocess.run(
        [tool("promtool"), "test", "rules", "played.yaml"], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_accepts_the_scrape_job_and_its_labels_are_those_of_the_rule(rule: Spec, tmp_path: Path) -> None:
    config = yaml.safe_load(PARTS["data"]["scrape.yaml"])
    [job] = config["scrape_configs"]
    # Debian builds promtool without the discovery of Kubernetes.
    found = job.pop("kubernetes_sd_configs")
    (tmp_path / "scrape.yaml").write_text(yaml.safe_dump(config))

    done = subprocess.run(
        [tool("promtool"), "check", "config", "--syntax-only", "scrape.yaml"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert found == [{"role": "pod", "namespaces": {"names": ["taut"]}}]
    made = {each["target_label"] for each in job["relabel_configs"] if "target_label" in each}
    assert made == set(rule["resources"]["overrides"])
