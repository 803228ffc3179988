"""Requests against use worked by hand; sums hold the most that ingest lets through, without rounding errors."""

from pathlib import Path

import pytest

from pipelines.errors import LakeError
from pipelines.lake.lake import Lake
from pipelines.lake.sources.source import MOST_ASKED, MOST_INSTANCES, MOST_SPAN_S
from pipelines.statistics import STATISTICS
from pipelines.statistics.claims import over_claim, over_claim_as_published, request_and_use, resources_told, use
from tests.pipelines.statistics.lakes import job, make_lake, ran, used


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Return four tasks: over-claimed, over-used, with a parameter server's sensors, and never measured."""
    claimed = {"req_cpu_cores": 6.0, "req_mem_gib": 10.0, "req_gpus": 0.5, "gpu_type": "T4"}
    return make_lake(
        tmp_path,
        {
            "jobs": [
                ran(0, 3600.0, instances=2, task_type="ctr", **claimed),
                ran(1, 7200.0, task_type="nlp", **claimed),
                ran(2, 3600.0, role="ps", task_type="ctr", **claimed),
                ran(3, 3600.0, **claimed),
                job(4, req_cpu_cores=0.0, req_gpus=0.0),
            ],
            "usage": [
                used(0, used_cpu_cores=2.0, used_gpus=0.1, mem_avg_gib=3.0, mem_max_gib=4.0, gpu_mem_avg_gib=1.0),
                used(1, used_cpu_cores=8.0, used_gpus=0.5, mem_avg_gib=5.0, mem_max_gib=12.0, gpu_mem_avg_gib=9.0),
                used(2, role="ps", used_cpu_cores=99.0, used_gpus=1.0, mem_avg_gib=99.0, gpu_mem_avg_gib=99.0),
                used(4, used_cpu_cores=1.0, used_gpus=0.0),
            ],
        },
    )


def test_over_claim_by_hand(lake: Lake) -> None:
    rows = over_claim(lake, "toy")
    [cpu] = rows.filter(resource="cpu_cores").to_dicts()
    assert (cpu["tasks"], cpu["over_claim_share"], cpu["mean_request"], cpu["mean_use"]) == (2, 0.5, 6.0, 5.0)
    assert (cpu["requested_h"], cpu["used_h"]) == (24.0, 20.0)
    assert (cpu["slack_h"], cpu["slack_share"], cpu["beyond_h"]) == (8.0, pytest.approx(1 / 3), 4.0)
    [gpu] = rows.filter(resource="gpus").to_dicts()
    assert (gpu["over_claim_share"], gpu["slack_h"]) == (0.5, pytest.approx(0.8))  # the same as asked is no over-claim
    mean, peak = rows.filter(resource="mem_gib").to_dicts()
    assert (mean["use"], mean["over_claim_share"], peak["use"], peak["over_claim_share"]) == ("mean", 1.0, "peak", 0.5)
    [device] = rows.filter(resource="gpu_mem_gib").to_dicts()  # half of 16 GiB asked for; no peak is told
    assert (device["use"], device["mean_request"], device["over_claim_share"]) == ("mean", 8.0, 0.5)
    assert device["basis"] == "GPUs asked for x device memory"
    assert {row["basis"] for row in (cpu, gpu, mean, peak)} == {"asked for"}


def test_over_claim_by_kind(lake: Lake) -> None:
    rows = over_claim(lake, "toy", by="task_type").filter(resource="cpu_cores")
    assert rows.select("task_type", "tasks", "over_claim_share").rows() == [("ctr", 1, 1.0), ("nlp", 1, 0.0)]


def test_slack_without_run_times_is_unknown(tmp_path: Path) -> None:
    tables = {"jobs": [job(0, req_cpu_cores=6.0)], "usage": [used(0, used_cpu_cores=2.0)]}
    [row] = over_claim(make_lake(tmp_path, tables), "toy").to_dicts()
    assert (row["over_claim_share"], row["slack_h"], row["slack_share"]) == (1.0, None, None)


