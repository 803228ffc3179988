"""Mean waits and responses against the formulae of queueing theory: M/M/c and M/G/1 with SRPT."""

import heapq
import math
from typing import Any

import numpy as np
import pytest

from pipelines.simulation.engine.workload import Workload
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.queueing import Discipline
from tests.pipelines.simulation.engine.simulations import gpu_machines, run

Column = np.ndarray[Any, np.dtype[np.float64]]


def queue_of(arrive_s: Column, run_s: Column) -> Workload:
    """Return single-GPU jobs with exact predictions."""
    count = len(arrive_s)
    units = np.tile(np.array([0, 0, 1000], dtype=np.int64), (count, 1))
    zeros = np.zeros(count, dtype=np.int64)
    return Workload(
        arrive_s=arrive_s,
        request_units=units,
        granted_units=units,
        instances=zeros + 1,
        gpu_type=zeros + ANY_GPU_TYPE,
        user=zeros,
        priority=zeros.astype(np.float64),
        run_s=run_s,
        granted_run_s=run_s,
        dies=zeros.astype(np.bool_),
        fails=zeros.astype(np.bool_),
        predicted_s=run_s,
    )


def drawn(servers: int, utilisation: float, count: int, seed: int) -> tuple[Column, Column, float]:
    """Return arrivals and exponential run times of 100 s on average, and the arrivals per second."""
    arrivals_per_s = utilisation * servers / 100.0
    rng = np.random.default_rng(seed)
    arrive_s = np.cumsum(rng.exponential(1.0 / arrivals_per_s, count))
    return arrive_s, rng.exponential(100.0, count), arrivals_per_s


def waits_of(arrive_s: Column, run_s: Column, servers: int, engine: str = "python") -> Column:
    schedule = run(queue_of(arrive_s, run_s), gpu_machines(servers), engine=engine)
    waits_s = np.empty(len(arrive_s))
    waits_s[schedule.job] = schedule.start_s - arrive_s[schedule.job]
    return waits_s


@pytest.mark.parametrize("servers", [1, 3, 8])
def test_waits_are_those_of_a_queue_with_so_many_servers(servers: int) -> None:
    arrive_s, run_s, _ = drawn(servers, 0.95, 800, seed=6)

    free_at = [0.0] * servers
    expected = []
    for at_s, lasts_s in zip(arrive_s.tolist(), run_s.tolist(), strict=True):
        starts_s = max(at_s, heapq.heappop(free_at))
        expected.append(starts_s - at_s)
        heapq.heappush(free_at, starts_s + lasts_s)

    assert waits_of(arrive_s, run_s, servers) == pytest.approx(expected, abs=1e-6)
    assert max(expected) > 100.0


def erlang_c_wait_s(arrivals_per_s: float, mean_run_s: float, servers: int) -> float:
    """Return the mean wait of M/M/c: Erlang's C over (servers/mean_run - arrivals)."""
    load = arrivals_per_s * mean_run_s
    idle = sum(load**k / math.factorial(k) for k in range(servers))
    busy = load**servers / math.factorial(servers) * servers / (servers - load)
    return busy / (idle + busy) / (servers / mean_run_s - arrivals_per_s)


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "utilisation"), [(1, 0.6), (4, 0.7), (16, 0.8)])
def test_mean_waits_are_those_of_erlang(servers: int, utilisation: float) -> None:
    arrive_s, run_s, arrivals_per_s = drawn(servers, utilisation, 30_000, seed=20)
    expected_s = erlang_c_wait_s(arrivals_per_s, 100.0, servers)

    batches = waits_of(arrive_s, run_s, servers, engine="auto").reshape(30, 1000)[1:].mean(axis=1)
    error_s = batches.std(ddof=1) / math.sqrt(len(batches))

    assert error_s < 0.1 * expected_s, "sharp enough to fail"
    assert batches.mean() == pytest.approx(expected_s, abs=3.5 * error_s)


def srpt_response_s(arrivals_per_s: float, mean_run_s: float) -> float:
    """Return the mean response of M/M/1 under shortest remaining processing time.

    Schrage, Miller 1966: for a job of length x, with load rho(x) of the jobs up to x and F the lengths' distribution,
    T(x) = arrivals * (int_0^x t^2 dF(t) + x^2 (1 - F(x))) / (2 (1 - rho(x))^2) + int_0^x dt / (1 - rho(t)).
    """
    x = np.linspace(0.0, 30.0 * mean_run_s, 200_001)
    density = np.exp(-x / mean_run_s) / mean_run_s
    beyond = np.exp(-x / mean_run_s)

    def up_to(values: Column) -> Column:
        return np.concatenate([[0.0], np.cumsum((values[1:] + values[:-1]) / 2.0 * np.diff(x))])

    idle = 1.0 - arrivals_per_s * up_to(x * density)
    waits = arrivals_per_s * (up_to(x**2 * density) + x**2 * beyond) / (2.0 * idle**2)
    return float(up_to((waits + up_to(1.0 / idle)) * density)[-1])


@pytest.mark.slow
@pytest.mark.parametrize("utilisation", [0.5, 0.8])
def test_mean_responses_are_those_of_srpt(utilisation: float) -> None:
    arrive_s, run_s, arrivals_per_s = drawn(1, utilisation, 30_000, seed=4)
    # The formula stops whoever runs at once; a job that may run on for 1 of its 100 s is near enough.
    rules = Discipline(policy="srtf", quantum_s=1.0)

    schedule = run(queue_of(arrive_s, run_s), gpu_machines(1), rules, engine="auto")

    batches = (schedule.finished_s - arrive_s).reshape(30, 1000)[1:].mean(axis=1)
    error_s = batches.std(ddof=1) / math.sqrt(len(batches))
    expected_s = srpt_response_s(arrivals_per_s, 100.0)
    assert error_s < 0.1 * expected_s, "sharp enough to fail"
    assert batches.mean() == pytest.approx(expected_s, abs=3.5 * error_s)
