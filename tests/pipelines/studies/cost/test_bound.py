"""The lower bound: worked by hand for one job, and below every policy's cost on random jobs."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.studies.cost import bound
from pipelines.studies.cost.bound import least_usd
from pipelines.studies.cost.simulation import FASTEST, Baseline, Site, SubmittedJobs, decided_greedily, simulate
from scheduler_core.planning.cost import Nodes, NodeType
from scheduler_core.planning.hourly import HourlySeries
from tests.examples import examples

HOUR = 3600.0
NODE = NodeType(name="n", gpu_type="p100", gpus=2, idle_w=200.0, gpu_active_w=900.0)


def site(*usd_per_kwh: float) -> Site:
    """Return one node of two GPUs, each 1 kW with its share of the idle power, at hourly prices that repeat."""
    price = HourlySeries(start_s=0.0, values=np.array(usd_per_kwh), unit="USD/kWh", wrap=True)
    return Site(nodes=Nodes(types=(NODE,), type_of=np.zeros(1, np.int64)), price=price, start_ts=0.0)


def jobs(count: int, hours: float, due_h: float, weight_usd_per_h: float = 1e3) -> SubmittedJobs:
    """Return equal jobs that come at once and run on one GPU only."""
    run_s = np.full((count, 1, 3), np.nan)
    run_s[:, 0, 1] = hours * HOUR
    return SubmittedJobs(
        submit_s=np.zeros(count),
        due_s=np.full(count, due_h * HOUR),
        weight_usd_per_s=np.full(count, weight_usd_per_h / HOUR),
        run_s=run_s,
        asked_gpus=np.ones(count, np.int64),
        off_by=np.ones(count),
    )


@pytest.mark.parametrize(
    ("prices", "hours", "due_h", "weight", "least"),
    [
        ((0.1, 0.3), 1.0, 10.0, 1e3, 0.1),  # in the cheap hour
        ((0.3, 0.1), 1.0, 2.0, 1e3, 0.1),  # the cheap hour is the second
        ((0.3, 0.1), 2.0, 2.0, 1e3, 0.4),  # due at once: both hours
        ((0.3, 0.1), 1.0, 1.0, 0.05, 0.15),  # an hour late at 5 cents, 20 cents less of energy
    ],
)
def test_one_job_is_bounded_by_its_cheapest_hours(
    prices: tuple[float, ...], hours: float, due_h: float, weight: float, least: float
) -> None:
    found = least_usd(jobs(1, hours, due_h, weight), site(*prices))

    assert 0.98 * least <= found <= least + 1e-9


def test_rents_find_that_jobs_cannot_all_have_the_gpus_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Four jobs of an hour on two GPUs, due in an hour: two of them are an hour late at 1 USD.
    crowd = jobs(4, 1.0, 1.0, 1.0)
    many = least_usd(crowd, site(0.1))
    monkeypatch.setattr(bound, "STEPS", 1)
    alone = least_usd(crowd, site(0.1))

    assert alone <= 0.4 + 1e-9
    assert 0.6 < many <= 2.4 + 1e-9


@settings(max_examples=examples(4))
@given(st.integers(0, 10_000))
def test_no_policy_costs_less(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 7))
    run_s = np.full((count, 1, 3), np.nan)
    run_s[:, 0, 1] = rng.uniform(0.2, 5.0, count) * HOUR
    run_s[:, 0, 2] = run_s[:, 0, 1] / rng.uniform(1.0, 2.0, count)
    submit_s = np.sort(rng.uniform(0.0, 10.0, count)) * HOUR
    drawn = replace(
        jobs(count, 1.0, 1.0),
        submit_s=submit_s,
        due_s=submit_s + rng.uniform(0.0, 8.0, count) * HOUR,
        weight_usd_per_s=rng.uniform(0.01, 1.0, count) / HOUR,
        run_s=run_s,
        off_by=rng.uniform(0.7, 1.4, count),
    )
    where = site(*rng.uniform(-0.1, 0.4, 24))

    least = least_usd(drawn, where)

    edf = Baseline(order="edf", configuration=FASTEST, preemptive=True)
    for policy in (decided_greedily, edf):
        assert least <= simulate(drawn, where, policy, np.random.default_rng(0)).total_usd + 1e-9
