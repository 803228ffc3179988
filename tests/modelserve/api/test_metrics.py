"""Metrics: their names in one place, and the same counts over several workers."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from modelserve.api.metrics import Metrics

WORKER = """
from modelserve.calls.context import Answered
from modelserve.api.metrics import Metrics
metrics = Metrics()
metrics.answered(Answered(body=b"", counts={("prediction", "m", "1", "predicted"): 3}, reclaimed={"gpus": (4.0, 3.0)}))
metrics.ended("/v1/predictions", "POST", 200, 0.001)
metrics.serving({("m", "1"): 60.0})
metrics.ready.set(1)
print(metrics.page().decode())
"""


def names_of(page: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+) ", page, re.MULTILINE))


@pytest.mark.slow
def test_counts_of_several_workers_add_up(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}

    pages = [
        subprocess.run(
            [sys.executable, "-c", WORKER], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]

    assert 'taut_predictions_total{model="m",outcome="predicted",version="1"} 3.0' in pages[0]
    assert 'taut_predictions_total{model="m",outcome="predicted",version="1"} 6.0' in pages[1]
    assert 'taut_requests_total{method="POST",route="/v1/predictions",status="200"} 2.0' in pages[1]
    assert 'taut_given_amount_total{resource="gpus"} 6.0' in pages[1]


def test_what_was_said_of_a_former_version_is_taken_back() -> None:
    metrics = Metrics()
    metrics.serving({("m", "1"): 60.0, ("gone", "1"): 60.0})
    for name in ("m", "gone"):
        metrics.error_ratio.labels(name).set(2.5)

    metrics.serving({("m", "2"): 1.0})
    page = metrics.page().decode()

    assert 'taut_model_age_seconds{model="gone"} 0.0' in page
    assert 'taut_model_age_seconds{model="m"} 1.0' in page
    assert 'taut_prediction_error_ratio{model="m"} 0.0' in page
    assert 'taut_prediction_error_ratio{model="gone"} 0.0' in page


def test_methods_that_nobody_knows_share_a_label(call: Callable[..., TestClient]) -> None:
    client = call()

    for method in ("BREW", "WHEN"):
        client.request(method, "/healthz")

    page = client.get("/metrics").text
    assert 'method="other",route="/healthz",status="405"} 2.0' in page
    assert "BREW" not in page
