"""A table too large to be sorted at once is written in parts: the same rows, in the same order, the same files."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.lake import staging
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake

Published = dict[str, Any]
CPU_ROWS = [f"2017-10-03 00:{minute:02}:00 PDT,m{m}'s,{minute}.5" for minute in range(9) for m in range(7)]


def _folder(published: Published, place: Path) -> Path:
    folder: Path = published["philly"].write(place)
    (folder / "cluster_cpu_util").write_text("\n".join(["time,machine_id,cpu_util", *CPU_ROWS]) + "\n")
    return folder


def test_parts_hold_the_rows_of_the_whole_in_its_order(
    published: Published, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _folder(published, tmp_path / "from")
    ingest("philly", folder, tmp_path / "whole")

    monkeypatch.setattr(staging, "PART_ROWS", 20)
    parted = ingest("philly", folder, tmp_path / "parted").manifest

    used = [o for o in parted.outputs if o.table == "machine_usage"]
    assert len(used) > 2
    assert all(o.rows <= 20 for o in used)
    whole, parts = (Lake(tmp_path / name).table("machine_usage").collect() for name in ("whole", "parted"))
    assert parts.equals(whole)
    assert ingest("philly", folder, tmp_path / "again").manifest == parted
