"""`taut job`: what a job asked for, was given and used, and what its next submission should ask for."""

import math

import pytest
from typer.testing import CliRunner

from modelserve.contract.jobs import Recommended
from pipelines.cli import app
from pipelines.connect.slurm.summary import rows_about
from scheduler_core.types import Request
from tests.modelserve.client.services import NAN, amounts_of
from tests.pipelines.connect.slurm.test_accounting import JOB, STEP, folded

SHRUNK = {**JOB, "ReqTRES": "cpu=2,mem=8G,node=1", "AdminComment": "taut f8-1 mem 65536->8192 MiB, cpus-per-task 8->2"}


def advice(mem_gib: float, *, raise_to: float = math.nan) -> Recommended:
    request = Request(cpu_cores=8.0, mem_gib=64.0, gpus=0.0)
    target = Request(cpu_cores=2.4, mem_gib=mem_gib, gpus=0.0)
    return Recommended.model_validate(
        {
            "job_id": "7", "mode": "enforce", "request": amounts_of(request), "target": amounts_of(target),
            "lower_bound": amounts_of(target), "run_time_s": {"p50": 500.0, "p90": 900.0}, "run_time_change": 0.0,
            "reasons": {"cpu_cores": "floor", "mem_gib": "floor", "gpus": "floor"}, "alpha": 1.0,
            "model_decided": False, "models": {"run_time": "a@1", "usage": "b@1"}, "history": None,
            "measured_runs": 30, "evidence": {"measured_runs": 30, "history_age_s": 1.0}, "note": None,
            "raise_to": amounts_of(Request(cpu_cores=NAN, mem_gib=raise_to, gpus=NAN)),
        }
    )  # fmt: skip


def options(*rows: dict[str, str], advised: Recommended | None = None) -> object:
    return rows_about(folded(*rows)[0], advised, "why")[-1]["next"]


def test_one_run_is_summed_up() -> None:
    rows = {row["resource"]: row for row in rows_about(folded(SHRUNK, STEP)[0], None, "one run")}
    assert [rows["mem_gib"][name] for name in ("asked", "given", "used", "next")] == [64.0, 8.0, 1.0, 1.2]
    assert [rows["cpu_cores"][name] for name in ("asked", "given")] == [8.0, 2.0]
    assert (rows["run_s"]["used"], rows["run_s"]["asked"], rows["wait_s"]["used"]) == (600.0, 3600.0, 60.0)
    assert rows["sbatch"]["next"] == "--cpus-per-task=8 --mem=1229M"  # it used all CPUs: its need is unknown


@pytest.mark.parametrize(
    ("job", "step", "advised", "expected"),
    [
        ({}, {}, None, "--cpus-per-task=3 --mem=1229M"),
        ({}, {}, advice(4.0), "--cpus-per-task=3 --mem=4096M"),
        ({}, {}, advice(0.5), "--cpus-per-task=3 --mem=1024M"),
        ({}, {}, advice(64.0, raise_to=70.0), "--cpus-per-task=3 --mem=71680M"),
        ({}, {"NTasks": "4"}, None, "--mem=1229M"),
        ({"ElapsedRaw": "5"}, {}, None, "--cpus-per-task=8 --mem=65536M"),
        ({"State": "OUT_OF_MEMORY"}, {"MaxRSS": "0"}, None, "--cpus-per-task=8 --mem=98304M"),
        ({"State": "OUT_OF_MEMORY"}, {"MaxRSS": "0"}, advice(64.0, raise_to=120.0), "--cpus-per-task=3 --mem=122880M"),
        ({**SHRUNK, "State": "OUT_OF_MEMORY"}, {"MaxRSS": "0"}, advice(8.0), "--cpus-per-task=3 --mem=65536M"),
        ({"State": "TIMEOUT"}, {}, None, "--cpus-per-task=3 --mem=1229M --time=120"),
    ],
)
def test_the_next_submission(
    job: dict[str, str], step: dict[str, str], advised: Recommended | None, expected: str
) -> None:
    assert options({**JOB, **job}, {**STEP, **step}, advised=advised) == expected


@pytest.mark.parametrize("number", ["x", "1;ls", "--help-me", "7.batch"])
def test_a_wrong_number_is_refused(number: str) -> None:
    result = CliRunner().invoke(app, ["job", "--", number])
    assert result.exit_code == 2
    assert "expected the number of a job" in result.stderr
