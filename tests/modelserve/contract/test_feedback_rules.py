"""Feedback rules: what counts as shrunk, and what may be learnt from it."""

from dataclasses import replace

import pytest

from features.vocabulary import ONGOING, Status
from modelserve.contract.feedback_rules import STATUS_OF_OUTCOME, shrunk_resources, teachable_use
from tests.modelserve.feedback_cases import JOB

SHRUNK = replace(JOB, alloc_mem_gib=10.0)


@pytest.mark.parametrize(
    ("changes", "shrunk"),
    [
        ({}, ()),
        ({"alloc_mem_gib": 10.0}, ("mem_gib",)),
        ({"alloc_cpu_cores": 3.0, "alloc_gpus": 0.25}, ("cpu_cores", "gpus")),
        ({"alloc_mem_gib": 30.0}, ()),
        ({"alloc_mem_gib": 20.0 * (1 - 1e-9)}, ()),
        ({"alloc_mem_gib": None}, ()),
        ({"req_mem_gib": None, "alloc_mem_gib": 1.0}, ()),
    ],
)
def test_less_than_asked_for_is_shrunk(changes: dict[str, float | None], shrunk: tuple[str, ...]) -> None:
    assert shrunk_resources(replace(JOB, **changes)) == shrunk  # type: ignore[arg-type]


def test_an_unshrunk_job_teaches_all_it_measured() -> None:
    use = teachable_use(JOB)

    assert (use.cpu_cores, use.gpus, use.mem_max_gib, use.gpu_mem_max_gib) == (2.0, 0.1, 8.0, 3.0)


@pytest.mark.parametrize(("used", "taught_gib"), [(8.0, 8.0), (8.9, 8.9), (9.0, None), (9.5, 9.5), (None, None)])
def test_use_near_a_smaller_allocation_teaches_upwards_only(used: float | None, taught_gib: float | None) -> None:
    use = teachable_use(replace(SHRUNK, mem_max_gib=used))

    assert use.mem_max_gib == taught_gib
    assert use.cpu_cores == 2.0


@pytest.mark.parametrize(
    ("changes", "taught_gib"),
    [
        ({}, 20.0),
        ({"mem_max_gib": 21.0}, 21.0),
        ({"mem_max_gib": None}, 20.0),
        ({"alloc_mem_gib": None}, 8.0),
        ({"alloc_mem_gib": 10.0}, 10.0),
        ({"alloc_mem_gib": 8.5}, None),
    ],
)
def test_a_job_killed_for_memory_needed_its_allocation_at_least(
    changes: dict[str, float | str | None], taught_gib: float | None
) -> None:
    row = replace(JOB, **{"outcome": "oom", **changes})  # type: ignore[arg-type]

    assert teachable_use(row).mem_max_gib == taught_gib


@pytest.mark.parametrize(("outcome", "taught"), [("failed", None), ("cancelled", None), ("timeout", 8.0)])
def test_a_job_that_ended_before_it_was_done_teaches_upwards_only(outcome: str, taught: float | None) -> None:
    row = replace(JOB, outcome=outcome)  # type: ignore[arg-type]

    assert teachable_use(row).mem_max_gib == taught
    assert teachable_use(replace(row, mem_max_gib=19.0)).mem_max_gib == 19.0


def test_every_outcome_is_a_status() -> None:
    assert {str(status): status for status in Status if status not in ONGOING} == STATUS_OF_OUTCOME


def test_a_shrunk_share_of_a_gpu_holds_its_memory_too() -> None:
    use = teachable_use(replace(JOB, alloc_gpus=0.1))

    assert (use.gpus, use.gpu_mem_max_gib) == (None, None)
    assert use.measured


def test_without_a_prediction_a_shrunk_resource_teaches_nothing() -> None:
    use = teachable_use(replace(SHRUNK, peak_mem_gib=None, mem_max_gib=10.0))

    assert use.mem_max_gib is None
