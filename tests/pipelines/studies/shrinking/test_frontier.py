"""The frontier of gain against harm: what dominates what, and which points are tried."""

import math

import numpy as np
import pytest

from pipelines.models.peaks import AlikeRecipe
from pipelines.simulation.advice import ConstantPredictor
from pipelines.studies.shrinking.frontier import Eased, Point, frontier, points, undominated
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import Job, Request
from tests.pipelines.studies.shrinking.tiny import PREDICTOR, SMALL, pool


def row(share: float, *, killed: int = 0, stretch: float = 1.0, gnn: str = "without") -> dict[str, object]:
    return {"share": share, "killed": killed, "stretch_p99": stretch, "gnn": gnn}


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        ([row(0.4), row(0.3)], [0.4]),
        ([row(0.4, killed=1), row(0.3)], [0.4, 0.3]),
        ([row(0.4, stretch=1.1), row(0.3)], [0.4, 0.3]),
        ([row(0.4, gnn="with"), row(0.3)], [0.4, 0.3]),
        ([row(0.4), row(0.4)], [0.4, 0.4]),
    ],
)
def test_a_point_is_left_out_where_another_gains_more_with_no_more_harm(
    rows: list[dict[str, object]], kept: list[float]
) -> None:
    assert [found["share"] for found in undominated(rows)] == kept


def test_the_grid_is_around_a_policy_and_varies_one_thing_at_a_time() -> None:
    grid = points()

    assert grid[0].policy == ShrinkPolicy()
    assert len({repr(point) for point in grid}) == len(grid)
    assert any(math.isinf(point.policy.sure_runs) for point in grid)
    assert all(point.soft == 1.0 or point.hard == 1.0 for point in grid)


def test_every_point_stands_beside_the_first_with_an_interval_paired_by_seed() -> None:
    grid = [Point(), Point(), Point(soft=0.5)]

    rows = frontier(pool(), PREDICTOR, SMALL, seeds=[0, 1], grid=grid)

    for first, again, eased in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        assert first["completed_beside"] == again["completed_beside"] == 0.0
        gained = float(str(eased["completed"])) - float(str(first["completed"]))
        assert eased["completed_beside"] == pytest.approx(gained)
        assert again["completed_beside_lo"] == again["completed_beside_hi"] == 0.0


def test_eased_needs_are_taken_times_their_factor() -> None:
    asked = Request(cpu_cores=4.0, mem_gib=8.0, gpus=0.5)
    inner = ConstantPredictor(run_s=60.0, peak=asked, gpu_mem_gib=2.0)
    job = Job(job_id="a", trace="toy", task_type="ctr", request=asked)

    eased = Eased(inner=inner, soft=0.5, hard=0.25)
    use = eased.peak_use([job])

    assert (use.cpu_cores[0], use.mem_gib[0], use.gpus[0], use.gpu_mem_gib[0]) == (2.0, 2.0, 0.25, 0.5)
    assert use.runs.tolist() == inner.peak_use([job]).runs.tolist()
    assert eased.knowledge([job]) == inner.knowledge([job])
    assert eased.run_times([job], np.array([0]), np.array([asked.row()])).p50.tolist() == [60.0]


def test_what_is_measured_is_what_everybody_gets() -> None:
    assert points()[0] == Point(policy=ShrinkPolicy(), soft=1.0, hard=1.0)
    assert ShrinkPolicy().sure_runs == AlikeRecipe().least_groups
