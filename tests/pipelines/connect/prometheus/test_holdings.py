"""GPUs that jobs held: the file, its pieces within an hour, and samples that go to the job that held the GPU then."""

from pathlib import Path

import polars as pl
import pytest

from pipelines.connect.prometheus.dialects import DIALECTS
from pipelines.connect.prometheus.measuring import SKEW_S, _Reader, pieces_in, read_holdings
from pipelines.connect.prometheus.readings import READING
from pipelines.errors import BadUsage
from tests.pipelines.connect.prometheus.fake import Store, every, server

USED = "DCGM_FI_DEV_FB_USED"
JOBS = pl.DataFrame({"job": ["1", "2"], "start_s": [0.0, 1000.0], "end_s": [1000.0, 9000.0]})


def held(folder: Path, *lines: str, header: str = "job_id,machine,gpu") -> pl.DataFrame:
    (folder / "held.csv").write_text("\n".join([header, *lines]) + "\n")
    return read_holdings(folder / "held.csv", JOBS)


def test_a_job_holds_its_gpus_while_it_runs_but_for_a_margin(tmp_path: Path) -> None:
    rows = held(tmp_path, "1,n1,0", "9,n1,0", "2,n1,0")
    assert rows.rows() == [
        ("1", "n1", "0", SKEW_S, 1000.0 - SKEW_S),
        ("2", "n1", "0", 1000.0 + SKEW_S, 9000.0 - SKEW_S),
    ]


def test_times_of_the_file_come_first(tmp_path: Path) -> None:
    rows = held(tmp_path, "1,n1,0,100,200", "2,n1,0,,", header="job_id,machine,gpu,start,end")
    assert rows.select("from_s", "to_s").rows() == [(105.0, 195.0), (1005.0, 8995.0)]


@pytest.mark.parametrize("text", ["", "job_id,machine\n1,n1\n", "gpu\n\x00"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "held.csv").write_text(text)
    with pytest.raises(BadUsage, match="--held"):
        read_holdings(tmp_path / "held.csv", JOBS)
    with pytest.raises(BadUsage, match="--held"):
        read_holdings(tmp_path / "absent.csv", JOBS)


def test_a_whole_hour_is_the_gpus_reading_and_a_part_is_its_samples(tmp_path: Path) -> None:
    spelling = {"n1": "Hostname", "n2": "hostname"}
    series = [({"gpu": "0", spelling[host]: host}, every(10.0, 360, 1024.0, 5.0)) for host in ("n1", "n2")]
    readings = pl.DataFrame(
        [("gpu_mem_gib", "", host, "0", "T4", 3600.0, 3600.0, 1.0) for host in ("n1", "n2")],
        schema=READING,
        orient="row",
    )
    rows = held(tmp_path, "1,n1,0", "2,n1,0", "2,n2,0")
    pieces = pieces_in(rows, 0.0).with_columns(from_s=pl.when(pl.col("place") == "n2").then(0.0).otherwise("from_s"))
    store = Store({}, {USED: series})
    made, _ = server(store)
    reader = _Reader(server=made, dialect=DIALECTS["dcgm-node"], match="", folder=tmp_path, holdings=rows, jobs=JOBS)
    found = reader.attributed(0.0, readings, pieces)
    assert found.select("job", "place", "seconds", "peak").rows() == [
        ("1", "n1", 1000.0, 1.0),
        ("2", "n1", 2600.0, 1.0),
        ("2", "n2", 3600.0, 1.0),
    ]
    assert len(store.queries) == 1
