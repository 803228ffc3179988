"""What becomes of a job that something stops on its way to a kill, and what of it a warm-up leaves out."""

import pytest

from pipelines.simulation.engine.schedule import Ending
from pipelines.simulation.measures.job_metrics import job_metrics
from pipelines.simulation.measures.metrics import summarise
from tests.pipelines.simulation.engine.schedules import Came, Ran, schedule

DOOMED = Came(granted=(2.0, 4.0, 1.0), run_s=40.0, granted_run_s=20.0, dies=True)
"""It would run 40 s, and dies 20 s into what it is given."""


@pytest.mark.parametrize(
    ("ending", "stretch"),
    [
        # 10 s held, 10 s to the kill (20 s where all is lost), and the full 40 s after it.
        (Ending.PREEMPTED, (10 + 10 + 40) / 40),
        (Ending.INTERRUPTED, (10 + 20 + 40) / 40),
    ],
)
def test_what_waits_on_its_way_to_a_kill_still_has_the_full_run_before_it(ending: Ending, stretch: float) -> None:
    became = job_metrics(schedule([DOOMED], [Ran(job=0, start_s=0.0, end_s=10.0, ending=ending)], end_s=30.0))

    assert became.waiting.all()
    assert became.stretch.tolist() == [pytest.approx(stretch)]


@pytest.mark.parametrize("ending", [Ending.PREEMPTED, Ending.INTERRUPTED])
def test_after_the_kill_only_the_full_run_is_to_come(ending: Ending) -> None:
    ran = [
        Ran(job=0, start_s=0.0, end_s=20.0, ending=Ending.KILLED),
        Ran(job=0, start_s=20.0, end_s=30.0, ending=ending, full=True),
    ]

    became = job_metrics(schedule([DOOMED], ran, end_s=50.0))

    kept_s = 10 if ending == Ending.PREEMPTED else 0
    assert became.stretch.tolist() == [pytest.approx((20 + 10 + 40 - kept_s) / 40)]


@pytest.mark.parametrize(
    ("ending", "figure"), [(Ending.KILLED, "killed_gpu_h"), (Ending.INTERRUPTED, "interrupted_gpu_h")]
)
def test_what_was_lost_counts_from_the_end_of_the_warm_up(ending: Ending, figure: str) -> None:
    ran = schedule([DOOMED], [Ran(job=0, start_s=0.0, end_s=20.0, ending=ending)], end_s=30.0)

    assert getattr(summarise(ran), figure) == pytest.approx(1 * 20 / 3600)
    assert getattr(summarise(ran, warm_up_s=15.0), figure) == pytest.approx(1 * 5 / 3600)


def test_what_never_fits_counts_only_where_it_came_after_the_warm_up() -> None:
    ran = schedule([Came(never_fits=True), Came(at_s=50.0, never_fits=True)])

    assert summarise(ran).never_fits == 2
    assert summarise(ran, warm_up_s=40.0).never_fits == 1
