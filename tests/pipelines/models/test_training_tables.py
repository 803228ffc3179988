"""Training tables: the newest jobs of a lake, and feedback, appended once and canonical."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from features.tables import TABLES
from modelserve.store import Store
from modelserve.store.changes import insert_finished
from modelserve.store.finished import Finished
from pipelines.errors import TrainingError
from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.models import usage
from pipelines.models.boosting import Boosting
from pipelines.models.training_tables import newest_tables, read_feedback, read_tables, with_feedback
from tests.modelserve.feedback_cases import JOB
from tests.pipelines.models.conftest import make_jobs
from tests.pipelines.models.test_usage import floors, train, use_of

QUICK = {"BOOSTING": Boosting(rounds=20, patience=6, num_parallel_tree=1, learning_rate=0.15, max_depth=3)}
KEY = ["trace", "cluster", "job_id", "role"]

LAKE_JOBS = make_jobs(1500, seed=3)
LAKE_USE = use_of(LAKE_JOBS)


def finished_of(jobs: pl.DataFrame, use: pl.DataFrame, *, mem_gib: float | None = None) -> list[Finished]:
    """Return jobs as feedback would report them; with `mem_gib`, all were shrunk to it, and used no more."""
    rows = []
    for job in jobs.join(use, on=KEY).sort("submit_ts").to_dicts():
        used = job["mem_max_gib"]
        alloc = job["req_mem_gib"] if mem_gib is None else mem_gib
        rows.append(
            replace(
                JOB,
                **{name: job[name] for name in (*KEY, "task_type", "user", "group", "vc", "workload", "gpu_type")},
                instances=job["instances"],
                submit_us=round(job["submit_ts"].timestamp() * 1e6),
                start_us=round(job["start_ts"].timestamp() * 1e6),
                end_us=round(job["end_ts"].timestamp() * 1e6),
                run_s=job["run_s"],
                **{f"{kind}_{name}": job[f"req_{name}"] for kind in ("req", "alloc") for name in ("cpu_cores", "gpus")},
                req_mem_gib=job["req_mem_gib"],
                alloc_mem_gib=alloc,
                used_cpu_cores=job["used_cpu_cores"],
                used_gpus=job["used_gpus"],
                mem_max_gib=used if mem_gib is None else min(used, mem_gib),
                gpu_mem_max_gib=None,
                peak_mem_gib=20.0,
            )
        )
    return rows


def test_feedback_makes_the_rows_that_the_lake_would_have() -> None:
    early, late = LAKE_JOBS[:1000], LAKE_JOBS[1000:]
    rows = finished_of(late, LAKE_USE)

    jobs, use = with_feedback(early, LAKE_USE.join(early, on=KEY, how="semi"), rows)

    told = ["user", "group", "submit_ts", "end_ts", "run_s", "instances", "req_gpus", "task_type"]
    assert_frame_equal(jobs.select(*KEY, *told).sort(KEY), LAKE_JOBS.select(*KEY, *told).sort(KEY))
    measured = [*KEY, "used_cpu_cores", "used_gpus", "mem_max_gib"]
    assert_frame_equal(use.select(measured).sort(KEY), LAKE_USE.select(measured).sort(KEY))
    assert jobs.schema == LAKE_JOBS.schema
    assert TABLES["jobs"].is_valid(jobs)
    assert TABLES["usage"].is_valid(use)


def test_a_job_that_ended_in_the_lake_stays_and_one_that_ran_on_has_ended() -> None:
    running = LAKE_JOBS[:1].with_columns(pl.when(False).then(pl.col("end_ts", "run_s")), status=pl.lit("running"))
    lake = pl.concat([running, LAKE_JOBS[1:3]])
    rows = finished_of(LAKE_JOBS[:3], LAKE_USE)
    rows = [replace(row, run_s=row.run_s + 1.0) for row in rows]

    jobs, _ = with_feedback(lake, LAKE_USE[:0], rows)

    run_s = dict(jobs.select("job_id", "run_s").iter_rows())
    expected = dict(LAKE_JOBS[:3].select("job_id", "run_s").iter_rows())
    ended_in_feedback = running["job_id"][0]
    assert jobs.height == 3
    assert run_s == {**expected, ended_in_feedback: expected[ended_in_feedback] + 1.0}


def test_the_lakes_own_measurement_of_a_shrunk_job_is_capped_too() -> None:
    rows = finished_of(LAKE_JOBS[:2], LAKE_USE, mem_gib=1.0)

    _, use = with_feedback(LAKE_JOBS, LAKE_USE, rows)

    shrunk = use.join(LAKE_JOBS[:2], on=KEY, how="semi")
    assert use.height == LAKE_USE.height
    assert shrunk["mem_max_gib"].null_count() == 2
    assert shrunk["used_cpu_cores"].null_count() == 0


def test_odd_rows_become_canonical_ones() -> None:
    rows = [
        replace(JOB, job_id="a", cluster="", task_type="fancy", workload="bert", outcome="oom", start_us=None),
        replace(JOB, job_id="b", cluster="", task_type="fancy", workload=None, outcome="timeout"),
    ]

    jobs, _ = with_feedback(LAKE_JOBS, LAKE_USE, rows)

    added = jobs[-2:]
    assert TABLES["jobs"].is_valid(jobs)
    assert added["cluster"].unique().to_list() == LAKE_JOBS["cluster"].unique().to_list()
    assert added["task_type"].to_list() == ["nlp", "other"]
    assert added["status"].to_list() == ["oom", "timeout"]
    assert added["run_s_censored"].to_list() == [False, True]


@pytest.mark.slow
def test_the_capped_use_of_shrunk_jobs_lowers_no_trained_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two jobs of three were shrunk to 1 GiB, and the quantile is one that so many can move.
    monkeypatch.setattr(usage, "LEVEL", 0.6)
    lake = LAKE_JOBS.gather_every(3)
    capped = finished_of(LAKE_JOBS.join(lake, on=KEY, how="anti"), LAKE_USE, mem_gib=1.0)
    believed = [replace(row, alloc_mem_gib=row.req_mem_gib) for row in capped]

    def of_feedback(rows: list[Finished]) -> np.ndarray:
        return floors(train(*with_feedback(lake, LAKE_USE.join(lake, on=KEY, how="semi"), rows), QUICK), lake)

    without = of_feedback([])

    assert np.median(of_feedback(believed) / without) < 0.5
    assert np.median(of_feedback(capped) / without) == pytest.approx(1.0, abs=0.05)


def test_the_store_of_a_service_is_read(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/serve.db"
    store = Store.open(url)
    insert_finished(
        store,
        [replace(JOB, job_id="a"), replace(JOB, job_id="b", cluster="west"), replace(JOB, job_id="c", trace="philly")],
    )
    store.close()

    assert [row.job_id for row in read_feedback(url, "pai", None)] == ["a", "b"]
    assert [row.job_id for row in read_feedback(url, "pai", "west")] == ["b"]
    with pytest.raises(TrainingError, match="no finished job of helios"):
        read_feedback(url, "helios", None)
    with pytest.raises(TrainingError, match="expected sqlite"):
        read_feedback("mysql://host/db", "pai", None)
    with pytest.raises(TrainingError, match=r"no file .*none.db"):
        read_feedback(f"sqlite:///{tmp_path}/sub/none.db", "pai", None)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("serve.db")] == []


MAPPING = """
[jobs]
[jobs.columns]
job_id = "job"
user = "user"
submit_ts = "at"
run_s = "took"
start_ts = "at"
[usage.columns]
used_cpu_cores = "cores"
"""
JOBS = 40
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Ingest jobs whose order in the file is not that of their submission; four a minute, half of them measured."""
    folder = tmp_path_factory.mktemp("newest")
    places = [(7 * n) % JOBS for n in range(JOBS)]
    rows = [f"{n},u,{BEGIN + timedelta(minutes=n // 4):%Y-%m-%dT%H:%M:%S},9,{1 if n % 2 else ''}" for n in places]
    (folder / "jobs.csv").write_text("job,user,at,took,cores\n" + "\n".join(rows) + "\n")
    (folder / "mapping.toml").write_text(MAPPING)
    opened = opened_source(folder / "mapping.toml", str(folder / "jobs.csv"))
    ingest(opened.source, opened.folder, folder / "lake", as_name="own")
    return Lake(folder / "lake")


@pytest.mark.parametrize("newest", [1, 8, 9, 11, JOBS - 1])
def test_the_last_submitted_are_kept_with_their_use(lake: Lake, newest: int) -> None:
    said: list[str] = []
    tables = newest_tables(lake, "own", None, newest, said.append)
    whole, kept = lake.table("jobs", "own").collect(), tables.jobs["job_id"].to_list()
    assert len(kept) == newest
    left_out = whole.filter(~pl.col("job_id").is_in(kept))
    assert left_out["submit_ts"].max() <= tables.jobs["submit_ts"].min()  # type: ignore[operator]  # both are times
    assert_frame_equal(tables.jobs.sort("job_id"), whole.filter(pl.col("job_id").is_in(kept)).sort("job_id"))
    assert set(tables.usage["job_id"]) == {each for each in kept if int(each) % 2}
    assert f"newest {newest} of {JOBS} jobs of own" in said[0]
    assert_frame_equal(read_tables(lake, "own", newest=newest).jobs, tables.jobs)
    said.clear()
    assert_frame_equal(newest_tables(lake, "own", None, JOBS, said.append).jobs, whole)
    assert said == []
