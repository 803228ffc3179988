"""Readings of one hour: blank and broken samples, MIG devices, spellings of labels, counters, scrape intervals."""

import math

import httpx2
import polars as pl
import pytest

from pipelines.connect.prometheus.dialects import DIALECTS, checked_matchers
from pipelines.connect.prometheus.readings import MOST_REPAIRED, interval_of, read_hour, read_now
from pipelines.errors import BadUsage
from tests.pipelines.connect.prometheus.fake import Rows, Store, answer, clock, every, query_of, server

UTIL, ENGINE, USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_FB_USED"
BLANK = 9223372036854775794


def gauge(metric: str, rows: list[tuple[dict[str, str], float, object, object]]) -> dict[tuple[str, str], Rows]:
    """Return the answers about a gauge: labels, count, sum and maximum of each series."""
    functions = ("count_over_time", "sum_over_time", "max_over_time")
    return {(function, metric): [(row[0], row[at]) for row in rows] for at, function in enumerate(functions, 1)}


def read(dialect: str, values: dict[tuple[str, str], Rows], samples: dict[str, object]) -> tuple[pl.DataFrame, Store]:
    """Return the readings of an hour from canned answers."""
    store = Store(values, samples)
    made, _ = server(store)
    return read_hour(made, DIALECTS[dialect], "", 0.0), store


GPU = {"gpu": "0", "Hostname": "n1", "instance": "10.0.0.1:9400", "modelName": "T4", "hpc_job": "7"}
QUARTER = {UTIL: [(GPU, every(15.0, 240))]}


def test_a_reading_is_the_mean_times_the_time() -> None:
    values = gauge(UTIL, [(GPU, 120, 6000, 90)]) | gauge(USED, [(GPU, 120, 122_880, 2048)])
    rows, _ = read("dcgm-job", values, QUARTER | {USED: QUARTER[UTIL]})
    assert rows.rows() == [
        ("gpu_mem_gib", "7", "n1", "0", "T4", 120 * 15.0, 1800.0, 2.0),
        ("gpus", "7", "n1", "0", "T4", 6000 * 15 * 0.01, 1800.0, None),
    ]


def test_the_newer_spelling_and_the_address_name_the_machine_too() -> None:
    newer = {name: text for name, text in GPU.items() if name != "Hostname"} | {"hostname": "n2"}
    bare = {name: text for name, text in GPU.items() if name != "Hostname"}
    rows, _ = read("dcgm-job", gauge(UTIL, [(newer, 10, 10, 1), (bare, 10, 10, 1)]), QUARTER)
    assert rows["place"].to_list() == ["10.0.0.1", "n2"]


@pytest.mark.parametrize("bad", [BLANK, "NaN", "+Inf", -5.0, 1e300])
def test_bad_samples_are_left_out_of_a_series_and_its_coverage(bad: float | str) -> None:
    total: object = "NaN" if bad == "NaN" else "-Inf" if bad == -5.0 else bad
    values = gauge(UTIL, [(GPU, 4, total, 80 if bad == "NaN" else bad)]) | {("spoilt", UTIL): [(GPU, 1)]}
    rows, _ = read("dcgm-job", values, {UTIL: [(GPU, [(0, 20), (15, bad), (30, 80), (45, bad)])]})
    assert rows.select("total", "seconds", "peak").rows() == [(100 * 15 * 0.01, 30.0, 0.8)]


def test_no_more_series_than_a_bound_are_read_sample_by_sample() -> None:
    many = [(GPU | {"gpu": str(gpu)}, 4, "NaN", 1.0) for gpu in range(MOST_REPAIRED + 50)]
    values = gauge(UTIL, many) | {("spoilt", UTIL): [(row[0], 1) for row in many]}
    _, store = read("dcgm-job", values, QUARTER)
    assert sum(query.startswith(f"{UTIL}{{") for query in store.queries) == MOST_REPAIRED + 1


def test_mig_devices_are_measured_by_their_engine_and_whole_gpus_by_utilisation() -> None:
    mig = GPU | {"GPU_I_ID": "3", "GPU_I_PROFILE": "1g.10gb"}
    values = gauge(UTIL, [(GPU, 240, 2400, 10)]) | gauge(ENGINE, [(mig, 240, 120, 0.75), (GPU, 240, 240, 1.0)])
    rows, _ = read("dcgm-job", values, QUARTER | {ENGINE: [(mig, every(15.0, 240))]})
    assert rows.select("device", "total").rows() == [("0", 360.0), ("0.3", 1800.0)]


