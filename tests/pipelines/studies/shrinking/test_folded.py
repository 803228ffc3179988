"""What held-out jobs still know of their own group: its earlier runs, by the histories they are asked over."""

from datetime import timedelta

import polars as pl
import pytest

from pipelines.simulation.job_pool import job_pool
from pipelines.studies.shrinking.folded import looking_back
from tests.pipelines.lake.canonical import T0, measured_tables


@pytest.mark.parametrize(
    ("group", "role", "ends_min", "back"),
    [
        ("g", "worker", 59, 1),
        ("g", "worker", 60, 1),
        ("g", "worker", 61, 0),
        ("g", "ps", 59, 0),
        ("other", "worker", 59, 0),
        (None, "worker", 59, 0),
    ],
)
def test_a_job_looks_back_on_what_had_ended_of_its_own_group_and_role(
    group: str | None, role: str, ends_min: int, back: int
) -> None:
    jobs, usage = measured_tables(2)
    earlier, later = T0 + timedelta(minutes=ends_min), T0 + timedelta(minutes=60)
    jobs = jobs.with_columns(
        group=pl.Series([group, "g" if group else None], dtype=pl.String),
        role=pl.Series([role, "worker"]),
        submit_ts=pl.Series([T0, later]).cast(jobs.schema["submit_ts"]),
        end_ts=pl.Series([earlier, later + timedelta(hours=1)]).cast(jobs.schema["end_ts"]),
    )
    later_alone = job_pool(jobs[1:], usage[1:])

    assert looking_back(later_alone, jobs) == back
    assert looking_back(later_alone, jobs[1:]) == 0
