"""What a run time comes from: a model, the ended jobs of the first key that has any, or a prior."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from modelserve.bundle.bundle import Bundle, read_bundle
from modelserve.bundle.combination import Combination
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.bundle.served import basis_of
from modelserve.calls.predictions import predict
from modelserve.contract.jobs import Basis
from modelserve.contract.requests import JobRow

HISTORY_ALONE = ("reference", "similar_jobs", "same_gpus", "newest_jobs")
JOB = {"job_id": "a1", "task_type": "ctr", "cluster": "pai", "request": {"gpus": 0.5}, "role": "worker"}


@pytest.mark.parametrize(
    ("members", "counts", "expected"),
    [
        (None, (3, 5, 20), ("model", 3)),
        (("xgboost",), (0, 0, 0), ("model", 0)),
        (("reference", "forest"), (3, 5, 20), ("model", 3)),
        (HISTORY_ALONE, (3, 5, 20), ("similar_jobs", 3)),
        (HISTORY_ALONE, (0, 5, 20), ("same_gpus", 5)),
        (("reference",), (0, 0, 20), ("newest_jobs", 20)),
        (HISTORY_ALONE, (0, 0, 0), ("prior", 0)),
        (("same_gpus",), (3, 5, 20), ("same_gpus", 5)),
        (("newest_jobs",), (3, 5, 0), ("prior", 0)),
        (("typical",), (3, 5, 20), ("typical", 99)),
    ],
)
def test_the_basis_is_a_model_else_the_first_key_with_ended_jobs(
    members: Sequence[str] | None, counts: tuple[int, ...], expected: tuple[str, int]
) -> None:
    assert basis_of(members, counts, 99) == expected
    assert basis_of(members, counts, 99)[0] in get_args(Basis)


def with_members(bundle: Bundle, *members: str) -> InProcessPredictor:
    combination = Combination.new(members, rows=0).stored()
    changed = replace(bundle, card=bundle.card.model_copy(update={"combination": combination}))
    return InProcessPredictor(bundles={bundle.card.name: changed})


def test_predictions_without_the_service_name_their_basis(combined_bundle: Path) -> None:
    bundle = read_bundle(combined_bundle)
    asked = [
        {**JOB, "group": "g1"},
        {**JOB, "group": "new"},
        {**JOB, "group": "new", "request": {"gpus": 7.0}},
        {**JOB, "group": "new", "cluster": "new"},
        {**JOB, "task_type": "rl"},
    ]
    rows = [JobRow.model_validate(each) for each in asked]

    by_history = predict(rows, with_members(bundle, *HISTORY_ALONE), trace="pai")
    by_model = predict(rows, with_members(bundle, "xgboost", "similar_jobs"), trace="pai")

    assert [row["basis"] for row in by_history] == ["similar_jobs", "same_gpus", "newest_jobs", "prior", None]
    assert [row["ended_jobs"] for row in by_history[2:]] == [20, 0, None]
    assert 0 < by_history[0]["ended_jobs"] < 300
    assert [row["basis"] for row in by_model] == ["model"] * 4 + [None]
    assert [row["ended_jobs"] for row in by_model] == [by_history[0]["ended_jobs"], 0, 0, 0, None]
