"""Waiting jobs get their requests back: which, by which words of `scontrol update`, and what a refusal does."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from modelserve.contract.feedback import BrakeHeld
from pipelines.connect.slurm.feedback import LOOK_EVERY, Restorer
from pipelines.errors import SourceError

NOW = datetime(2026, 11, 22, 17, 12, tzinfo=UTC)
JOB = {
    "job_id": 7, "array_task_string": "", "job_state": "PENDING", "restart_cnt": 0, "user_name": "anna", "tasks": 1,
    "name": "train", "tres_req_str": "cpu=2,mem=8G,node=1,billing=2",
    "admin_comment": "taut f8-1 mem 65536->8192 MiB, cpus-per-task 8->2",
}  # fmt: skip
NEWER = {
    "job_state": ["PENDING", "REQUEUED"],
    "restart_cnt": {"set": True, "number": 1},
    "tasks": {"set": True, "number": 1},
}
WHOLE = ["NumCPUs=8", "CPUsPerTask=8", "MinCPUsNode=8", "MinMemoryNode=65536"]


def restored(
    *rows: dict[str, object], killed: Sequence[str] = (), brakes: Sequence[BrakeHeld] = ()
) -> list[tuple[str, list[str]]]:
    done: list[tuple[str, list[str]]] = []
    text = json.dumps({"jobs": [{**JOB, **row} for row in rows]})
    restorer = Restorer(
        say=lambda _: None, queue=lambda: text, update=lambda number, words: done.append((number, list(words)))
    )
    restorer.restore(NOW, killed, brakes)
    return done


def brake(**of: str) -> BrakeHeld:
    place = {"trace": "slurm", "cluster": "taut", "task_type": "other", "user": None, "group": None}
    return BrakeHeld.model_validate({**place, "why": "harm", "since": NOW, **of})


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"restart_cnt": 1}, WHOLE),
        (NEWER, WHOLE),
        ({}, []),
        ({"restart_cnt": 1, "job_state": "RUNNING"}, []),
        ({"restart_cnt": 1, "admin_comment": "taut f8-1 would mem 65536->8192 MiB"}, []),
        ({"restart_cnt": 1, "admin_comment": ""}, []),
        ({"restart_cnt": 1, "tres_req_str": "cpu=8,mem=64G,node=1"}, []),  # it has all of it
        ({"restart_cnt": 1, "tres_req_str": "cpu=2,mem=9G,node=1"}, WHOLE[:3]),  # its user set the memory
        ({"restart_cnt": 1, "tres_req_str": "cpu=4,mem=8G,node=1"}, WHOLE[3:]),
        (
            {
                "restart_cnt": 1,
                "tres_req_str": "cpu=6,mem=600M,node=2",
                "admin_comment": "taut f8-1 mem-per-cpu 1024->100 MiB, cpus-per-task 4->2 x3",
            },
            ["NumCPUs=12", "CPUsPerTask=4", "MinCPUsNode=4", "MinMemoryCPU=1024"],
        ),
        (
            {
                "restart_cnt": 1,
                "tres_req_str": "cpu=2,mem=16G,node=2",
                "admin_comment": "site; taut f8-1 mem 65536->8192 MiB",
            },
            ["MinMemoryNode=65536"],
        ),
    ],
)
def test_a_requeued_job_gets_back_what_taut_took_and_no_more(row: dict[str, object], words: list[str]) -> None:
    assert restored(row) == ([("7", words)] if words else [])


@pytest.mark.parametrize(
    ("stops", "given_back"),
    [
        ({"killed": ["anna/train"]}, {"1", "2_[3-9]"}),
        ({"brakes": [brake(group="anna/train")]}, {"1", "2_[3-9]"}),
        ({"brakes": [brake(user="anna")]}, {"1", "2_[3-9]", "3"}),
        ({"brakes": [brake()]}, {"1", "2_[3-9]", "3", "4"}),
        ({"killed": ["anna/other"], "brakes": [brake(user="ben", group="x")]}, set()),
    ],
)
def test_after_harm_those_of_the_group_the_user_or_all_get_theirs_back(
    stops: dict[str, list[str]], given_back: set[str]
) -> None:
    rows: list[dict[str, object]] = [
        {"job_id": 1},
        {"job_id": 2, "array_task_string": "3-9"},
        {"job_id": 3, "name": "test"},
        {"job_id": 4, "user_name": "carla"},
    ]
    assert {number for number, _ in restored(*rows, **stops)} == given_back  # type: ignore[arg-type]  # lists of each


def test_a_refusal_is_told_once_and_stops_nothing() -> None:
    said, looks = list[str](), list[str]()
    text = json.dumps({"jobs": [{**JOB, "restart_cnt": 1}]})

    def queue() -> str:
        looks.append(text)
        return text

    def update(number: str, words: Sequence[str]) -> None:
        raise SourceError("scontrol failed: Access/permission denied")

    restorer = Restorer(say=said.append, queue=queue, update=update)
    for at in (NOW, NOW + LOOK_EVERY / 2, NOW + LOOK_EVERY, NOW + LOOK_EVERY + timedelta(seconds=1)):
        restorer.restore(at, (), ())

    assert len(looks) == 2
    assert len(said) == 1
    assert "job 7 keeps its smaller request" in said[0]
    assert "Access/permission denied" in said[0]


@pytest.mark.parametrize("text", ["", "[]", '{"jobs": 3}', '{"jobs": [{"job_id": 1}]}'])
def test_a_queue_that_cannot_be_read_is_told(text: str) -> None:
    said = list[str]()
    Restorer(say=said.append, queue=lambda: text).restore(NOW, (), ())
    assert len(said) == 1
    assert said[0].startswith("warning: no request is given back: squeue --json")
