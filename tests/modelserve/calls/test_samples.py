"""Wrong samples and statistics of running jobs, cell by cell: refused with a reason, while other jobs are answered."""

import math
from pathlib import Path

import pytest

from modelserve.service import Service
from tests.modelserve.answering import service_of
from tests.modelserve.running_jobs import LEARNED, Row, asked, columns, job, stands


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return service_of(tmp_path, learned=LEARNED)


@pytest.mark.parametrize("field", ["cpu_cores", "gpus", "mem_gib", "gpu_mem_gpus", "gpu_mem_gib"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, -0.5, 1e7], ids=str)
def test_a_bad_sample_is_refused_and_the_request_stands(service: Service, field: str, value: float | None) -> None:
    samples = columns()
    if field == "gpu_mem_gib":
        samples["gpu_mem_gib"] = [16.0 * each for each in samples.pop("gpu_mem_gpus")]
        value = None if value is None else 16.0 * value
    samples[field][7] = value

    [row, other] = asked(service, job(samples=samples, device_mem_gib=16.0), job("b"))

    assert (row["reason"], other["reason"]) == ("refused", "measured")
    assert row["refused"] == [{"field": f"samples.{field}", "why": "out_of_range", "samples": [7]}]
    assert stands(row)


@pytest.mark.parametrize(
    ("at_s", "why", "places"),
    [
        ([60.0, 180.0, 120.0, 240.0], "out_of_order", [2]),
        ([60.0, 60.0, 120.0, 180.0], "out_of_order", [1]),
        ([60.0, 120.0, 180.0, 2000.0], "ahead", [3]),
        ([-60.0, 120.0, 180.0, 240.0], "out_of_range", [0]),
        ([60.0, None, 180.0, math.nan], "out_of_range", [1, 3]),
    ],
)
def test_a_sample_at_a_bad_time_is_refused(service: Service, at_s: list[float], why: str, places: list[int]) -> None:
    [row] = asked(service, job(samples=columns(4, at_s=at_s)))

    assert row["refused"] == [{"field": "samples.at_s", "why": why, "samples": places}]
    assert stands(row)


STATISTICS = {
    "count": 30,
    "at_s": 1800.0,
    "cpu_cores": {"mean": 1.0, "squares": 1.2, "recent": 1.0},
    "gpus": {"mean": 0.1, "squares": 0.012, "recent": 0.1},
    "mem_gib": 4.0,
    "gpu_mem_gpus": 0.1,
}


@pytest.mark.parametrize("value", [math.nan, -1.0, 1e30], ids=str)
@pytest.mark.parametrize(
    "path", ["at_s", "mem_gib", "gpu_mem_gpus", "cpu_cores.mean", "cpu_cores.squares", "gpus.recent", "gpus.pressed_s"]
)
def test_bad_statistics_are_refused(service: Service, path: str, value: float) -> None:
    name, _, inner = path.partition(".")
    changed = {**STATISTICS, name: {**STATISTICS[name], inner: value} if inner else value}

    [row, other] = asked(service, job(samples=..., statistics=changed), job("b", samples=..., statistics=STATISTICS))

    why = "ahead" if value == 1e30 and path.endswith(("at_s", "pressed_s")) else "out_of_range"
    assert row["refused"] == [{"field": f"statistics.{path}", "why": why, "samples": []}]
    assert stands(row)
    assert other["reason"] == "measured"


def both(count: int) -> list[float]:
    return [1.0] * count


@pytest.mark.parametrize(
    ("changes", "field", "why"),
    [
        ({"age_s": ...}, "age_s", "missing"),
        ({"start_ts": "2020-08-02T00:00:00Z"}, "start_ts", "ambiguous"),
        ({"samples": columns(30, cpu_cores=both(29))}, "samples.cpu_cores", "length"),
        ({"samples": columns(30, gpu_mem_gib=both(30))}, "samples.gpu_mem_gib", "ambiguous"),
        ({"samples": {"at_s": [1830.0]}, "statistics": STATISTICS}, "samples.cpu_cores", "missing"),
        ({"samples": columns(), "statistics": STATISTICS}, "samples.at_s", "out_of_order"),
        ({"samples": ..., "statistics": {**STATISTICS, "at_s": None}}, "statistics.at_s", "missing"),
    ],
)
def test_what_contradicts_itself_is_refused(service: Service, changes: Row, field: str, why: str) -> None:
    [row, other] = asked(service, job(**changes), job("b"))

    assert (row["refused"][0]["field"], row["refused"][0]["why"]) == (field, why)
    assert (row["reason"], other["reason"]) == ("refused", "measured")
    assert stands(row)


def test_memory_is_kept_above_sound_samples_even_if_others_are_refused(service: Service) -> None:
    samples = columns(30, mem_gib=[40.0] * 30)
    samples["mem_gib"][3], samples["gpu_mem_gpus"][2] = -1.0, 0.9

    [row] = asked(service, job(samples=samples))

    assert row["reason"] == "refused"
    assert (row["memory"]["mem_gib"], row["memory"]["gpu_mem_gpus"]) == (40.0, 0.9)
    assert (row["statistics"]["count"], row["statistics"]["mem_gib"]) == (0, 40.0)


@pytest.mark.parametrize(
    "path", ["at_s", "gpu_mem_gpus", "cpu_cores.mean", "cpu_cores.squares", "gpus.recent", "gpus.pressed_s"]
)
def test_a_known_memory_peak_outlives_a_fault_elsewhere_in_the_statistics(service: Service, path: str) -> None:
    name, _, inner = path.partition(".")
    known = {**STATISTICS, "mem_gib": 50.0}
    faulty = {**known, name: {**known[name], inner: -1.0} if inner else -1.0}

    [row] = asked(service, job(samples=..., statistics=faulty))

    assert row["reason"] == "refused"
    assert row["memory"]["mem_gib"] == 50.0
    assert row["statistics"]["mem_gib"] == 50.0
