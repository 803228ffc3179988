"""How long the supervisor waits before it restarts a process."""

import os
import sys

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


def test_a_child_leaves_an_interrupt_to_its_parent() -> None:
    interrupted = "import os, signal; os.kill(os.getpid(), signal.SIGINT); raise SystemExit(7)"
    child = Child(Duty(name="a", command=(sys.executable, "-c", interrupted), environment=os.environ))
    end = child.start(0.0)
    end.setblocking(True)

    assert end.recv(1) == b""
    assert child.bury(0.0) == 7
