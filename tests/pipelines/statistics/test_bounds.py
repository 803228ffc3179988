"""Sums hold the most that ingest lets through, without dust; an absurd number of an older lake is refused in short."""

from pathlib import Path

import pytest

from pipelines.errors import LakeError
from pipelines.lake.sources.source import MOST_ASKED, MOST_INSTANCES, MOST_SPAN_S
from pipelines.statistics import STATISTICS
from tests.pipelines.statistics.lakes import job, make_lake, ran, used


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