def test_the_counter_of_a_gpu_may_be_blank_and_negative_values_are_no_increase() -> None:
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    labels = [GPU, GPU | {"gpu": "1"}, GPU | {"gpu": "2"}]
    increases = zip(labels, (7.2e6, float(BLANK), -1.0), strict=True)
    values = {("count_over_time", energy): [(each, 240) for each in labels], ("increase", energy): list(increases)}
    rows, _ = read("dcgm-job", values, {energy: [(GPU, every(15.0, 240))]})
    assert rows.select("device", "total", "seconds").rows() == [("0", 7200.0, 3600.0)]


@pytest.mark.parametrize(
    ("labels", "job"),
    [
        ({"namespace": "ml", "pod": "a"}, "ml/a"),
        ({"exported_namespace": "ml", "exported_pod": "a", "namespace": "gpu-operator", "pod": "dcgm-x"}, "ml/a"),
        ({"pod_namespace": "ml", "pod_name": "a"}, "ml/a"),
        ({}, ""),
    ],
)
def test_a_pod_is_found_under_every_name_of_its_label(labels: dict[str, str], job: str) -> None:
    of_pod = {"gpu": "0", "Hostname": "n1"} | labels
    rows, _ = read("cadvisor", gauge(UTIL, [(of_pod, 240, 240, 1)]), {UTIL: [(of_pod, every(15.0, 240))]})
    assert rows["job"].to_list() == [job]


def test_jobs_are_asked_for_once_an_hour_not_once_a_job() -> None:
    many = [(GPU | {"hpc_job": str(job)}, 4, 1.0, 1.0) for job in range(500)]
    rows, store = read("dcgm-job", gauge(UTIL, many), QUARTER)
    assert rows.height == 500
    assert len(store.queries) < 40


def test_the_users_matchers_are_in_every_query() -> None:
    store = Store({})
    made, _ = server(store)
    read_hour(made, DIALECTS["cadvisor"], 'cluster="a"', 0.0)
    assert len(store.queries) == len(DIALECTS["cadvisor"].measures)
    assert all('cluster="a"' in query for query in store.queries)


@pytest.mark.parametrize("text", ['cluster="a"', 'a=~"x|y",b!~"\\"",c!="{}"', ' a = "1" , b="2" ', ""])
def test_matchers_are_accepted(text: str) -> None:
    assert checked_matchers(text) == text.strip()


@pytest.mark.parametrize("text", ["cluster", "cluster=a", 'a="1"}) or vector(1', 'a="1",', 'a="1" b="2"', 'a="\n"'])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BadUsage, match="--match"):
        checked_matchers(text)


def test_gaps_do_not_change_the_interval() -> None:
    at = [0.0, 15.0, 30.0, 600.0, 615.0]
    assert interval_of(pl.DataFrame({"gpu": ["0"] * 5, "at_s": at, "value": at})) == 15.0
    assert interval_of(pl.DataFrame({"gpu": ["0"] * 6, "at_s": [0.0, 0.0, 15.0, 15.0, 30.0, 30.0]})) == 15.0
    assert math.isnan(interval_of(pl.DataFrame({"gpu": ["0"], "at_s": [0.0], "value": [1.0]})))


def test_use_now_is_summed_over_the_gpus_of_a_job_without_blank_values() -> None:
    second, mig = GPU | {"gpu": "1"}, GPU | {"GPU_I_ID": "3"}
    rows: dict[str, Rows] = {
        f"avg_over_time({UTIL}": [(GPU, 40), (second, 20), (GPU | {"hpc_job": ""}, 9), (GPU | {"gpu": "2"}, BLANK)],
        f"avg_over_time({ENGINE}": [(GPU, 0.9), (mig, 0.5)],
        f"max_over_time({USED}": [(GPU, 1024), (second, 2048)],
    }

    def handler(request: httpx2.Request) -> httpx2.Response:
        query, _ = query_of(request)
        return clock() if query == "time()" else answer(next((rows[each] for each in rows if each in query), []))

    found = read_now(server(handler)[0], DIALECTS["dcgm-job"], "")
    assert sorted(found.rows()) == [("7", "gpu_mem_gib", 3.0), ("7", "gpus", pytest.approx(0.4 + 0.2 + 0.5))]
