"""Percentile rules over a group's earlier runs: by hand, and never from the future."""

import math
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.studies.shrinking.percentiles import RULES, Rule, past_use, weighted_percentile
from tests.pipelines.lake.canonical import T0

PLAIN = Rule(what="", cpu_level=0.5, mem_level=1.0, margin=0.0)


def frame(*runs: tuple[str | None, int, int, float, float]) -> pl.DataFrame:
    """Return runs as (group, submitted and ended in hours, CPU, peak memory)."""
    rows = [
        {
            "trace": "toy",
            "cluster": "c",
            "group": group,
            "role": "worker",
            "submit_ts": T0 + timedelta(hours=submitted),
            "end_ts": T0 + timedelta(hours=ended),
            "used_cpu_cores": cpu,
            "mem_max_gib": mem,
            "used_gpus": 0.1,
            "gpu_mem_max_gib": 1.0,
        }
        for group, submitted, ended, cpu, mem in runs
    ]
    return pl.DataFrame(rows, schema_overrides={"group": pl.String})


def test_a_job_is_sized_by_the_runs_of_its_group_that_had_ended() -> None:
    jobs = frame(("a", 0, 1, 1.0, 5.0), ("a", 1, 2, 3.0, 4.0), ("a", 3, 4, 9.0, 9.0), ("b", 5, 6, 7.0, 7.0))

    found = past_use(jobs, PLAIN)

    # The first had no run before; the second was submitted at the very end of the first, which counts as not yet ended.
    assert found.runs.tolist() == [0, 0, 2, 0]
    assert found.cpu_cores[2] == 1.0
    assert found.mem_gib[2] == 5.0
    assert np.isnan(found.cpu_cores[[0, 1, 3]]).all()


def test_a_job_without_a_group_is_unknown() -> None:
    found = past_use(frame((None, 0, 1, 1.0, 5.0), (None, 2, 3, 1.0, 5.0)), PLAIN)

    assert np.isnan(found.cpu_cores).all()
    assert not found.runs.any()


def test_old_runs_lose_their_weight_and_the_peak_does_not() -> None:
    autopilot = RULES["autopilot"]
    jobs = frame(("a", 0, 1, 9.0, 9.0), ("a", 100, 101, 1.0, 1.0), ("a", 101, 103, 2.0, 2.0), ("a", 104, 105, 0.0, 0.0))

    found = past_use(jobs, autopilot)

    assert found.cpu_cores[3] == 2.0
    assert found.mem_gib[3] == 9.0


@pytest.mark.parametrize(("level", "expected"), [(0.5, 2.0), (0.9, 3.0), (1.0, 3.0), (1 / 3, 1.0)])
def test_a_percentile_is_a_value_that_was_seen(level: float, expected: float) -> None:
    assert weighted_percentile(np.array([3.0, 1.0, 2.0]), np.ones(3), level) == expected


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=30), st.floats(0.05, 1.0))
def test_at_least_the_level_lies_at_or_below(values: list[float], level: float) -> None:
    seen = np.array(values)

    found = weighted_percentile(seen, np.ones(len(seen)), level)

    assert (seen <= found).mean() >= level - 1e-9
    assert (seen < found).mean() < level


def test_cutting_off_the_future_changes_no_size() -> None:
    rng = np.random.default_rng(5)
    runs = [("ab"[at % 2], at, at + int(rng.integers(1, 9)), float(rng.uniform(0, 5)), 1.0) for at in range(30)]
    whole = past_use(frame(*runs), RULES["vpa"])

    for known in (10, 20):
        early = past_use(frame(*runs[:known]), RULES["vpa"])
        np.testing.assert_array_equal(early.cpu_cores, whole.cpu_cores[:known])
        np.testing.assert_array_equal(early.runs, whole.runs[:known])


def test_the_rules_are_those_that_were_published() -> None:
    assert (RULES["vpa"].cpu_level, RULES["vpa"].margin) == (0.9, 0.15)
    assert math.isinf(RULES["vpa"].cpu_half_life_s)
    assert (RULES["autopilot"].cpu_half_life_s, RULES["autopilot"].mem_half_life_s) == (12 * 3600, 48 * 3600)
