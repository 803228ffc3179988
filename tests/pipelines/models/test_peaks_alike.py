"""Bounds of jobs alike: which cells are spoken of, and at which rank."""

import polars as pl
import pytest

from pipelines.models.peaks import AlikeRecipe, Bound, alike_of

COLUMNS = {"cpu_cores": "used_cpu_cores", "mem_gib": "mem_max_gib", "gpu_mem_gib": "gpu_mem_max_gib"}
PLAIN = AlikeRecipe(least_groups=3, bounds=dict.fromkeys(COLUMNS, Bound(level=0.5, factor=1.0)))


def jobs(**changed: list[object]) -> pl.DataFrame:
    """Return four measured workers of four groups, all asking for six cores and 2 GiB."""
    return pl.DataFrame(
        {
            "job_id": ["1", "2", "3", "4"],
            "role": ["worker"] * 4,
            "group": ["a", "b", "c", "d"],
            "user": ["u"] * 4,
            "vc": [None] * 4,
            "req_cpu_cores": [6.0] * 4,
            "req_mem_gib": [2.0] * 4,
            "req_gpus": [0.25] * 4,
            "used_cpu_cores": [1.0, 2.0, 3.0, 9.0],
            "mem_max_gib": [1.0, 1.0, 1.0, 5.0],
            "gpu_mem_max_gib": [0.5, None, None, 1.0],
            **changed,
        },
        schema_overrides={"vc": pl.String, "gpu_mem_max_gib": pl.Float64},
    )


def test_the_bound_is_the_conformal_rank_of_the_needs() -> None:
    [found] = alike_of(jobs(), COLUMNS, PLAIN)

    # ceil((4 + 1) / 2) is the third of four; of the two that were measured, the second.
    assert (found.role, found.groups, found.cpu_cores, found.needs) == (
        "worker",
        4,
        6.0,
        {"cpu_cores": 3.0, "mem_gib": 1.0, "gpu_mem_gib": 1.0},
    )


def test_a_need_is_never_above_the_request_before_its_factor() -> None:
    bounds = dict.fromkeys(COLUMNS, Bound(level=1.0, factor=1.5))

    [found] = alike_of(jobs(), COLUMNS, AlikeRecipe(least_groups=3, bounds=bounds))

    assert found.needs == {"cpu_cores": 9.0, "mem_gib": 3.0, "gpu_mem_gib": 1.5}


@pytest.mark.parametrize(
    "changed",
    [
        {"group": ["a", "a", "b", "b"]},
        {"req_mem_gib": [2.0, 2.0, 4.0, 4.0]},
        {"role": ["worker", "worker", "evaluator", "evaluator"]},
        {"role": ["ps"] * 4},
    ],
)
def test_too_few_groups_of_one_role_and_request_say_nothing(changed: dict[str, list[object]]) -> None:
    assert alike_of(jobs(**changed), COLUMNS, PLAIN) == ()


def test_the_order_of_the_rows_does_not_matter() -> None:
    assert alike_of(jobs(), COLUMNS, PLAIN) == alike_of(jobs()[[2, 0, 3, 1]], COLUMNS, PLAIN)


def test_cells_come_with_most_groups_first() -> None:
    more = pl.concat([jobs(), jobs(req_cpu_cores=[8.0] * 4)[:3]]).with_columns(group=pl.int_range(7).cast(pl.String))

    assert [each.groups for each in alike_of(more, COLUMNS, PLAIN)] == [4, 3]
