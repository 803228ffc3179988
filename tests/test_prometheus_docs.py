"""The page on measuring from Prometheus: carried out from nothing to measured use; it names every dialect."""

import os
import signal
import time
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

from pipelines.connect.prometheus.dialects import DIALECTS
from pipelines.connect.prometheus.folding import LEAST_COVERAGE
from pipelines.connect.prometheus.measuring import SKEW_S
from pipelines.simulation.energy.power_file import power_file
from tests.benchmarks.serving.processes import free_port
from tests.deploy.tools import tool
from tests.own_cluster_examples import wrong_answers

PAGE = Path(__file__).resolve().parents[1] / "docs" / "prometheus.md"
TEXT = PAGE.read_text(encoding="utf-8")
LIMIT_S = 15 * 60


def end(folder: Path) -> None:
    """End the Prometheus that the page starts, if it still runs."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError):
        os.kill(int((folder / "prometheus.pid").read_text()), signal.SIGTERM)


@pytest.mark.slow
def test_every_step_gives_the_answer_shown_within_a_quarter_of_an_hour(tmp_path: Path) -> None:
    for name in ("prometheus", "promtool"):
        tool(name)
    begin = time.monotonic()
    try:
        wrong = wrong_answers(TEXT.replace("127.0.0.1:9090", f"127.0.0.1:{free_port()}"), tmp_path)
    finally:
        end(tmp_path)
    assert wrong == [], "write the answers anew with `python -m tests.own_cluster_examples docs/prometheus.md`"
    assert time.monotonic() - begin < LIMIT_S


def test_the_power_file_shown_is_one(tmp_path: Path) -> None:
    shown = TEXT.partition("```toml\nsource")[2].partition("```")[0]
    (tmp_path / "power.toml").write_text(f"source{shown}")
    table = power_file(tmp_path / "power.toml")
    assert (table.gpus["T4"].idle_w, table.gpus["T4"].full_w) == (12.0, 67.0)
    assert tomllib.loads(f"source{shown}")["source"] == table.source


def test_every_dialect_and_bound_is_named() -> None:
    assert all(f"| `{name}` |" in TEXT for name in DIALECTS)
    assert f"Below {LEAST_COVERAGE}" in TEXT
    assert f"within {SKEW_S:g} s" in TEXT
