"""What the benchmark of ingest generates is in the published formats: every row of it is good."""

from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.lake.ingest import ingest
from tests.benchmarks.ingest.published import write_helios, write_philly, write_philly_whole


@pytest.mark.parametrize(
    ("source", "table", "write", "scale"),
    [
        ("philly", "gpu_util", write_philly, 3e-5),
        ("philly", "cpu_util", write_philly_whole, 3e-5),
        ("philly", "mem_util", write_philly_whole, 3e-5),
        ("helios", "log", write_helios, 3e-4),
    ],
)
def test_every_row_that_is_written_is_good(
    source: str, table: str, write: Callable[[Path, float, int], int], scale: float, tmp_path: Path
) -> None:
    rows = write(tmp_path / "from", scale, 1)

    manifest = ingest(source, tmp_path / "from", tmp_path / "lake").manifest

    [account] = [a for a in manifest.accounts if a.table == table]
    assert rows > 500
    assert (account.rows_in, account.rows_good) == (rows, rows)
    assert manifest.rows_quarantined == 0


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_philly(tmp_path / name, 3e-5, 1)

    one, two = (tmp_path / name / "cluster_gpu_util" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
