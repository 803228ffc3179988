"""Training on made-up weeks, periods that do not overlap, gradients, and the file of a policy."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from modelserve.bundle.routing_policy import TERMS as TERM_NAMES
from modelserve.bundle.routing_policy import read_routing_policy, write_routing_policy
from modelserve.errors import BundleError
from pipelines.models.sites.judging import routing_policy
from pipelines.models.sites.mappo import Network, played, trained_agents
from pipelines.models.sites.recorded import PERIODS
from pipelines.models.sites.training import Budget, trained_scorer, usd_of
from pipelines.simulation.sites.weeks import stacked
from scheduler_core.kernels.site_value import FEATURES
from scheduler_core.planning.sites import policy
from tests.pipelines.simulation.sites.made_weeks import TERMS, week

SMALL = Budget(generations=4, tries=6, elite=2, weeks=2)


def test_periods_share_no_month_and_no_recorded_week() -> None:
    weeks = [PERIODS[name].weeks for name in ("train", "tune", "judge")]
    assert all(one[1] <= other[0] for one, other in pairwise(weeks))
    mondays = [day for period in PERIODS.values() for day in period.mondays(2023)]
    assert mondays == sorted(set(mondays))
    assert {day.weekday() for day in mondays} == {0}
    assert max(PERIODS["train"].mondays(2023)).month == 8
    assert len(PERIODS["judge"].mondays(2023)) == 11


@pytest.mark.slow
def test_a_scorer_is_deterministic_and_no_worse_than_its_begin_on_the_tuning_weeks() -> None:
    weeks, tuning = stacked([week(seed) for seed in range(3)]), week(7)
    one, again = (trained_scorer(weeks, tuning, 3, SMALL) for _ in range(2))
    assert np.array_equal(one.params, again.params)
    assert usd_of(tuning, one).sum() > usd_of(tuning, policy("local")).sum()


def test_gradients_of_the_network_are_those_of_differences() -> None:
    rng = np.random.default_rng(0)
    net = Network.drawn(rng.standard_normal(5), rng)
    net.weights[4] = rng.standard_normal(64)
    rows, slope = rng.standard_normal((7, 5)), rng.standard_normal(7)
    found = net.slopes(rows, slope)
    for weight, each in zip(net.weights, found, strict=True):
        at = tuple(0 for _ in weight.shape)
        weight[at] += 1e-6
        more = float(slope @ net(rows))
        weight[at] -= 2e-6
        assert (more - float(slope @ net(rows))) / 2e-6 == pytest.approx(each[at], rel=1e-4, abs=1e-6)
        weight[at] += 1e-6


@pytest.mark.slow
def test_agents_keep_their_best_weights() -> None:
    weeks, tuning = stacked([week(seed, jobs=40) for seed in range(2)]), week(7, jobs=40)
    begin = played(tuning, trained_agents(weeks, tuning, 0, iterations=0)).sum()
    assert played(tuning, trained_agents(weeks, tuning, 0, iterations=4, batch=2)).sum() >= begin


def test_a_policy_is_read_as_it_was_written(tmp_path: Path) -> None:
    weights = [0.1 * place for place in range(len(FEATURES))]
    made = routing_policy(week(), policy("scorer", weights), TERMS)
    write_routing_policy(tmp_path / "p.json", made)
    found = read_routing_policy(tmp_path / "p.json")
    assert found.policy.name == "scorer"
    assert found.policy.params.tolist() == weights
    assert np.array_equal(found.support.low, made.support.low)
    assert found.miss_usd == TERMS.miss_usd


ZEROS = [0.0] * len(FEATURES)
WRITTEN = {"name": "scorer", "params": ZEROS, "low": ZEROS, "high": ZEROS, **dict.fromkeys(TERM_NAMES, 1.0)}


@pytest.mark.parametrize(
    "changed",
    [
        {"name": {}},
        {"name": "unknown"},
        {"params": ZEROS[1:]},
        {"params": [float("nan"), *ZEROS[1:]]},
        {"params": ["x", *ZEROS[1:]]},
        {"params": [0.0] * 1_000_000},
        {"low": [*ZEROS, 0.0]},
        {"high": [float("inf"), *ZEROS[1:]]},
        {"miss_usd": float("nan")},
        {"carbon_usd_per_t": 1e300},
        {"worth_usd_per_gpu_h": 0.0},
        {"more": 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_file_of_another_kind_shape_or_size_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    place = tmp_path / "p.json"
    place.write_text(json.dumps(WRITTEN))
    assert read_routing_policy(place).policy.name == "scorer"
    for content in (json.dumps(WRITTEN | changed), json.dumps(WRITTEN)[:-9], "", "\x80pickle"):
        place.write_text(content)
        with pytest.raises(BundleError, match="not a policy"):
            read_routing_policy(place)
