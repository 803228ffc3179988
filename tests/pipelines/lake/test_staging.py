"""A shortcut gives what the whole SELECT gives, to the bit; a table too large to be sorted is written in parts."""

import random
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from pipelines.lake import staging
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.lake.sources import SOURCES
from pipelines.lake.staging import one_row_a_minute, select_of

Published = dict[str, Any]
HEADER = "time,machineId," + ",".join(f"gpu{i}_util" for i in range(8))
MINUTE = "2017-10-03 00:01:00+00"


def _row(rng: random.Random, machine: int, minute: int) -> str:
    use = [f"{rng.choice((100, 7, 1e6)) * rng.random():.9f}" if rng.random() < 0.7 else "NA" for _ in range(8)]
    return f"2017-10-03 {minute // 60:02}:{minute % 60:02}:00 PDT,m{machine},{','.join(use)},"


def _folder(published: Published, place: Path) -> Path:
    folder: Path = published["philly"].write(place)
    for name in ("cluster_cpu_util", "cluster_mem_util"):
        (folder / name).unlink()
    rng = random.Random(3)
    rows = [_row(rng, machine, minute) for machine in range(12) for minute in range(90)]
    rng.shuffle(rows)
    (folder / "cluster_gpu_util").write_text("\n".join([HEADER, *rows]) + "\n")
    return folder


def _use(lake: Path) -> pl.DataFrame:
    return Lake(lake).table("machine_usage").collect()


def test_a_shortcut_gives_what_the_whole_gives(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(published, tmp_path / "from")
    whole = SOURCES["philly"].outputs["machine_usage"]
    taken: list[str] = []

    def noted(*arguments: Any) -> str:  # whatever ingest gives
        taken.append(select_of(*arguments))
        return taken[-1]

    monkeypatch.setattr("pipelines.lake.staging.select_of", noted)
    ingest("philly", folder, tmp_path / "short")
    assert whole not in taken

    monkeypatch.setattr(staging, "one_row_a_minute", lambda *_: False)
    ingest("philly", folder, tmp_path / "whole")
    assert whole in taken

    assert _use(tmp_path / "short").height == 12 * 90
    assert _use(tmp_path / "short").equals(_use(tmp_path / "whole"))


@pytest.mark.parametrize("other", ["2017-10-03 00:07:00 PDT,m3,50.5", "2017-10-03 00:07:00 PDT,other,50.5"])
def test_rows_of_another_table_are_joined(other: str, published: Published, tmp_path: Path) -> None:
    folder = _folder(published, tmp_path / "from")
    (folder / "cluster_cpu_util").write_text(f"time,machine_id,cpu_util\n{other}\n")

    ingest("philly", folder, tmp_path / "lake")

    assert _use(tmp_path / "lake")["cpu_frac"].drop_nulls().to_list() == [0.505]


@pytest.mark.parametrize(
    ("rows", "unique"),
    [
        ([("a", MINUTE), ("a", "2017-10-03 00:02:00+00"), ("b", MINUTE)], True),
        ([("a", MINUTE), ("b", MINUTE), ("a", MINUTE)], False),
        ([("a", MINUTE), ("a", "2017-10-03 00:01:30+00")], False),
        ([("a", "2017-10-03 00:01:30+00")], False),
        ([("a", MINUTE), ("a", "9999-10-03 00:01:00+00")], False),
        ([("a", "1969-12-31 23:59:00+00"), ("a", "1970-01-01 00:00:00+00")], True),
        ([], False),
    ],
)
def test_rows_are_one_a_minute_only_where_that_is_cheaply_known(rows: list[tuple[str, str]], unique: bool) -> None:
    with duckdb.connect() as work:
        work.execute("CREATE TABLE use (machine VARCHAR, ts TIMESTAMPTZ)")
        for row in rows:
            work.execute("INSERT INTO use VALUES (?, ?)", row)

        assert one_row_a_minute(work, "use") is unique


CPU_ROWS = [f"2017-10-03 00:{minute:02}:00 PDT,m{m}'s,{minute}.5" for minute in range(9) for m in range(7)]


def test_parts_hold_the_rows_of_the_whole_in_its_order(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = published["philly"].write(tmp_path / "from")
    (folder / "cluster_cpu_util").write_text("\n".join(["time,machine_id,cpu_util", *CPU_ROWS]) + "\n")
    ingest("philly", folder, tmp_path / "whole")

    monkeypatch.setattr(staging, "PART_ROWS", 20)
    parted = ingest("philly", folder, tmp_path / "parted").manifest

    used = [o for o in parted.outputs if o.table == "machine_usage"]
    assert len(used) > 2
    assert all(o.rows <= 20 for o in used)
    whole, parts = (Lake(tmp_path / name).table("machine_usage").collect() for name in ("whole", "parted"))
    assert parts.equals(whole)
    assert ingest("philly", folder, tmp_path / "again").manifest == parted
