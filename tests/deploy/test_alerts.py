"""Alert rules and dashboard: promtool accepts and plays the rules, and every metric named is one of ours."""

import json
import re
import subprocess
from itertools import chain
from pathlib import Path

import pytest
import yaml

from modelserve.api.metrics import Metrics
from pipelines.connect.slurm.agent import Counts
from tests.deploy.tools import tool
from tests.modelserve.api.test_metrics import names_of

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus-rules.yaml"
PLAYED = DEPLOY / "prometheus-rules.test.yaml"
DASHBOARD = DEPLOY / "grafana.json"
SUFFIXES = ("_bucket", "_count", "_sum")
ROOMS = {
    "Service": "taut_requests_total",
    "Savings": "taut_given_amount_total",
    "Kills and other harm": "taut_brakes",
    "Drift": "taut_prediction_error_ratio",
    "Agent of Slurm": "taut_agent_lost_total",
}
"""What a row of the dashboard shows at least."""


def alerts() -> list[dict[str, str]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def base_name(metric: str) -> str:
    """Return the name that a series of a histogram belongs to."""
    return next((metric.removesuffix(end) for end in SUFFIXES if metric.endswith(end)), metric)


@pytest.mark.parametrize("path", [RULES, PLAYED, DASHBOARD], ids=["rules", "played", "dashboard"])
def test_every_metric_that_is_named_is_one_of_ours(path: Path) -> None:
    named = {base_name(name) for name in re.findall(r"\btaut_\w+", path.read_text())}

    assert named
    assert named - names_of(Metrics().page().decode()) - names_of(Counts().page()) == set()


def test_the_dashboard_asks_prometheus_what_it_can_answer(tmp_path: Path) -> None:
    rows: dict[str, list[str]] = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        if panel["type"] == "row":
            asked = rows.setdefault(panel["title"], [])
        asked += [target["expr"] for target in panel.get("targets", ())]
    rules = [{"record": f"q{at}", "expr": expr} for at, expr in enumerate(chain(*rows.values()))]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    done = subprocess.run(
        [tool("promtool"), "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert {title: metric for title, metric in ROOMS.items() if metric not in str(rows[title])} == {}
    assert set(rows) == set(ROOMS)


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