def test_the_published_count_keeps_its_slip(lake: Lake) -> None:
    rows = over_claim_as_published(lake, "toy").rows()
    # Parameter servers count, as does a request of nothing; memory is compared with GPU memory.
    assert rows == [("cpu", 4, 0.25), ("gpu", 4, 0.25), ("mem", 3, pytest.approx(2 / 3))]


def test_distributions_are_of_the_tasks_compared(lake: Lake) -> None:
    rows = request_and_use(lake, "toy").filter(resource="cpu_cores")
    assert rows.height == 2 * 101
    request, use_ = (rows.filter(series=name) for name in ("request", "used"))
    assert request["value"].unique().to_list() == [6.0]
    assert use_.filter(probability=0.0)["value"].to_list() == [2.0]
    assert use_.filter(probability=0.5)["value"].to_list() == [5.0]
    assert use_.filter(probability=1.0)["value"].to_list() == [8.0]
    assert use_["tasks"].unique().to_list() == [2]


def test_use_counts_every_measured_task(lake: Lake) -> None:
    [row] = use(lake, "toy").filter(measure="used_cpu_cores").to_dicts()
    assert (row["tasks"], row["mean"], row["p50_value"], row["max"]) == (4, 27.5, 5.0, 99.0)
    assert "net_read_bytes_per_s" not in use(lake, "toy")["measure"]


def test_a_kind_is_told_where_any_row_tells_it(lake: Lake, tmp_path: Path) -> None:
    assert resources_told(lake, "toy").rows() == [(4, True, True, True, True, False)]
    bare = make_lake(tmp_path / "bare", {"jobs": [job(0, req_gpus=1.0), job(1)]})
    assert resources_told(bare, "toy").rows() == [(1, False, True, False, False, False)]


def test_sums_hold_the_most_that_passes_ingest(tmp_path: Path) -> None:
    most = {"instances": int(MOST_INSTANCES), "req_cpu_cores": MOST_ASKED, "req_gpus": MOST_ASKED, "user": "u"}
    jobs = [job(at, run_s=MOST_SPAN_S, status="completed", **most) for at in range(3)]
    lake = make_lake(tmp_path, {"jobs": jobs, "usage": [used(at, used_cpu_cores=1.0) for at in range(3)]})

    told = {name: statistic.answer(lake, "toy").rows for name, statistic in STATISTICS.items()}

    hours = 3 * MOST_ASKED * MOST_INSTANCES * MOST_SPAN_S / 3600
    assert told["over_claim"]["requested_h"].to_list() == [pytest.approx(hours)]
    assert told["gpu_hours_by_status"]["gpu_hours"].to_list() == [pytest.approx(hours)]
    assert told["user_concentration"]["gpu_hours"].to_list() == [pytest.approx(hours)]


def test_a_number_beyond_all_measure_is_said_in_short(tmp_path: Path) -> None:
    jobs = [ran(0, 3600.0, req_cpu_cores=1e300)]
    lake = make_lake(tmp_path, {"jobs": jobs, "usage": [used(0, used_cpu_cores=1.0)]})

    with pytest.raises(LakeError, match="cannot be read as expected") as said:
        STATISTICS["over_claim"].answer(lake, "toy")

    assert len(str(said.value).partition("; remove")[0]) < 160
    assert "0" * 20 not in str(said.value)


def test_sums_of_thirds_have_no_dust(tmp_path: Path) -> None:
    jobs = [ran(at, 1200.0, req_gpus=0.1 * (1 + at % 7), status="completed") for at in range(63)]
    lake = make_lake(tmp_path, {"jobs": jobs})

    hours = STATISTICS["gpu_hours_by_status"].answer(lake, "toy").rows["gpu_hours"].item()

    assert repr(hours) == "8.4"
