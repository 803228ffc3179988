"""The scheduler's HTTP scale against the real application: what it says there is what the service's client is told."""

import math
from collections.abc import Iterator

import pytest

from modelserve.client import Client
from modelserve.client.advice import row_of
from modelserve.client.synchronous import HttpScale
from scheduler_core.types import RESOURCES, Job, Reason, Request
from tests.modelserve.running import running

NAN = math.nan


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("scale")) as address:
        yield address


def asked(job_id: str, **fields: object) -> Job:
    said = {
        "trace": "pai",
        "task_type": "ctr",
        "user": "u1",
        "group": "g0",
        "cluster": "pai",
        "role": "worker",
        "gpu_type": "T4",
        "instances": 2,
        "submit_ts": 1596274200.0,
        "request": Request(cpu_cores=6.0, mem_gib=29.3, gpus=0.5),
    }
    return Job(job_id=job_id, **{**said, **fields})


JOBS = [
    asked("a"),
    asked("b", task_type="speech"),
    asked("c", opted_out=True),
    asked("d", request=Request(cpu_cores=NAN, mem_gib=29.3, gpus=NAN)),
    asked("e", minimum=Request(cpu_cores=5.0, mem_gib=NAN, gpus=NAN)),
    asked("f", user=None, group="nobody's", submit_ts=0.0),
]


@pytest.mark.parametrize("guard", [None, "none"])
def test_the_scale_says_what_the_client_says(service: str, guard: str | None) -> None:
    with Client(service) as client:
        rows = [row for job in JOBS for row in client.recommendations([_row(job)], guard=guard)]
    with HttpScale(service, guard=guard, heed_mode=False) as scale:
        answers = scale(JOBS)
    assert Reason.SHRUNK in answers[0].reasons.values()
    for row, answer in zip(rows, answers, strict=True):
        told = dict(zip(RESOURCES, answer.target.row(), strict=True))
        assert {name: None if math.isnan(value) else value for name, value in told.items()} == row.target.model_dump()
        assert answer.reasons == {name: reason for name, reason in row.reasons if reason is not None}
        assert answer.runs == row.measured_runs
        assert Reason.PREDICTOR_UNAVAILABLE not in answer.reasons.values()


def _row(job: Job) -> dict[str, object]:
    return row_of(job).model_dump(exclude_unset=True)
