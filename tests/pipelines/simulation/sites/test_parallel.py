"""PettingZoo's own test of the parallel interface, and that its rewards are those of the schedule.

Without the package the file is skipped, unless TAUT_REQUIRE_TOOLS=1 (as in CI).
"""

import os

import numpy as np
import pytest

if os.environ.get("TAUT_REQUIRE_TOOLS") != "1":
    pytest.importorskip("pettingzoo")

from pettingzoo.test import parallel_api_test

from pipelines.simulation.sites.environment import earned_usd
from pipelines.simulation.sites.parallel import SitesEnv
from tests.pipelines.simulation.sites.made_weeks import week


def made() -> SitesEnv:
    return SitesEnv(lambda seed: week(seed or 0, jobs=40))


def test_it_passes_pettingzoos_own_test() -> None:
    parallel_api_test(made(), num_cycles=200)


def test_rewards_add_up_to_what_the_jobs_earn() -> None:
    env, total, rng = made(), 0.0, np.random.default_rng(0)
    seen, _ = env.reset(seed=3)
    while env.agents:
        actions = {agent: int(rng.choice(np.flatnonzero(seen[agent]["action_mask"]))) for agent in env.agents}
        seen, rewards, *_ = env.step(actions)
        total += next(iter(rewards.values()))
    assert total == pytest.approx(earned_usd(env._weeks, env._state).sum())
    assert total != 0.0
