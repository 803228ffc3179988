"""Every dialect against a real Prometheus with blocks of known series: means within 2 %, peaks exact."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipelines.connect.prometheus.measuring import Wanted, measure
from pipelines.connect.prometheus.server import open_server
from pipelines.lake.lake import Lake
from tests.pipelines.connect.prometheus import truth
from tests.pipelines.connect.prometheus.live import lake_of, prometheus, write_blocks
from tests.pipelines.connect.prometheus.truth import T0, Job

pytestmark = pytest.mark.slow

HOURS = 5.0
UNTIL_S = T0 + HOURS * 3600
MEAN_TOLERANCE = 0.02


def measured(folder: Path, url: str, jobs: list[Job], dialect: str, **wanted: object) -> tuple[Lake, dict[str, int]]:
    """Measure the jobs with a dialect; return the lake and the number of jobs by outcome."""
    lake = lake_of(folder / f"lake-{dialect}", jobs)
    with open_server(url) as server:
        found = measure(lake, server, Wanted(trace="live", cluster="main", dialect=dialect, **wanted))
    return lake, dict(found.jobs)


def check_use(lake: Lake, jobs: list[Job], *, peaks: bool = True) -> None:
    """Check that each of the jobs has a row with its true use, and that no other has one."""
    rows = {row["job_id"]: row for row in lake.table("usage", "live").collect().iter_rows(named=True)}
    assert set(rows) == {job.job_id for job in jobs}
    for job in jobs:
        row = rows[job.job_id]
        assert 0.8 <= row["coverage_frac"] <= 1.0
        for column, value in job.used.items():
            if "max" not in column:
                assert row[column] == pytest.approx(value, rel=MEAN_TOLERANCE, abs=1e-9), (job, column)
            elif peaks:
                assert row[column] == pytest.approx(value, rel=1e-12), (job, column)
        for column in ("used_cpu_cores", "mem_max_gib", "used_gpus", "gpu_mem_max_gib"):
            assert (row[column] is None) == (column not in job.used), (job, column)


@pytest.fixture(scope="module")
def dcgm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[Job]]]:
    """Run Prometheus with what dcgm-exporter with job mapping writes; yield its address and the jobs."""
    rng = np.random.default_rng(1)
    folder = tmp_path_factory.mktemp("dcgm")
    jobs = truth.schedule(rng, 3, HOURS)
    series = list(truth.dcgm(rng, jobs, UNTIL_S, naming={job.job_id: {"hpc_job": job.job_id} for job in jobs}))
    for host in ("n0", "n1"):
        series += truth.environment(rng, host, 0, UNTIL_S)[0] + truth.nodes(host, UNTIL_S)
    write_blocks(folder, series)
    with prometheus(folder) as url:
        yield url, jobs


def test_jobs_named_by_the_exporter_get_their_use(dcgm: tuple[str, list[Job]], tmp_path: Path) -> None:
    url, jobs = dcgm
    lake, counts = measured(tmp_path, url, jobs, "dcgm-job")
    assert counts["measured"] == counts["jobs"] == len(jobs)
    check_use(lake, jobs)


def test_slurm_job_exporter(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    jobs = truth.schedule(rng, 2, HOURS)
    write_blocks(tmp_path, truth.slurm_jobs(rng, jobs))
    with prometheus(tmp_path) as url:
        lake, counts = measured(tmp_path, url, jobs, "slurm-job-exporter")
    assert counts["measured"] == len(jobs)
    check_use(lake, jobs)


def test_cadvisor_finds_a_job_by_the_owner_of_its_pods(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    jobs = truth.schedule(rng, 2, HOURS)
    write_blocks(tmp_path, truth.pods(rng, jobs, restarted=jobs[1].job_id))
    with prometheus(tmp_path) as url:
        lake, counts = measured(tmp_path, url, jobs, "cadvisor")
    assert counts["measured"] == len(jobs)
    check_use(lake, jobs)
