"""What an event log says about kills and slowdowns on shared machines."""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.simulation.measures.event_log import events, explanations
from pipelines.simulation.results_folder import event_table
from tests.pipelines.simulation.shared.worlds import SHARINGS, simulated, world


@pytest.mark.parametrize("sharing", SHARINGS)
def test_every_kill_and_every_lost_second_is_explained(sharing: str) -> None:
    kills = 0
    for seed in range(12):
        run = simulated(world(seed, 40, arm="overcommit", policy="fifo", sharing=sharing, variation="default"))
        log = events(run.schedule)
        columns = explanations(run, log)
        killed = log["event"] == "kill"
        kills += int(killed.sum())

        assert killed.sum() == len(run.kills)
        assert np.all(columns["used_by_all"][killed] > columns["capacity"][killed])
        of_machine = np.array([text.startswith("memory of m") for text in columns["short_of"]])
        assert np.all(columns["used"][of_machine] <= columns["used_by_all"][of_machine])
        assert all(text.startswith("memory of ") for text in columns["short_of"][killed])
        assert not any(columns["short_of"][~killed])
        assert np.isnan(columns["used"][~killed]).all()
        assert np.array_equal(columns["lost_gpu_s"], run.lost_s[log["serial"], 1])
        assert event_table(run.schedule, {}, run).columns[-len(columns) :] == list(columns)
    assert kills > 0


def test_the_mean_speed_is_work_over_time_on_machines() -> None:
    drawn = world(3, 40, arm="overcommit", policy="fifo", sharing="pooled", variation="default")
    # Without memory there are no kills, so each job has at most one run.
    run = simulated(replace(drawn, load=replace(drawn.load, memory=np.zeros_like(drawn.load.memory))))
    schedule = run.schedule
    done = schedule.end_run_s <= schedule.end_s
    took_s = (schedule.end_run_s - schedule.start_s)[done]
    work_s = schedule.workload.run_s[schedule.job[done]]

    assert (run.speed < 1.0 - 1e-6).any()
    assert run.speed[schedule.job[done]] * took_s == pytest.approx(work_s)
