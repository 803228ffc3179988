"""The compiled statistics against the frozen numpy they replaced, to the bit; and what compiling may not do."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from features import kernels
from features.columns.feature import Lookback
from features.columns.newest import NEWEST_KEYS, STATS
from features.history import SUBMITTED_DEPTH, History
from features.online import OnlineHistory
from tests.conftest import ROOT
from tests.examples import examples
from tests.features import newest_oracle
from tests.features.job_tables import at, helios_venus, job, job_tables, philly_rebuilt, table
from tests.features.online_jobs import ended_runs, rows_built, rows_online

REAL = {"philly-rebuilt": philly_rebuilt, "helios": helios_venus}


def check_as_before(jobs: pl.DataFrame, history: History) -> None:
    """The kernel's columns are the bits of the oracle's, for every key."""
    seen = Lookback.of(jobs, history)
    begin, stop = seen.span("submitted", NEWEST_KEYS)
    now_us = np.repeat(seen.submit_us, len(NEWEST_KEYS))
    events, times = history.events["submitted"], (history.submit_us, history.start_us, history.end_us)

    found = kernels.newest_of_many(events.rows, begin, stop, now_us, *times)

    before = newest_oracle.Submissions.of(seen, NEWEST_KEYS)
    for column, (name, (stat, _)) in enumerate(newest_oracle.STATS.items()):
        expected = stat(before).astype(np.float64)
        assert np.array_equal(found[:, column], expected, equal_nan=True), name


@settings(max_examples=examples(60), deadline=None)
@given(jobs=job_tables(max_size=90))
def test_the_kernel_says_what_numpy_said(jobs: pl.DataFrame) -> None:
    check_as_before(jobs, History.of(jobs))


@pytest.mark.slow
@pytest.mark.parametrize("trace", REAL)
def test_the_kernel_says_what_numpy_said_of_real_rows(trace: str, traces: Path) -> None:
    jobs = REAL[trace](traces).sort("submit_ts", "job_id")[:20_000]

    check_as_before(jobs[5000::7], History.of(jobs))


def test_the_statistics_are_named_in_the_order_they_are_written() -> None:
    assert tuple(newest_oracle.STATS) == STATS
    assert (len(STATS), SUBMITTED_DEPTH) == (kernels.WIDTH, kernels.DEPTH)


def test_frames_and_single_rows_share_one_compiled_kernel() -> None:
    jobs = table([job(n, submit_ts=at(n), start_ts=at(n), end_ts=at(n + 9), run_s=9.0) for n in range(5)])
    history = OnlineHistory(History.of(jobs))

    for names in ("submit", "wide"):
        rows_built(names, jobs, History.of(jobs))
        rows_online(names, jobs, history)
    history.add(ended_runs(jobs.with_columns(job_id=pl.col("job_id") + "x")))
    rows_online("submit", jobs, history)

    for name in ("newest_of_many", "newest_at_places", "own_numbers", "relative_rows"):
        assert len(getattr(kernels, name).signatures) == 1, name


def test_the_tables_are_imported_without_a_compiler() -> None:
    asked = "import sys, features.tables, features.sets, features.contract; sys.exit('numba' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", asked], cwd=ROOT, check=False).returncode == 0


@pytest.mark.slow
def test_kernels_work_where_no_folder_can_be_written(tmp_path: Path) -> None:
    nowhere = tmp_path / "file"
    nowhere.write_text("no folder")
    asked = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"  # no place beside the file, none of the user's
        "from features import kernels\n"
        "import numpy as np\n"
        "ints = np.array([0])\n"
        "found = kernels.newest_of_many(ints, ints, ints + 1, ints + 9_000_000, ints, ints, ints + 5_000_000)\n"
        "assert found[0, 0] == 5.0, found"
    )
    environment = os.environ | {"HOME": str(nowhere)}

    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, env=environment, check=False)

    assert done.returncode == 0
