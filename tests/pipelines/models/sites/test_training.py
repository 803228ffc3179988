"""Training on made-up weeks, periods that do not overlap, gradients, and the file of a policy."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from modelserve.bundle.routing_policy import read_routing_policy, write_routing_policy
from modelserve.errors import BundleError
from pipelines.models.sites.judging import routing_policy
from pipelines.models.sites.mappo import Network, played, trained_agents
from pipelines.models.sites.recorded import PERIODS
from pipelines.models.sites.training import Budget, trained_scorer, tuned_rolling, usd_of
from pipelines.simulation.sites.weeks import stacked
from scheduler_core.kernels.sites.value import FEATURES
from scheduler_core.planning.sites import policy
from scheduler_core.types import FloatArray
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


def test_a_scorer_is_deterministic_and_no_worse_than_its_begin_on_the_tuning_weeks() -> None:
    weeks, tuning = stacked([week(seed) for seed in range(3)]), week(7)
    one, again = (trained_scorer(weeks, tuning, 3, SMALL) for _ in range(2))
    assert np.array_equal(one.params, again.params)
    assert usd_of(tuning, one).sum() > usd_of(tuning, policy("local")).sum()


def test_the_tuned_plan_is_the_best_of_its_grid() -> None:
    tuning = week(5)
    best = usd_of(tuning, tuned_rolling(tuning)).sum()
    assert best >= usd_of(tuning, policy("rolling", (0.1, 0.1))).sum()


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
    made = routing_policy(week(), policy("rolling", (0.1, 0.2)), TERMS)
    write_routing_policy(tmp_path / "p.npz", made)
    found = read_routing_policy(tmp_path / "p.npz")
    assert found.policy.name == "rolling"
    assert found.policy.params.tolist() == [0.1, 0.2]
    assert np.array_equal(found.support.low, made.support.low)
    assert found.miss_usd == TERMS.miss_usd


@pytest.mark.parametrize("content", [b"", b"no policy", b"\x80\x04pickle"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "p.npz").write_bytes(content)
    with pytest.raises(BundleError, match="not a policy"):
        read_routing_policy(tmp_path / "p.npz")


WRITTEN = {
    "name": np.array("scorer"),
    "params": np.zeros(len(FEATURES)),
    "support": np.zeros((2, len(FEATURES))),
    "terms": np.ones(5),
}


@pytest.mark.parametrize(
    "changed",
    [
        {"name": np.array([{}], dtype=object)},
        {"name": np.array("unknown")},
        {"params": np.zeros(len(FEATURES) - 1)},
        {"params": np.full(len(FEATURES), np.nan)},
        {"params": np.zeros(len(FEATURES), dtype=complex)},
        {"params": np.zeros(10_000_000)},
        {"support": np.zeros((2, len(FEATURES) + 1))},
        {"support": np.full((2, len(FEATURES)), np.nan)},
        {"terms": np.full(5, np.nan)},
        {"terms": np.full(5, 1e300)},
        {"terms": np.zeros(5)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_arrays_of_another_kind_shape_or_size_are_refused(tmp_path: Path, changed: dict[str, FloatArray]) -> None:
    np.savez_compressed(tmp_path / "p.npz", **WRITTEN)
    assert read_routing_policy(tmp_path / "p.npz").policy.name == "scorer"
    np.savez_compressed(tmp_path / "p.npz", **WRITTEN | changed)
    with pytest.raises(BundleError, match="not a policy"):
        read_routing_policy(tmp_path / "p.npz")


def test_a_file_cut_off_or_plain_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", **WRITTEN)
    content = (tmp_path / "p.npz").read_bytes()
    np.save(tmp_path / "plain.npy", np.zeros(3))
    for wrong in (content[: len(content) // 2], content[:-30], (tmp_path / "plain.npy").read_bytes()):
        (tmp_path / "p.npz").write_bytes(wrong)
        with pytest.raises(BundleError, match="not a policy"):
            read_routing_policy(tmp_path / "p.npz")
