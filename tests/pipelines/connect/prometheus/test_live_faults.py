"""What real clusters do to their exporters, against a real Prometheus: blanks, gaps, MIG, shared GPUs, pods."""

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
from tests.pipelines.connect.prometheus.truth import T0, Job, Series

pytestmark = pytest.mark.slow

UTIL, USED, ENGINE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
BLANK = 9.3e18
HOUR_S = 3600.0


def job(name: str, gpu: int, start_h: float, end_h: float, host: str = "n0") -> Job:
    return Job(job_id=name, start_s=T0 + start_h * HOUR_S, end_s=T0 + end_h * HOUR_S, gpus=((host, gpu),))


def of(job: Job, metric: str, value: float, **labels: str) -> Series:
    """Return a metric of a job's only GPU, the same all the time."""
    host, gpu = job.gpus[0]
    at = truth.scrapes(host, job.start_s, job.end_s)
    named = truth.gpu_labels(host, gpu) | {"hpc_job": job.job_id} | labels
    return Series(metric=metric, labels=named, at_s=at, values=np.full(len(at), value))


def with_blanks(series: Series, every: int) -> Series:
    values = series.values.copy()
    values[::every] = BLANK
    return replace(series, values=values)


def with_gap(series: Series, from_frac: float, to_frac: float) -> Series:
    first, last = (round(len(series.at_s) * each) for each in (from_frac, to_frac))
    kept = np.r_[0:first, last : len(series.at_s)]
    return replace(series, at_s=series.at_s[kept], values=series.values[kept])


JOBS = {
    "plain": job("11", 0, 0.1, 1.4),
    "blanks": job("12", 1, 0.1, 1.4),
    "mig": job("13", 2, 0.1, 1.4),
    "mig beside": job("14", 2, 0.1, 1.4),
    "first of two": job("15", 3, 0.1, 1.4),
    "second of two": job("16", 3, 0.5, 1.0),
    "small gap": job("17", 0, 0.1, 1.4, "n1"),
    "large gap": job("18", 1, 0.1, 1.4, "n1"),
    "later": job("19", 3, 1.5, 1.9),
}
WAITS = Job(job_id="20", start_s=T0, end_s=T0 + 1.4 * HOUR_S, gpus=(("n2", 0),))


def series() -> Iterator[Series]:
    for name, each in JOBS.items():
        if name.startswith("mig"):
            device = {"GPU_I_ID": "1" if name == "mig" else "2", "GPU_I_PROFILE": "1g.5gb"}
            yield of(each, ENGINE, 0.25 if name == "mig" else 0.75, **device)
            yield of(each, UTIL, BLANK, **device)
            yield of(each, USED, 1024.0 if name == "mig" else 3072.0, **device)
            continue
        lost = {"small gap": (0.5, 0.6), "large gap": (0.4, 0.7)}.get(name, (1.0, 1.0))
        yield with_gap(of(each, UTIL, 50.0), *lost)
        memory = with_gap(of(each, USED, 2048.0), *lost)
        yield with_blanks(memory, 10) if name == "blanks" else memory
    yield of(JOBS["plain"], "DCGM_FI_DEV_POWER_USAGE", 60.0)
    yield of(JOBS["plain"], "DCGM_FI_DEV_MEM_CLOCK", BLANK)


@pytest.fixture(scope="module")
def use(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, dict[str, int]]:
    """Measure the jobs; return the lake and the number of jobs by outcome."""
    folder = tmp_path_factory.mktemp("faults")
    write_blocks(folder, series())
    lake = lake_of(folder / "lake", [*JOBS.values(), WAITS])
    with prometheus(folder) as url, open_server(url) as server:
        found = measure(lake, server, Wanted(trace="live", cluster="main", dialect="dcgm-job"))
    return lake, dict(found.jobs)


def row(lake: Lake, name: str) -> dict[str, float]:
    rows = lake.table("usage", "live").filter(pl.col("job_id") == JOBS[name].job_id).collect()
    return rows.row(0, named=True) if rows.height else {}


def test_every_job_has_one_outcome(use: tuple[Lake, dict[str, int]]) -> None:
    counts = use[1]
    assert counts == {
        "jobs": 10,
        "measured": 6,
        "no_series": 1,
        "only_shared_gpus": 2,
        "low_coverage": 1,
        "just_ended": 0,
    }


def test_blank_samples_are_no_use_and_cost_coverage(use: tuple[Lake, dict[str, int]]) -> None:
    lake, _ = use
    for name, coverage in (("plain", 1.0), ("blanks", 0.9), ("small gap", 0.9), ("later", 1.0)):
        found = row(lake, name)
        assert found["used_gpus"] == pytest.approx(0.5, rel=1e-9)
        assert (found["gpu_mem_avg_gib"], found["gpu_mem_max_gib"]) == (pytest.approx(2.0, rel=1e-9), 2.0)
        assert found["coverage_frac"] == pytest.approx(coverage, abs=0.012)


