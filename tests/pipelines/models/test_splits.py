"""Splits: what is judged is never learnt from, and a cut is a cut on labels."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import TrainingError
from pipelines.models import splits

T0 = datetime(2020, 7, 1, tzinfo=UTC)


def jobs_of(rows: list[tuple[float, float | None]], groups: list[str | None] | None = None) -> pl.DataFrame:
    """Return jobs of (submission hour, end hour or None while running)."""
    frame = pl.DataFrame(
        {
            "job_id": [str(i) for i in range(len(rows))],
            "group": groups if groups else [None] * len(rows),
            "submit_ts": [T0 + timedelta(hours=s) for s, _ in rows],
            "end_ts": [None if e is None else T0 + timedelta(hours=e) for _, e in rows],
            "run_s": [None if e is None else (e - s) * 3600 for s, e in rows],
            "status": ["running" if e is None else "completed" for _, e in rows],
        },
        schema_overrides={"group": pl.String, "end_ts": pl.Datetime("us", "UTC"), "run_s": pl.Float64},
    )
    return frame.with_columns(user=pl.lit(None, pl.String), vc=pl.lit(None, pl.String))


def test_a_job_is_learnt_from_only_if_it_ended_before_the_cut() -> None:
    jobs = jobs_of([(0, 5), (1, 10), (2, 11), (3, None), (9, 9.5), (10, 12), (12, None)])

    split = splits.time_later(jobs, until=T0 + timedelta(hours=10))

    assert sorted(split.train) == [0, 4]
    assert split.censored.tolist() == [1, 2, 3]
    assert split.test.tolist() == [5]


def test_judged_rows_may_start_after_the_cut_and_never_before_it() -> None:
    jobs = jobs_of([(0, 5), (11, 12), (21, 22)])

    split = splits.time_later(jobs, until=T0 + timedelta(hours=10), since=T0 + timedelta(hours=20))

    assert split.test.tolist() == [2]
    with pytest.raises(TrainingError, match="before the cut"):
        splits.time_later(jobs, until=T0 + timedelta(hours=10), since=T0)


spans = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 50)), min_size=4, max_size=60)


@given(spans, st.floats(10, 90))
def test_time_later_learns_nothing_from_after_the_cut(rows: list[tuple[float, float]], cut_h: float) -> None:
    jobs = jobs_of([(s, s + d) for s, d in rows])
    until = T0 + timedelta(hours=cut_h)

    split = splits.time_later(jobs, until=until)

    ends, submits = jobs["end_ts"].to_list(), jobs["submit_ts"].to_list()
    assert all(ends[i] < until for i in split.train)
    assert all(submits[i] >= until for i in split.test)
    assert all(submits[i] < submits[j] for i in split.fit for j in split.stop)
    assert len(split.train) + len(split.test) + len(split.censored) == jobs.height


@given(st.lists(st.integers(0, 12), min_size=30, max_size=120), st.integers(0, 5))
def test_folds_share_no_group_and_judge_every_row_once(groups: list[int], seed: int) -> None:
    if len(set(groups)) < 3:
        groups = [*groups, 20, 21, 22]
    jobs = jobs_of([(i, i + 1) for i in range(len(groups))], [f"g{g}" for g in groups])

    folds = splits.group_folds(jobs, folds=3, seed=seed)

    for split in folds:
        sets = [{groups[i] for i in part} for part in (split.fit, split.stop, split.test)]
        assert not sets[2] & (sets[0] | sets[1])
        assert not sets[0] & sets[1]
        assert len(split.fit) > 0
    judged = np.concatenate([s.test for s in folds])
    assert sorted(judged) == list(range(jobs.height))


def test_more_folds_than_groups_is_refused() -> None:
    jobs = jobs_of([(0, 1), (1, 2)], ["a", "a"])

    with pytest.raises(TrainingError, match="1 groups of jobs for 3 folds"):
        splits.group_folds(jobs, folds=3, seed=0)


def test_another_seed_deals_other_folds() -> None:
    jobs = jobs_of([(i, i + 1) for i in range(60)], [f"g{i % 20}" for i in range(60)])

    first, second = (splits.group_folds(jobs, folds=3, seed=s)[0].test.tolist() for s in (0, 1))

    assert first != second
