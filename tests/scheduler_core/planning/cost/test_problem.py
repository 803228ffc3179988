"""Problems and decisions that cannot be are refused."""

import numpy as np
import pytest

from scheduler_core.errors import BadInput
from scheduler_core.planning.cost.problem import Decision, Nodes, NodeType, Problem, WaitingJobs

SMALL = NodeType(name="small", gpu_type="P100", gpus=2, idle_w=100.0, gpu_active_w=200.0)
LARGE = NodeType(name="large", gpu_type="V100", gpus=4, idle_w=400.0, gpu_active_w=300.0)
NAN = np.nan
RUN_S = np.array(
    [
        [[NAN, 1000.0, 600.0, NAN, NAN], [NAN, 500.0, 300.0, NAN, 200.0]],
        [[NAN, 4000.0, NAN, NAN, NAN], [NAN, 2000.0, 1200.0, NAN, NAN]],
    ]
)


def problem(**changes) -> Problem:
    jobs = WaitingJobs(due_s=np.array([10_400.0, 11_000.0]), weight_usd_per_s=np.array([0.01, 0.02]), run_s=RUN_S)
    given = {
        "jobs": jobs,
        "nodes": Nodes(types=(SMALL, LARGE), type_of=np.array([0, 1, 1])),
        "now_s": 10_000.0,
        "usd_per_kwh": 0.36,
        "pue": 1.5,
        "period_s": 400.0,
    }
    return Problem(**(given | changes))


def decided(*pairs: tuple[int, int]) -> Decision:
    node, gpus = zip(*pairs, strict=True)
    return Decision(node=np.array(node), gpus=np.array(gpus))


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (decided((1, 4), (1, 1)), "5 GPUs taken on node 1"),
        (decided((0, 1), (0, 2)), "cannot run with"),
        (decided((3, 1), (-1, 0)), "nodes up to 3"),
        (decided((-1, 1), (-1, 0)), "postponed job with GPUs"),
        (decided((1, 5), (-1, 0)), "5 GPUs for a job"),
        (decided((-1, 0)), "found 1 jobs"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(decision, said):
    with pytest.raises(BadInput, match=said):
        problem().check(decision)


@pytest.mark.parametrize(
    "changes",
    [{"period_s": 0.0}, {"usd_per_kwh": np.nan}, {"pue": 0.5}, {"restart_s": -1.0}, {"current": Decision.nothing(3)}],
)
def test_problem_outside_its_domain_is_refused(changes):
    with pytest.raises(BadInput):
        problem(**changes)
