"""Speeds of own jobs from the history of their groups: what is offered, what is left as stated, what is refused."""

import numpy as np
import polars as pl
import pytest

from modelserve.contract.plans import PlanJob
from pipelines.connect.plan_inputs import with_speeds
from pipelines.errors import BadUsage


def history(runs: int = 200) -> pl.DataFrame:
    """Return runs of group g with 1, 2 and 4 GPUs, twice as fast on V100, and single short or failed runs of others."""
    rng = np.random.default_rng(0)
    gpus, kind = rng.choice([1, 2, 4], runs), rng.choice(["T4", "V100"], runs)
    run_s = 7200.0 / gpus**0.8 / np.where(kind == "V100", 2.0, 1.0)
    true = {
        "group": "g",
        "gpu_type": kind,
        "status": "completed",
        "run_s": run_s,
        "req_gpus": gpus * 0.5,
        "instances": 2,
    }
    others = {"group": ["h", "i"], "gpu_type": ["T4"] * 2, "status": ["failed", "completed"], "run_s": [600.0, 30.0]}
    odd = pl.DataFrame({**others, "req_gpus": [1.0, 1.0], "instances": [1, 1]})
    return pl.concat([pl.DataFrame(true), odd], how="vertical_relaxed")


def job(**said: object) -> PlanJob:
    asked = {
        "job_id": "a",
        "task_type": "other",
        "request": {"gpus": 2},
        "run_s": 3600.0,
        "group": "g",
        "gpu_type": "T4",
    }
    return PlanJob.model_validate({**asked, **said})


def test_counts_and_types_of_the_group_get_their_speeds() -> None:
    [found], [note] = with_speeds([job()], history())

    assert found.speedup == pytest.approx({1: 2.0**-0.8, 4: 2.0**0.8}, rel=0.08)
    assert found.speed_on == pytest.approx({"V100": 2.0}, rel=0.1)
    assert note.startswith("a: 200 runs of its group; speed grows as GPUs ^ 0.7")


def test_what_a_job_states_stays_and_unknown_groups_get_nothing() -> None:
    jobs = [job(speedup={8: 3.0}), job(job_id="b", group="h"), job(job_id="c", group=None)]
    stated, *unknown = with_speeds(jobs, history())[0]

    assert stated.speedup == {8: 3.0}
    assert set(stated.speed_on) == {"V100"}
    assert unknown == jobs[1:]


def test_a_group_that_gains_nothing_is_offered_no_other_count() -> None:
    flat = history().with_columns(run_s=pl.lit(3600.0))

    assert with_speeds([job()], flat)[0][0].speedup == {}


def test_a_history_without_groups_is_refused() -> None:
    with pytest.raises(BadUsage, match="no completed run of a minute with a group"):
        with_speeds([job()], history().with_columns(group=pl.lit(None, dtype=pl.String)))
