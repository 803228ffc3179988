"""Every dialect against a real Prometheus with blocks of known series: means within 2 %, peaks exact."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
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
HOUR_S = 3600.0


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
    folder = tmp_path_factory.mktemp("dcgm")
    rng = np.random.default_rng(4)
    series = [each for host in ("n0", "n1") for each in truth.environment(rng, host, 0, UNTIL_S)[0]]
    series += [each for host in ("n0", "n1") for each in truth.nodes(host, UNTIL_S)]
    jobs = truth.schedule(rng, 3, HOURS)
    series += truth.dcgm(rng, jobs, UNTIL_S, naming={job.job_id: {"hpc_job": job.job_id} for job in jobs})
    write_blocks(folder, series)
    with prometheus(folder) as url:
        yield url, jobs


def test_jobs_named_by_the_exporter_get_their_use(dcgm: tuple[str, list[Job]], tmp_path: Path) -> None:
    url, jobs = dcgm
    lake, counts = measured(tmp_path, url, jobs, "dcgm-job")
    assert counts["measured"] == counts["jobs"] == len(jobs)
    check_use(lake, jobs)


@pytest.mark.parametrize("ahead_s", [0.0, 4.0])
def test_jobs_are_joined_by_the_gpus_they_held(dcgm: tuple[str, list[Job]], tmp_path: Path, ahead_s: float) -> None:
    url, exact = dcgm
    jobs = [replace(job, start_s=job.start_s + ahead_s, end_s=job.end_s + ahead_s) for job in exact]
    lines = [f"{job.job_id},{host},{gpu}" for job in jobs for host, gpu in job.gpus]
    (tmp_path / "held.csv").write_text("\n".join(["job_id,machine,gpu", *lines]) + "\n")
    lake, counts = measured(tmp_path, url, jobs, "dcgm-node", held=tmp_path / "held.csv")
    assert counts["measured"] == len(jobs)
    check_use(lake, jobs)


def test_machines_and_the_environment_of_gpus(dcgm: tuple[str, list[Job]], tmp_path: Path) -> None:
    url, jobs = dcgm
    lake, _ = measured(tmp_path, url, jobs, "dcgm-job")
    machines = lake.table("machine_usage", "live").collect()
    assert set(machines["machine"]) == {"n0", "n1", "n2"}
    nodes = machines.filter(pl.col("machine") != "n2")
    assert nodes["cpu_frac"].to_list() == pytest.approx([0.3] * nodes.height, rel=MEAN_TOLERANCE)
    assert nodes["mem_frac"].to_list() == pytest.approx([0.6] * nodes.height, rel=1e-9)
    gpus = sum(job.used["used_gpus"] * (job.end_s - job.start_s) for job in jobs) / (HOURS * HOUR_S * 12)
    assert float(str(machines["gpu_frac"].mean())) == pytest.approx(gpus, rel=MEAN_TOLERANCE)
    hours = lake.table("environment", "live").sort("machine", "device", "ts").collect()
    assert hours.height == 2 * HOURS
    rng = np.random.default_rng(4)
    for host in ("n0", "n1"):
        series, joules = truth.environment(rng, host, 0, UNTIL_S)
        rows = hours.filter(pl.col("machine") == host)
        assert rows["energy_j"].to_list() == pytest.approx(joules.tolist(), rel=MEAN_TOLERANCE)
        watts = {each.metric: each.values for each in series}["DCGM_FI_DEV_POWER_USAGE"]
        assert rows["power_max_w"].max() == watts.max()
        assert float(str(rows["power_w"].mean())) == pytest.approx(watts.mean(), rel=MEAN_TOLERANCE)
        assert rows["gpu_type"].unique().to_list() == ["Tesla T4"]
        assert rows["xid_code"].to_list() == [0, 31, 31, 31, 31]
        assert rows["xid_changes"].to_list() == [0, 1, 0, 0, 0]
        assert rows["sm_clock_mhz"].to_list() == pytest.approx([1590.0] * 5)
        assert rows["coverage_frac"].to_list() == pytest.approx([1.0] * 5, abs=0.01)


def test_slurm_job_exporter(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    jobs = truth.schedule(rng, 2, HOURS)
    write_blocks(tmp_path, truth.slurm_jobs(rng, jobs))
    with prometheus(tmp_path) as url:
        lake, counts = measured(tmp_path, url, jobs, "slurm-job-exporter")
    assert counts["measured"] == len(jobs)
    check_use(lake, jobs)


def test_cadvisor_finds_a_job_by_the_owner_or_labels_of_its_pods(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    jobs = truth.schedule(rng, 2, HOURS)
    write_blocks(tmp_path, truth.pods(rng, jobs, restarted=jobs[1].job_id))
    with prometheus(tmp_path) as url:
        lake, counts = measured(tmp_path, url, jobs, "cadvisor")
    assert counts["measured"] == len(jobs)
    check_use(lake, jobs)
