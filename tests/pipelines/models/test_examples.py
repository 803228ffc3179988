"""Examples: what was known at a cut, the columns a contract keeps, and fingerprints."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from features.history import History
from pipelines.errors import TrainingError
from pipelines.models import examples
from tests.pipelines.models.conftest import T0, MakeJobs

CUT = T0 + timedelta(days=20)


def test_what_was_known_at_a_cut_holds_nothing_that_lay_ahead(jobs: pl.DataFrame) -> None:
    known = examples.known_at(jobs, CUT)

    assert known["submit_ts"].max() < CUT
    assert known["end_ts"].drop_nulls().max() < CUT
    assert known["start_ts"].drop_nulls().max() < CUT
    later = known.filter(pl.col("end_ts").is_null())
    assert later["run_s"].null_count() == later.height
    assert set(later["status"].cast(pl.String)) <= {"running", "waiting"}
    assert known.height - later.height == jobs.filter(pl.col("end_ts") < CUT, pl.col("submit_ts") < CUT).height


def test_a_job_that_runs_across_the_cut_is_running_and_one_that_waits_is_waiting(jobs: pl.DataFrame) -> None:
    one = jobs[:1].with_columns(submit_ts=pl.lit(CUT) - timedelta(hours=2), end_ts=pl.lit(CUT) + timedelta(hours=2))
    running = one.with_columns(start_ts=pl.lit(CUT) - timedelta(hours=1))
    waiting = one.with_columns(start_ts=pl.lit(CUT) + timedelta(hours=1))

    known = examples.known_at(pl.concat([running, waiting]), CUT)

    assert known["status"].cast(pl.String).to_list() == ["running", "waiting"]
    assert known["start_ts"].null_count() == 1


def test_a_contract_keeps_what_varies_and_every_request(jobs: pl.DataFrame) -> None:
    fixed = jobs.with_columns(req_cpu_cores=pl.lit(6.0), gpu_type=pl.lit("T4"))
    made = examples.examples_of(fixed, None, "ctr", by="kind", history=History.of(fixed), names="submit")

    contract = examples.contract_of(made.features, np.arange(400))

    assert "req_cpu_cores" in contract.names
    assert "group_run_s_p50_20" in contract.names
    assert "gpu_type" not in contract.names
    assert "vc" not in contract.names


def test_types_come_most_rows_first_and_untagged_rows_have_no_workload(jobs_maker: MakeJobs) -> None:
    both = pl.concat([jobs_maker(10, 1), jobs_maker(30, 2, task_type="nlp")])

    assert examples.task_types(both, "kind") == ["nlp", "ctr"]
    with pytest.raises(TrainingError, match="no row has a workload"):
        examples.task_types(both.with_columns(workload=pl.lit(None, pl.String)), "workload")


def test_a_fingerprint_follows_the_rows_and_not_their_order(jobs: pl.DataFrame) -> None:
    print_of = examples.fingerprint

    assert print_of(jobs) == print_of(jobs.reverse())
    assert print_of(jobs) != print_of(jobs.with_columns(run_s=pl.col("run_s") + 1))
    assert print_of(jobs) != print_of(jobs[1:])


def test_support_is_the_range_of_what_was_asked_for(jobs: pl.DataFrame) -> None:
    without_memory = jobs.with_columns(req_mem_gib=pl.lit(None, pl.Float64))

    assert examples.support_of(without_memory) == {"cpu_cores": (4.0, 8.0), "gpus": (0.25, 2.0)}


def test_open_run_time_is_counted_from_the_start_and_zero_before_it(jobs: pl.DataFrame) -> None:
    at = datetime(2021, 4, 1, tzinfo=UTC)
    two = jobs[:2].with_columns(start_ts=pl.Series([at, at + timedelta(hours=9)], dtype=pl.Datetime("us", "UTC")))
    made = examples.examples_of(two, None, "ctr", by="kind", history=History.of(jobs), names="request")

    assert made.open_run_s(np.array([0, 1]), at + timedelta(hours=3)).tolist() == [3 * 3600.0, 0.0]
