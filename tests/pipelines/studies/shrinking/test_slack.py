"""Where the slack went, by hand: resource-hours of an arrival, by type, resource and reason."""

from dataclasses import replace

import pytest

from pipelines.simulation.advice import ORACLE, REQUESTED
from pipelines.studies.shrinking.tables import slack_rows
from scheduler_core.recommendations import unchanged_request
from scheduler_core.types import Reason, Request
from tests.pipelines.studies.shrinking.tiny import pool


def test_what_floors_leave_is_told_by_type_and_reason() -> None:
    jobs = pool()
    requested = [unchanged_request(entry.job, Reason.SHRUNK) for entry in jobs.jobs]
    oracle = [
        replace(answer, target=Request(cpu_cores=2.0, mem_gib=29.3, gpus=answer.request.gpus)) for answer in requested
    ]
    reasons = {"cpu_cores": Reason.FLOOR, "mem_gib": Reason.COLD_START, "gpus": Reason.SHRUNK}
    shrunk = [
        replace(answer, target=Request(cpu_cores=3.0, mem_gib=29.3, gpus=answer.request.gpus), reasons=reasons)
        for answer in requested
    ]

    rows = slack_rows(jobs, {REQUESTED: requested, "shrunk": shrunk, ORACLE: oracle})

    mine = [row for row in rows if (row["gnn"], row["devices"]) == ("with", "all")]
    cpu = {row["task_type"]: row for row in mine if row["resource"] == "cpu_cores"}
    assert {row["arm"] for row in rows} == {"shrunk"}
    assert {row["reason"] for row in cpu.values()} == {"floor"}
    ctr = [entry for entry in jobs.jobs if entry.job.task_type == "ctr"]
    hours = 0.65 * sum(entry.measured.run_s * entry.job.instances for entry in ctr) / len(ctr) / 3600.0
    assert cpu["ctr"]["jobs"] == len(ctr)
    assert (cpu["ctr"]["requested"], cpu["ctr"]["needed"], cpu["ctr"]["given"]) == pytest.approx(
        (6.0 * hours, 2.0 * hours, 3.0 * hours)
    )
    # Of four cores that could go, three went: a quarter of the slack is left, summed over the types.
    assert sum(float(str(row["left_share"])) for row in cpu.values()) == pytest.approx(0.25)


def test_without_gnn_no_gnn_is_told_of() -> None:
    jobs = pool()
    requested = [unchanged_request(entry.job, Reason.SHRUNK) for entry in jobs.jobs]

    rows = slack_rows(jobs, {REQUESTED: requested, "shrunk": requested, ORACLE: requested})

    assert "gnn" not in {row["task_type"] for row in rows if row["gnn"] == "without"}
    assert "gnn" in {row["task_type"] for row in rows if row["gnn"] == "with"}
