"""The compiled kernels: compiled once for frames and single rows, imported late, and working without a cache folder."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from features import kernels
from features.columns.newest import STATS
from features.history import SUBMITTED_DEPTH, History
from features.online import OnlineHistory
from tests.conftest import ROOT
from tests.features.job_tables import at, job, table
from tests.features.online_jobs import ended_runs, rows_built, rows_online


def test_frames_and_single_rows_share_one_compiled_kernel() -> None:
    jobs = table([job(n, submit_ts=at(n), start_ts=at(n), end_ts=at(n + 9), run_s=9.0) for n in range(5)])
    history = OnlineHistory(History.of(jobs))

    for names in ("submit", "usage"):
        rows_built(names, jobs, History.of(jobs))
        rows_online(names, jobs, history)
    history.add(ended_runs(jobs.with_columns(job_id=pl.col("job_id") + "x")))
    rows_online("submit", jobs, history)

    for name in ("newest_of_many", "newest_at_places", "own_numbers", "relative_rows"):
        assert len(getattr(kernels, name).signatures) == 1, name
    assert (len(STATS), SUBMITTED_DEPTH) == (kernels.WIDTH, kernels.DEPTH)


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
