"""The alert rules: promtool accepts them, plays them through, and every metric they name is one of ours."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from modelserve.api.metrics import Metrics
from tests.deploy.tools import tool
from tests.modelserve.api.test_metrics import names_of

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus-rules.yaml"
PLAYED = DEPLOY / "prometheus-rules.test.yaml"
SUFFIXES = ("_bucket", "_count", "_sum")


def alerts() -> list[dict[str, str]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def base_name(metric: str) -> str:
    """Return the name that a series of a histogram belongs to."""
    return next((metric.removesuffix(end) for end in SUFFIXES if metric.endswith(end)), metric)


@pytest.mark.parametrize("path", [RULES, PLAYED], ids=["rules", "played"])
def test_every_metric_that_is_named_is_one_of_ours(path: Path) -> None:
    named = {base_name(name) for name in re.findall(r"\btaut_\w+", path.read_text())}

    assert named
    assert named - names_of(Metrics().page().decode()) == set()


def test_what_can_go_wrong_has_an_alert_and_says_what_to_do() -> None:
    named = {rule["alert"] for rule in alerts()}

    assert {
        "TautNotReady", "TautReloadFailing", "TautErrors", "TautSlow", "TautJobsKilled", "TautDrift",
        "TautAnswersDropped", "TautSyncStale",
    } <= named  # fmt: skip
    assert all(rule["labels"]["severity"] in {"page", "ticket"} for rule in alerts())
    assert all(rule["annotations"]["summary"] and rule["annotations"]["description"] for rule in alerts())


@pytest.mark.parametrize("arguments", [["check", "rules", RULES], ["test", "rules", PLAYED]], ids=["check", "test"])
def test_promtool_accepts_them(arguments: list[str]) -> None:
    done = subprocess.run([tool("promtool"), *arguments], cwd=DEPLOY, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout
