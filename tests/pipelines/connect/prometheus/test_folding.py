"""Readings to rows of `usage`: coverage, shared GPUs, several machines and instances, pods and their owners."""

import polars as pl
import pytest

from pipelines.connect.prometheus.folding import Folded, fold
from pipelines.connect.prometheus.readings import READING

HOUR_S = 3600.0


def job(at: int, start_h: float = 0.0, end_h: float = 1.0, **fields: object) -> dict[str, object]:
    """Return a job with the id `j<at>` on one GPU."""
    span = {"start_s": start_h * HOUR_S, "end_s": end_h * HOUR_S, "elapsed_s": (end_h - start_h) * HOUR_S}
    return {"at": at, "job_id": f"j{at}", "role": "job", **span, "instances": 1, "req_gpus": 1.0, "nodes": 1} | fields


def reading(name: str, mean: float, *, hour: int = 0, seconds: float = HOUR_S, **fields: object) -> dict[str, object]:
    """Return a reading of a job on GPU 0 of machine n1."""
    place = {"measure": "gpus", "job": name, "place": "n1", "device": "0", "kind": "T4"}
    return place | {"total": mean * seconds, "seconds": seconds, "peak": 2 * mean, "hour_s": hour * HOUR_S} | fields


def folded(jobs: list[dict[str, object]], readings: list[dict[str, object]], **how: object) -> Folded:
    """Return the use of the jobs."""
    schema = pl.Schema({**READING, "hour_s": pl.Float64})
    return fold(pl.DataFrame(readings, schema=schema), pl.DataFrame(jobs), **({"by_pod": False} | how))


def test_hours_add_up_by_their_time() -> None:
    found = folded([job(0, 0.0, 1.5)], [reading("j0", 0.2), reading("j0", 0.8, hour=1, seconds=1800.0)])
    row = found.usage.row(0, named=True)
    assert row["used_gpus"] == pytest.approx(0.4)
    assert row["coverage_frac"] == 1.0
    assert row["instances_measured"] == 1


@pytest.mark.parametrize(("seconds", "rows"), [(2881.0, 1), (2879.0, 0)])
def test_below_four_fifths_of_the_run_there_is_no_row(seconds: float, rows: int) -> None:
    found = folded([job(0)], [reading("j0", 0.5, seconds=seconds)])
    assert found.usage.height == rows
    assert found.counts["low_coverage"] == 1 - rows
    assert found.counts["measured"] == rows


def test_a_measure_below_four_fifths_is_null_beside_the_others() -> None:
    memory = reading("j0", 3.0, measure="mem_gib", device="", seconds=1000.0)
    row = folded([job(0)], [reading("j0", 0.5), memory]).usage.row(0, named=True)
    assert (row["used_gpus"], row["mem_avg_gib"], row["mem_max_gib"]) == (0.5, None, None)


def test_gpus_of_a_job_add_up_and_a_missing_one_is_not_covered() -> None:
    both = [reading("j0", 0.5), reading("j0", 0.25, device="1")]
    assert folded([job(0, req_gpus=2.0)], both).usage["used_gpus"].to_list() == [0.75]
    found = folded([job(0, req_gpus=2.0)], both[:1])
    assert (found.usage.height, found.counts["low_coverage"]) == (0, 1)


def test_coverage_is_that_of_the_gpu_covered_least() -> None:
    found = folded([job(0, req_gpus=2.0)], [reading("j0", 0.5), reading("j0", 0.5, device="1", seconds=3000.0)])
    assert found.usage["coverage_frac"].to_list() == [3000.0 / 3600.0]


def test_use_is_per_instance_and_the_peak_of_the_largest_machine() -> None:
    rows = [reading("j0", mean, measure="gpu_mem_gib", place=place) for place, mean in (("n1", 4.0), ("n2", 6.0))]
    row = folded([job(0, instances=2)], rows).usage.row(0, named=True)
    assert (row["gpu_mem_avg_gib"], row["gpu_mem_max_gib"], row["instances_measured"]) == (5.0, 12.0, 2)


def test_jobs_on_one_gpu_at_the_same_time_have_no_use_of_gpus() -> None:
    jobs = [job(0), job(1, 0.5, 1.0), job(2, 1.0, 2.0)]
    cpu = reading("j0", 2.0, measure="cpu_cores", device="")
    found = folded(jobs, [reading("j0", 0.9), cpu, reading("j1", 0.9, seconds=1800.0), reading("j2", 0.3, hour=1)])
    rows = {row["job_id"]: row for row in found.usage.iter_rows(named=True)}
    assert set(rows) == {"j0", "j2"}
    assert (rows["j0"]["used_gpus"], rows["j0"]["used_cpu_cores"], rows["j2"]["used_gpus"]) == (None, 2.0, 0.3)
    assert found.counts["only_shared_gpus"] == 1


def test_clocks_that_differ_by_seconds_do_not_make_gpus_shared() -> None:
    second = job(1, 1.0, 2.0) | {"start_s": HOUR_S - 30.0}
    found = folded([job(0), second], [reading("j0", 0.9), reading("j1", 0.5, hour=1)])
    assert found.counts["measured"] == 2


def test_the_id_of_another_job_at_another_time_is_not_this_job() -> None:
    found = folded([job(0, 100.0, 101.0)], [reading("j0", 0.9)])
    assert found.counts == {"jobs": 1, "measured": 0, "no_series": 1, "only_shared_gpus": 0, "low_coverage": 0}


def test_runs_of_a_requeued_job_are_apart_and_an_hour_of_both_belongs_to_neither() -> None:
    runs = [job(0, 0.0, 4.5, job_id="68@10"), job(1, 4.6, 9.0, job_id="68@20")]
    rows = [reading("68", 0.2 if hour < 4 else 0.9, hour=hour) for hour in range(9)]
    found = folded(runs, rows).usage
    assert found.select("job_id", "used_gpus").rows() == [
        ("68@10", pytest.approx(0.2)),
        ("68@20", pytest.approx(0.9)),
    ]
    assert found["coverage_frac"].to_list() == pytest.approx([4 / 4.5, 4 / 4.4])


def pod(name: str, mean: float, **fields: object) -> dict[str, object]:
    return reading(f"ml/{name}", mean, measure="cpu_cores", place="", device="") | fields


@pytest.mark.parametrize(("job_id", "pods"), [("ml/a-0", 1), ("a-0", 1), ("a", 2), ("ml/a", 2)])
def test_a_pod_belongs_to_the_job_with_its_name_or_its_owners(job_id: str, pods: int) -> None:
    owners = [reading(f"ml/a-{at}", 1.0, measure="owner", kind="a", place="", device="") for at in (0, 1)]
    found = folded([job(0, job_id=job_id, instances=pods)], [pod("a-0", 1.0), pod("a-1", 3.0), *owners], by_pod=True)
    row = found.usage.row(0, named=True)
    assert (row["used_cpu_cores"], row["instances_measured"]) == ((1.0, 1) if pods == 1 else (2.0, 2))


@pytest.mark.parametrize("job_id", ["gang", "ml/gang"])
def test_pods_of_several_owners_belong_to_the_job_that_their_labels_name(job_id: str) -> None:
    names = [("a-0", "owner", "a"), ("b-0", "owner", "b"), *((f"{each}-0", "label", "gang") for each in "ab")]
    told = [reading(f"ml/{at}", 1.0, measure=measure, kind=kind, place="", device="") for at, measure, kind in names]
    uses = [pod("a-0", 1.0), pod("b-0", 3.0)]
    row = folded([job(0, job_id=job_id, instances=2)], [*uses, *told], by_pod=True).usage.row(0, named=True)
    assert (row["used_cpu_cores"], row["instances_measured"]) == (2.0, 2)
    both = [job(0, job_id=job_id, instances=2), job(1, job_id="a")]
    rows = folded(both, [*uses, *told], by_pod=True).usage.select("job_id", "used_cpu_cores").rows()
    assert ("a", 1.0) in rows  # the owner is more specific


def test_a_pod_without_its_gpus_has_no_use_of_gpus() -> None:
    gpu = reading("ml/a", 0.5, place="n1", device="0")
    found = folded([job(0, job_id="a", req_gpus=2.0)], [pod("a", 1.0), gpu], by_pod=True)
    assert found.usage.select("used_cpu_cores", "used_gpus").rows() == [(1.0, None)]