def test_mig_devices_of_one_gpu_are_apart(use: tuple[Lake, dict[str, int]]) -> None:
    lake, _ = use
    found = [row(lake, name) for name in ("mig", "mig beside")]
    assert [each["used_gpus"] for each in found] == pytest.approx([0.25, 0.75], rel=1e-9)
    assert [each["gpu_mem_max_gib"] for each in found] == [1.0, 3.0]


def test_below_the_coverage_or_on_a_shared_gpu_nothing_is_claimed(use: tuple[Lake, dict[str, int]]) -> None:
    lake, _ = use
    assert row(lake, "large gap") == row(lake, "first of two") == row(lake, "second of two") == {}


def test_a_metric_that_a_gpu_lacks_is_null_in_its_environment(use: tuple[Lake, dict[str, int]]) -> None:
    lake, _ = use
    hours = lake.table("environment", "live").sort("ts").collect()
    assert (
        hours.select("machine", "device", "power_w", "mem_clock_mhz", "temp_c").rows()
        == [("n0", "0", pytest.approx(60.0), None, None)] * 2
    )
    drawn = hours["energy_j"].sum()
    assert drawn == pytest.approx(60.0 * 1.3 * HOUR_S, rel=0.01)


def test_pods_have_their_gpus_under_the_renamed_labels(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    jobs = truth.schedule(rng, 1, 3.0)
    cadvisor = list(truth.pods(rng, jobs))
    ours = {"namespace": "gpu-operator", "pod": "dcgm-exporter-x", "container": "exporter"}
    naming = {
        each.job_id: ours | {"exported_namespace": "ml", "exported_pod": f"train-{each.job_id}-abcde"} for each in jobs
    }
    unlabelled = jobs[0].job_id
    naming[unlabelled] = ours
    of_pods = {each.job_id: dict(each.used) for each in jobs}
    gpus = list(truth.dcgm(rng, jobs, T0 + 3 * HOUR_S, naming=naming))
    write_blocks(tmp_path, [*cadvisor, *gpus])
    lake = lake_of(tmp_path / "lake", jobs)
    with prometheus(tmp_path) as url, open_server(url) as server:
        found = measure(lake, server, Wanted(trace="live", cluster="main", dialect="cadvisor"))
    assert found.jobs["measured"] == len(jobs)
    rows = {each["job_id"]: each for each in lake.table("usage", "live").collect().iter_rows(named=True)}
    for each in jobs:
        columns = of_pods[each.job_id] if each.job_id == unlabelled else each.used
        assert all(rows[each.job_id][name] == pytest.approx(value, rel=0.02) for name, value in columns.items())
    assert rows[unlabelled]["used_gpus"] is None


def test_names_of_several_jobs_and_of_ended_jobs_on_one_gpu(tmp_path: Path) -> None:
    first, second = job("31", 0, 0.0, 1.0), job("32", 0, 0.0, 0.5)
    watts = of(first, "DCGM_FI_DEV_POWER_USAGE", 50.0)
    watts.values[: len(watts.values) // 2] = 300.0
    shared = [watts, of(second, "DCGM_FI_DEV_POWER_USAGE", 300.0)]
    drawn, energy = np.cumsum(watts.values) * 15e3, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    counted = [replace(each, metric=energy, values=drawn[: len(each.at_s)]) for each in shared]
    short, stays = job("33", 1, 0.2, 0.2 + 30 / HOUR_S), job("33", 1, 0.2, 0.4)
    memory = of(stays, USED, 5500.0)
    memory.values[:2] = 1638.4
    write_blocks(tmp_path, [*shared, *counted, memory])
    lake = lake_of(tmp_path / "lake", [first, second, short])
    with prometheus(tmp_path) as url, open_server(url) as server:
        measure(lake, server, Wanted(trace="live", cluster="main", dialect="dcgm-job"))
    [hour] = lake.table("environment", "live").collect().iter_rows(named=True)
    assert (hour["power_w"], hour["power_max_w"]) == (pytest.approx(175.0, rel=0.01), 300.0)
    assert hour["energy_j"] == pytest.approx(175.0 * HOUR_S, rel=0.01)
    [use] = lake.table("usage", "live").collect().iter_rows(named=True)
    assert (use["job_id"], use["gpu_mem_avg_gib"], use["gpu_mem_max_gib"]) == ("33", 1.6, 1.6)
