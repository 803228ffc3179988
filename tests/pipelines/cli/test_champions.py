"""Champions opened by the commands: their history goes on with the jobs of the lake after the training cut."""

from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from modelserve.bundle.champions import Pointer, write_pointer
from modelserve.calls.predictions import predict
from modelserve.contract.requests import JobRow
from pipelines.cli.opening import champions
from pipelines.cli.options import Place
from pipelines.models.boosting import Boosting
from pipelines.models.examples import Setting, known_at
from pipelines.models.model import write_model
from pipelines.models.recipes import Recipe
from pipelines.models.runtime import train_runtime
from tests.pipelines.models.conftest import T0, make_jobs
from tests.pipelines.statistics.lakes import make_lake

CUT = T0 + timedelta(days=10)
QUICK = Recipe(boosting=Boosting(rounds=10, patience=8, learning_rate=0.15, max_depth=3))
NAME = "runtime.made.ctr"
JOB = {"job_id": "next", "task_type": "ctr", "user": "u3", "group": "g3", "cluster": "made", "role": "worker"}


def slower_later() -> pl.DataFrame:
    """Return jobs that run fifty times as long if they were submitted after the cut."""
    jobs = make_jobs(400, 4)
    longer = pl.when(pl.col("submit_ts") >= CUT).then(50.0).otherwise(1.0)
    slowed = jobs.with_columns(run_s=pl.col("run_s") * longer)
    return slowed.with_columns(end_ts=pl.col("start_ts") + pl.duration(seconds=pl.col("run_s")))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Return a lake of forty days, and the champion of the first ten."""
    folder = tmp_path_factory.mktemp("champions")
    jobs = slower_later()
    model = train_runtime(Setting(jobs=known_at(jobs, CUT), trace="made", until=CUT), "ctr", QUICK)
    digest = write_model(model, folder / "bundles" / NAME / "1", created=CUT)
    write_pointer(folder / "bundles", Pointer(name=NAME, version="1", run_id=None, digest=digest))
    elsewhere = jobs.with_columns(cluster=pl.lit("elsewhere"))
    make_lake(folder / "lake", {"jobs": pl.concat([jobs, elsewhere]).to_dicts()}, trace="made")
    return Place(lake=folder / "lake", tracking_uri="sqlite:///none", bundles=folder / "bundles")


def predicted(place: Place, **fields: object) -> dict[str, object]:
    asked = JobRow.model_validate({**JOB, "request": {"cpu_cores": 4, "mem_gib": 16, "gpus": 1}, **fields})
    [row] = predict([asked], champions(place, offline=True), trace="made")
    return row


def test_a_prediction_counts_every_job_that_ended_in_the_lake(place: Place, tmp_path: Path) -> None:
    at_the_cut = Place(lake=tmp_path / "none", tracking_uri=place.tracking_uri, bundles=place.bundles)

    before, now = predicted(at_the_cut), predicted(place)

    assert float(str(now["run_time_p50_s"])) > 5 * float(str(before["run_time_p50_s"]))
    assert str(before["history"]) < str(now["history"])


def test_a_job_submitted_earlier_sees_only_what_had_ended_then(place: Place, tmp_path: Path) -> None:
    at_the_cut = Place(lake=tmp_path / "none", tracking_uri=place.tracking_uri, bundles=place.bundles)
    submitted = {"submit_ts": CUT.isoformat()}

    assert predicted(place, **submitted)["run_time_p50_s"] == predicted(at_the_cut, **submitted)["run_time_p50_s"]


def test_a_cluster_that_the_model_left_out_stays_out(place: Place) -> None:
    frame = champions(place, offline=True).bundles[NAME].history.frame

    assert frame["cluster"].unique().to_list() == ["made"]
    assert frame.height == slower_later().height
