"""The synthetic trace against what is published: every tolerance is one that a broken generator breaks."""

import math
import re
from pathlib import Path

import pytest

from pipelines.studies.study import Context
from pipelines.studies.synth.comparison import Comparison, Pair, Tables
from pipelines.studies.synth.job_comparisons import JOB_COMPARISONS
from pipelines.studies.synth.report import Config, calibration_report, run
from pipelines.studies.synth.use_comparisons import USE_COMPARISONS
from pipelines.synth.calibration import load_calibration
from pipelines.synth.pai import synthesise

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def comparisons(tables: Tables) -> dict[str, Comparison]:
    known = load_calibration()
    made = [compare(known, tables) for compare in (*JOB_COMPARISONS, *USE_COMPARISONS)]
    return {each.title: each for each in made}


def pair(comparisons: dict[str, Comparison], title: str, name: str) -> Pair:
    return next(p for p in comparisons[title].pairs if p.name == name)


@pytest.mark.parametrize("name", ["Terminated GPU tasks", "all ended tasks"])
def test_run_times_lie_within_a_third_of_the_published(comparisons: dict[str, Comparison], name: str):
    found = pair(comparisons, "Run time (s)", name)

    for published, synthetic in zip(found.published, found.synthetic, strict=True):
        assert 0.67 < synthetic / published < 1.5, found


@pytest.mark.parametrize("tag", ["ctr", "bert", "inception"])
def test_run_times_of_a_workload_follow_its_quantiles(comparisons: dict[str, Comparison], tag: str):
    found = pair(comparisons, "Run time by workload (s)", tag)

    inner = list(zip(found.published, found.synthetic, strict=True))[1:6]
    assert all(0.6 < synthetic / published < 1.7 for published, synthetic in inner), found


def test_larger_gangs_run_longer(comparisons: dict[str, Comparison]):
    medians = {p.name: p.synthetic[2] for p in comparisons["Run time by GPUs of the task (s)"].pairs}

    assert 1.5 < medians["17 to 64"] / medians["1"] < 12


@pytest.mark.parametrize(
    ("title", "tolerance"),
    [
        ("Jobs by status", 0.01),
        ("Tasks by status", 0.03),
        ("Jobs by workload tag", 0.02),
        ("Tasks by plan_gpu (% of a GPU)", 0.08),
        ("Tasks by gpu_type", 0.08),
        ("Tasks by plan_cpu (% of a core)", 0.10),
        ("Tasks by plan_mem (GB)", 0.10),
        ("Terminated GPU tasks by role", 0.04),
        ("Starts by hour of day", 0.02),
    ],
)
def test_shares_are_the_published_ones(comparisons: dict[str, Comparison], title: str, tolerance: float):
    for found in comparisons[title].pairs:
        assert found.synthetic[0] == pytest.approx(found.published[0], abs=tolerance), found


@pytest.mark.parametrize("tag", ["ctr", "bert", "inception"])
def test_use_follows_the_published_quantiles(comparisons: dict[str, Comparison], tag: str):
    pairs = [p for p in comparisons["Use by workload"].pairs if p.name.startswith(f"{tag}:")]

    assert len(pairs) == 10
    for found in pairs:
        for published, synthetic in list(zip(found.published, found.synthetic, strict=True))[1:5]:
            assert synthetic == pytest.approx(published, rel=0.45, abs=1e-3), found


def test_failed_workers_hardly_use_their_gpus(comparisons: dict[str, Comparison]):
    assert pair(comparisons, "Use of failed tasks' workers", "gpu_wrk_util").synthetic[0] < 0.05


@pytest.mark.parametrize(("name", "low", "high"), [("cpu", 0.15, 0.5), ("mem", 0.1, 0.45), ("gpu", 0.01, 0.12)])
def test_some_use_more_than_they_asked_for(comparisons: dict[str, Comparison], name: str, low: float, high: float):
    assert low < pair(comparisons, "Use over request", name).synthetic[-1] < high


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("max_mem", "avg_mem"),
        ("max_gpu_wrk_mem", "avg_gpu_wrk_mem"),
        ("write_count", "read_count"),
        ("read", "cpu_usage"),
    ],
)
def test_strong_correlations_are_there(comparisons: dict[str, Comparison], first: str, second: str):
    found = pair(comparisons, "Rank correlations", f"{first} and {second}")

    assert found.synthetic[0] == pytest.approx(found.published[0], abs=0.2)


def test_runs_of_a_group_are_alike_as_published(comparisons: dict[str, Comparison]):
    spread = {p.name: p.synthetic[0] for p in comparisons["Spread within groups"].pairs}

    assert spread["run_time_sd"] == pytest.approx(0.91, abs=0.12)
    assert 0.25 < spread["after_group_sd"] < 0.6
    assert spread["after_group_sd"] < spread["after_user_sd"] < spread["run_time_sd"]
    assert 0.15 < spread["group_cv_run_time"] < 0.6
    assert spread["group_cv_max_mem"] < 0.08
    assert spread["group_cv_gpu_wrk_util"] > 3 * spread["group_cv_max_mem"]


def test_most_groups_hold_one_job(comparisons: dict[str, Comparison]):
    assert pair(comparisons, "Groups and users", "jobs per group, p50").synthetic == (1.0,)


def test_rows_per_task_are_near_the_published(comparisons: dict[str, Comparison]):
    for found in comparisons["Rows per task"].pairs:
        assert 0.6 < found.synthetic[0] / found.published[0] < 1.6, found


def test_the_report_names_every_comparison_and_both_origins(folder: Path, comparisons: dict[str, Comparison]):
    text = calibration_report(folder)

    assert all(f"## {title}" in text for title in comparisons)
    assert "| Terminated GPU tasks | published |" in text
    assert "|  | synthetic |" in text
    assert "| nmt | chosen |" in text
    assert not math.isnan(pair(comparisons, "Run time (s)", "all ended tasks").synthetic[0])


def test_the_study_has_a_table_for_each_comparison(folder: Path, comparisons: dict[str, Comparison]):
    found = run(Config(folder=folder), Context())

    assert list(found.tables) == list(comparisons)
    assert all(rows[1]["origin"] == "synthetic" for rows in found.tables.values())


NUMBER = re.compile(r"(?<![\w.])-?\d+(?: \d{3})*(?:\.\d+)?(?:e[+-]\d+)?")


def figures(text: str) -> list[float]:
    return [float(found.replace(" ", "")) for found in NUMBER.findall(text)]


@pytest.mark.slow
def test_the_page_in_the_docs_is_the_report(tmp_path: Path):
    """The words are equal; a figure may differ in its last digit, as processors round ties differently."""
    synthesise(tmp_path, tasks=100_000, seed=0)

    found, page = calibration_report(tmp_path), (ROOT / "docs" / "synthetic.md").read_text(encoding="utf-8")

    assert NUMBER.sub("#", found) == NUMBER.sub("#", page)
    assert figures(found) == pytest.approx(figures(page), rel=0.01)
