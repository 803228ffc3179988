"""What the benchmark of ingest generates is in the published format: every row of it is good."""

from pathlib import Path

from pipelines.lake.ingest import ingest
from tests.benchmarks.ingest.published import write_philly


def test_every_row_that_is_written_is_good(tmp_path: Path) -> None:
    rows = write_philly(tmp_path / "from", 3e-5, 1)

    manifest = ingest("philly", tmp_path / "from", tmp_path / "lake").manifest

    [account] = [a for a in manifest.accounts if a.table == "gpu_util"]
    assert rows > 500
    assert (account.rows_in, account.rows_good) == (rows, rows)
    assert manifest.rows_quarantined == 0
