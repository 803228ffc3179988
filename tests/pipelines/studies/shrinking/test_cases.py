"""What studies vary: populations, loads and seeds, each with its arrivals."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.simulation.job_pool import job_pool
from pipelines.studies.shrinking.cases import LOADS_PER_H, cases_of, populations
from tests.pipelines.studies.shrinking.tiny import pool, tables


def test_gnn_and_devices_make_the_populations() -> None:
    jobs = pool()

    found = populations(jobs)

    assert set(found) == {("with", "all"), ("without", "all"), ("with", "known"), ("without", "known")}
    assert len(found["with", "all"]) == 40
    assert len(found["without", "all"]) == 30
    assert all(jobs.known[row] for row in found["with", "known"])


def test_a_population_without_gnn_is_not_drawn_twice() -> None:
    frame, usage = tables()
    unknown = frame.with_columns(
        gpu_type=pl.when(pl.col("task_type") == "gnn").then(pl.lit("MISC")).otherwise("gpu_type")
    )

    found = populations(job_pool(unknown, usage))

    assert set(found) == {("with", "all"), ("without", "all"), ("without", "known")}


def test_the_mix_is_drawn_and_gnn_leaves_its_share_to_the_others() -> None:
    jobs = pool()
    kinds = [entry.job.task_type for entry in jobs.jobs]
    cases = cases_of(jobs, seeds=[1], loads_per_h=[2000.0])

    drawn = {case.gnn: Counter(kinds[pick] for pick in case.arrivals.picks) for case in cases if case.devices == "all"}

    total = drawn["with"].total()
    assert {kind: count / total for kind, count in drawn["with"].items()} == pytest.approx(
        {"cv": 0.05, "nlp": 0.15, "gnn": 0.15, "ctr": 0.65}, abs=0.01
    )
    assert "gnn" not in drawn["without"]
    assert drawn["without"]["ctr"] / drawn["without"].total() == pytest.approx(65 / 85, abs=0.01)


def test_a_seed_draws_the_same_again_and_another_one_not() -> None:
    first, again, other = (cases_of(pool(), seeds=[seed])[0].arrivals for seed in (4, 4, 5))

    np.testing.assert_array_equal(first.at_s, again.at_s)
    np.testing.assert_array_equal(first.picks, again.picks)
    assert len(first.at_s) != len(other.at_s) or (first.at_s != other.at_s).any()


def test_every_load_and_seed_is_a_case_of_every_population() -> None:
    cases = cases_of(pool(), seeds=[0, 1], loads_per_h=LOADS_PER_H)

    assert len(cases) == 4 * len(LOADS_PER_H) * 2
    assert len({(case.rate_per_h, case.gnn, case.devices, case.seed) for case in cases}) == len(cases)
    for case in cases:
        assert case.arrivals.seed == case.seed


def test_a_pool_without_a_kind_of_the_mixes_is_refused() -> None:
    jobs, usage = tables()

    with pytest.raises(BadUsage, match="holds no ctr job"):
        cases_of(job_pool(jobs.filter(pl.col("task_type") != "ctr"), usage), seeds=[0])
