"""The jobs of the experiment on costs: speeds from a table, and what is drawn."""

import numpy as np
import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.studies.cost.workload import (
    SLOWEST_DUE,
    WEIGHT_USD_PER_S,
    Speeds,
    cluster,
    drawn,
    interval_s,
    least_gpu_s,
    speeds_of,
    stretch,
    submitted,
)


def throughputs() -> pl.DataFrame:
    """Return one application with 1, 2, 4 and 8 GPUs, one with 1 alone, one that a type lacks, and spread-out rows."""
    rows = [("wide", 16, gpus, kind, True, speed * gpus) for gpus in (1, 2, 4, 8) for kind, speed in SPEEDS.items()]
    rows += [("single", None, 1, kind, True, 3.0 * speed) for kind, speed in SPEEDS.items()]
    rows += [("lacking", 8, 1, "p100", True, 1.0), ("wide", 16, 2, "v100", False, 0.1)]
    columns = ["model", "batch", "gpus", "gpu_type", "consolidated", "steps_per_s"]
    return pl.DataFrame(rows, schema=columns, orient="row")


SPEEDS = {"p100": 1.0, "v100": 2.0}


@pytest.fixture
def speeds() -> Speeds:
    return speeds_of(throughputs())


def test_speeds_are_of_applications_both_types_were_measured_with_on_one_node(speeds: Speeds) -> None:
    assert speeds.names == ("wide (16)", "single")
    assert speeds.steps_per_s[0, :, 2].tolist() == [2.0, 4.0]
    assert np.isnan(speeds.steps_per_s[1, :, 2]).all()
    assert speeds.counts.sum(axis=1).tolist() == [4, 1]


def test_without_any_speeds_it_is_told() -> None:
    with pytest.raises(BadUsage, match="expected some"):
        speeds_of(throughputs().filter(pl.col("gpu_type") == "p100"))


def test_run_times_follow_from_the_drawn_one_by_the_measured_speeds(speeds: Speeds) -> None:
    run_s, asked = drawn(speeds, 500, np.random.default_rng(0))

    as_asked_s = run_s[np.arange(500), 1, asked]
    assert 60.0 * 10**1.5 <= as_asked_s.min() <= as_asked_s.max() <= 60.0 * 10**4
    assert (run_s[:, 0, 1] / run_s[:, 1, 1]).tolist() == pytest.approx([2.0] * 500)
    assert 0.6 < (asked == 1).mean() < 0.8
    assert np.isnan(run_s[asked == 1, 1, 8]).any()


def test_due_dates_and_weights_lie_where_the_source_draws_them(speeds: Speeds) -> None:
    jobs = submitted(speeds, cluster(1), load=0.5, count=200, off_by=0.1, rng=np.random.default_rng(1))

    allowed = (jobs.due_s - jobs.submit_s) / np.nanmin(jobs.run_s, axis=(1, 2))
    assert allowed.min() >= 1.0
    assert allowed.max() <= SLOWEST_DUE
    assert WEIGHT_USD_PER_S[0] <= jobs.weight_usd_per_s.min() <= jobs.weight_usd_per_s.max() <= WEIGHT_USD_PER_S[1]
    assert set(jobs.off_by.tolist()) == {0.9, 1.1}


def test_recorded_jobs_keep_their_gpus_and_run_as_long_as_recorded(speeds: Speeds) -> None:
    rows = pl.DataFrame(
        {
            "submit_s": [5.0, 6.0, 9.0, 13.0],
            "gpus": [1, 2, 4, 8],
            "run_s": [100.0, 400.0, 900.0, 50.0],
            "predicted": [50.0, 400.0, 1000.0, 100.0],
        }
    )
    off, exact = (
        stretch(rows, speeds, cluster(1), load=0.5, off_by=off_by, rng=np.random.default_rng(3))
        for off_by in (0.1, 0.0)
    )

    at = np.arange(4), 1, off.asked_gpus
    assert off.asked_gpus.tolist() == [1, 2, 4, 8]
    assert off.run_s[at].tolist() == pytest.approx([50.0, 400.0, 1000.0, 100.0])
    assert (off.run_s[at] * off.off_by).tolist() == pytest.approx([100.0, 400.0, 900.0, 50.0])
    assert exact.off_by.tolist() == [1.0] * 4
    np.testing.assert_array_equal(exact.due_s, off.due_s)
    true_s = off.run_s * off.off_by[:, None, None]
    assert least_gpu_s(true_s).sum() / (off.submit_s[-1] * 16) == pytest.approx(0.5)
    assert (np.diff(off.submit_s) / off.submit_s[-1]).tolist() == pytest.approx([1 / 8, 3 / 8, 4 / 8])


def test_loads_stretch_the_same_arrivals_of_the_same_jobs(speeds: Speeds) -> None:
    half, full = (
        submitted(speeds, cluster(1), load=load, count=50, off_by=0.0, rng=np.random.default_rng(2))
        for load in (0.5, 1.0)
    )

    assert half.submit_s == pytest.approx(2.0 * full.submit_s)
    np.testing.assert_array_equal(half.run_s, full.run_s)
    assert half.submit_s[0] == 0.0


def test_a_load_of_one_brings_as_many_gpu_seconds_as_there_are(speeds: Speeds) -> None:
    nodes = cluster(2)
    run_s, _ = drawn(speeds, 20_000, np.random.default_rng(0))

    assert least_gpu_s(run_s).mean() / interval_s(speeds, nodes, 1.0) == pytest.approx(nodes.gpus.sum())
