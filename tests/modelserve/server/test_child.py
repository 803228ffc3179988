"""How long the supervisor waits before it restarts a process."""

import os

import pytest

from modelserve.server.child import FIRST_PAUSE_S, Child, Duty


@pytest.mark.parametrize(("ran_s", "pauses"), [(20.0, [1, 1, 1, 1]), (1.0, [1, 2, 4, 8])])
def test_only_a_process_that_ends_soon_waits_longer_each_time(ran_s: float, pauses: list[int]) -> None:
    child, now, waited = Child(Duty(name="a", command=("true",), environment=os.environ)), 0.0, []
    for _ in pauses:
        child.start(now)
        now += ran_s
        child.bury(now)
        waited.append(child.due_at - now)

    assert waited == pytest.approx([FIRST_PAUSE_S * times for times in pauses])
