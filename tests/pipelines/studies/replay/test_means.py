"""Means of what had ended before, against the plainest loop over all earlier jobs."""

from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features.tables import Jobs
from pipelines.models.baselines import UNINFORMED_S, Key
from pipelines.studies.replay.sizes import MEANS, mean_sizes
from tests.pipelines.lake.canonical import T0, canonical, job_row


def jobs_of(rows: list[tuple[int, float, str | None, str | None, float]]) -> pl.DataFrame:
    """Return jobs of (minute, run in minutes, user, VC, GPUs)."""
    made = []
    for i, (minute, run_min, user, vc, gpus) in enumerate(rows):
        submit = T0 + timedelta(minutes=minute)
        run = timedelta(minutes=run_min)
        times = {"submit_ts": submit, "start_ts": submit, "end_ts": submit + run, "run_s": run.total_seconds()}
        made.append(job_row(i, user=user, vc=vc, req_gpus=gpus, **times))
    return canonical(made, Jobs)


def looked_up(jobs: pl.DataFrame, keys: tuple[Key, ...]) -> list[float]:
    rows = jobs.with_columns(gpus=pl.col("req_gpus") * pl.col("instances")).to_dicts()
    answers = []
    for job in rows:
        answer = UNINFORMED_S[0.5]
        for key in keys:
            like = [r for r in rows if all(r[c] is not None and r[c] == job[c] for c in key)]
            ended = [r["run_s"] for r in like if r["end_ts"] < job["submit_ts"]]
            if ended:
                answer = sum(ended) / len(ended)
                break
        answers.append(answer)
    return answers


ROWS = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.integers(0, 20).map(float),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, "v", "w"]),
        st.sampled_from([1.0, 8.0]),
    ),
    min_size=1,
    max_size=12,
)


@pytest.mark.parametrize("name", MEANS)
@given(rows=ROWS)
def test_means_are_of_the_first_key_with_jobs_that_ended_before(
    name: str, rows: list[tuple[int, float, str | None, str | None, float]]
) -> None:
    jobs = jobs_of(rows)

    sizes = mean_sizes(jobs, MEANS[name].keys)

    assert sizes.tolist() == pytest.approx(looked_up(jobs, MEANS[name].keys))


def test_a_job_that_ends_as_another_comes_is_not_yet_known() -> None:
    jobs = jobs_of([(0, 10.0, "a", "v", 1.0), (10, 5.0, "a", "v", 1.0), (11, 5.0, "a", "v", 1.0)])

    sizes = mean_sizes(jobs, MEANS["user_mean"].keys)

    assert sizes.tolist() == [UNINFORMED_S[0.5], UNINFORMED_S[0.5], 600.0]
