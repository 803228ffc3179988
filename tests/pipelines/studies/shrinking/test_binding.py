"""Whom each resource keeps waiting, and what holds its slack back, by hand."""

import pytest

from pipelines.studies.shrinking.tables import binding_rows

PLACE = {"gnn": "with", "devices": "all", "arm": "shrunk"}
HARM = {**PLACE, "truth": "contention", "cpu_lacked_share": 0.9, "mem_lacked_share": 0.0, "gpu_lacked_share": 0.4}


def slack(resource: str, kind: str, reason: str, left: float) -> dict[str, object]:
    return {**PLACE, "resource": resource, "task_type": kind, "reason": reason, "left_share": left}


SLACK = [
    slack("cpu_cores", "ctr", "floor", 0.3),
    slack("cpu_cores", "nlp", "floor", 0.1),
    slack("cpu_cores", "nlp", "cold_start", 0.35),
    slack("gpus", "ctr", "cold_start", 0.5),
    slack("gpus", "ctr", "shrunk", 0.1),
]


def test_a_resource_says_who_lacks_it_and_what_leaves_most_of_its_slack() -> None:
    cpu, gpus = binding_rows([HARM], SLACK)

    assert (cpu["resource"], cpu["lacked_share"], cpu["binds"]) == ("cpu_cores", 0.9, True)
    assert (cpu["left_by"], cpu["left_by_type"]) == ("floor", "ctr")
    assert (cpu["left_share"], cpu["left_by_share"]) == (pytest.approx(0.75), pytest.approx(0.4))
    assert (gpus["binds"], gpus["left_by"], gpus["floor_share"]) == (False, "cold_start", 0.0)


def test_only_contention_is_told_and_only_of_the_arms_that_shrink() -> None:
    assert binding_rows([{**HARM, "truth": "unchanged"}, {**HARM, "arm": "oracle"}], SLACK) == []
