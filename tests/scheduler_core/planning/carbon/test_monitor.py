import dataclasses

import numpy as np
import pytest

from scheduler_core.errors import BadInput
from scheduler_core.planning.carbon.monitor import JobStates, next_round
from tests.scheduler_core.planning.carbon.made_rounds import jobs_of

SUBMITTED = jobs_of([[1.0, 1.5]] * 4, steps_left=[1000.0] * 4, perf=[0.5, 1.0], watts=[80.0, 200.0])
STATES = JobStates(
    submit_ts=np.array([0.0, 100.0, 200.0, 300.0]),
    seen_ts=np.array([500.0] * 4),
    steps_done=np.array([300.0, 100.0, 0.0, 400.0]),
    gpus=np.array([2, 1, 0, 1]),
    step=np.array([1, 0, 0, 1]),
    ended=np.array([False, False, False, True]),
)


def test_jobs_go_on_at_their_modelled_speed_since_they_were_seen() -> None:
    rows, jobs = next_round(SUBMITTED, STATES, 600.0)

    assert rows.tolist() == [0, 1, 2]
    assert jobs.steps_left.tolist() == [1000.0 - 300.0 - 150.0, 1000.0 - 100.0 - 50.0, 1000.0]
    assert jobs.age_s.tolist() == [600.0, 500.0, 400.0]


@pytest.mark.parametrize(("done", "left"), [(990.0, 100.0), (1000.0, 100.0), (5000.0, 500.0), (850.0, 100.0)])
def test_a_job_past_its_predicted_steps_has_some_left_while_it_goes_on(done: float, left: float) -> None:
    states = dataclasses.replace(STATES, steps_done=np.array([done, 0.0, 0.0, 0.0]))

    assert next_round(SUBMITTED, states, 600.0)[1].steps_left[0] == pytest.approx(left)


def test_no_jobs_are_left_when_all_have_ended() -> None:
    rows, jobs = next_round(SUBMITTED, dataclasses.replace(STATES, ended=np.ones(4, dtype=bool)), 600.0)

    assert len(rows) == len(jobs) == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ended": np.zeros(3, dtype=bool)}, "3 states of 4 jobs"),
        ({"step": np.zeros(3, dtype=np.int64)}, "3 states of 4 jobs in step"),
        ({"gpus": np.array([2, 1, 0, 3])}, "gpus below 0 or above 2"),
        ({"gpus": np.array([2, -1, 0, 1])}, "gpus below 0"),
        ({"step": np.array([1, 0, 0, 2])}, "step below 0 or above 1"),
        ({"seen_ts": np.array([900.0] * 4)}, "reported in the future"),
        ({"submit_ts": np.array([900.0] * 4)}, "reported in the future"),
        ({"steps_done": np.array([np.nan] * 4)}, "no number"),
    ],
)
def test_states_that_cannot_be_are_refused(changed: dict[str, np.ndarray], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        next_round(SUBMITTED, dataclasses.replace(STATES, **changed), 600.0)
