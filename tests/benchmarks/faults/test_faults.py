"""A small sample of `python -m tests.benchmarks.faults`: no kill leaves anything but the old or the new result."""

from pathlib import Path

import pytest

from tests.benchmarks.faults.workers import ingested, jobs_of_clusters, killed, trained

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def test_a_dask_worker_killed_within_a_cluster_or_a_model_changes_neither_lake_nor_models(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the optional group dask is not installed")
    ingest = ingested(jobs_of_clusters(tmp_path / "from", 3_000))
    rows = list(killed("ingest", ingest, tmp_path / "ingest", kills=1, seed=0))
    train = trained(tmp_path / "ingest" / "local" / "made" / "lake", ["cv"])
    rows += killed("training", train, tmp_path / "training", kills=1, seed=0)

    assert [row["found"] for row in rows] == ["equal", "equal"]
    assert [row["unit"] for row in rows] == [row["repeated"] for row in rows]
