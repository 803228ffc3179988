"""The sites as a multi-agent environment with PettingZoo's parallel interface: one agent a site.

Needs the optional package `pettingzoo`, which nothing else here imports. Training uses the compiled batch in `loop`.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from pipelines.simulation.sites.environment import begun, rows_of
from pipelines.simulation.sites.loop import act, prepare
from pipelines.simulation.sites.weeks import Weeks
from scheduler_core.kernels.sites.scoring import FEATURES
from scheduler_core.kernels.sites.value import STEPS_PER_H
from scheduler_core.planning.hourly import HOURS_PER_DAY

__all__ = ["SitesEnv"]

AHEAD_H: Final = (0, 6, 12, 24)

Observed = dict[str, np.ndarray[Any, Any]]  # Any: float32 observations and int8 masks


class SitesEnv(ParallelEnv[str, Observed, int]):  # type: ignore[misc]  # no types without the package
    """One week on S sites: each agent decides about its most urgent job that has room somewhere.

    Actions: 0 to S - 1 start the job at that site, S lets it wait for the rest of the step. The observation has the
    features of a start at each site (zeros if illegal), the agent's queue (jobs over 100, GPUs over its capacity),
    and of all sites price (USD/kWh) and carbon (kg/kWh) now and forecast in 6, 12 and 24 hours. All agents share the
    reward in USD. Several rounds may belong to one step of 15 minutes.
    """

    metadata = {"name": "taut_sites_v0", "render_modes": []}  # noqa: RUF012 - PettingZoo's own name and type

    def __init__(self, draw: Callable[[int | None], Weeks]) -> None:
        """`draw` returns the week (a batch of one) of a seed."""
        self._draw, self._weeks = draw, draw(None)
        self.possible_agents = [f"site_{site}" for site in range(self._weeks.capacity.shape[1])]
        self.agents: list[str] = []
        self.render_mode = None
        count = len(self.possible_agents)
        length = count * (len(FEATURES) + 2 * len(AHEAD_H)) + 2
        seen = spaces.Dict(
            {
                "observation": spaces.Box(-np.inf, np.inf, (length,), np.float32),
                "action_mask": spaces.Box(0, 1, (count + 1,), np.int8),
            }
        )
        self.observation_spaces = dict.fromkeys(self.possible_agents, seen)
        self.action_spaces = {agent: spaces.Discrete(count + 1) for agent in self.possible_agents}

    def observation_space(self, agent: str) -> spaces.Space[Any]:  # Any: PettingZoo's own type
        """Return the observation space of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space[Any]:  # Any: PettingZoo's own type
        """Return the action space of an agent."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Observed], dict[str, dict[str, Any]]]:  # Any: PettingZoo's own types
        """Begin the week that `draw` gives for a seed."""
        del options
        self._weeks = self._draw(seed)
        self._state = begun(self._weeks)
        self._mask, self._rows = rows_of(self._weeks)
        self.agents = list(self.possible_agents)
        prepare(self._weeks, self._state, self._mask, self._rows)
        return self._observed(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, int]
    ) -> tuple[
        dict[str, Observed], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
    ]:  # Any: PettingZoo's own types
        """Carry out one action of each agent; an illegal one waits."""
        chosen = np.array([[int(actions[agent]) for agent in self.agents]], dtype=np.int64)
        legal = np.take_along_axis(self._mask, chosen[..., None], axis=2)[..., 0]
        earned = np.zeros(chosen.shape)
        act(self._weeks, self._state, np.where(legal, chosen, len(self.agents)), earned)
        self._rows[:] = 0.0
        over = prepare(self._weeks, self._state, self._mask, self._rows) == 0
        agents, seen, usd = list(self.agents), self._observed(), float(earned.sum())
        if over:
            self.agents = []
        return (
            seen,
            dict.fromkeys(agents, usd),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
            {agent: {} for agent in agents},
        )

    def _observed(self) -> dict[str, Observed]:
        now, count = int(self._state.tally[0, 0]), len(self.possible_agents)
        hour = HOURS_PER_DAY + now // STEPS_PER_H
        at = [hour if ahead == 0 else hour + ahead - HOURS_PER_DAY for ahead in AHEAD_H]
        series = np.concatenate([self._weeks.price[0][:, at].ravel(), self._weeks.carbon[0][:, at].ravel() / 1e3])
        waiting = self._state.waiting[0, : self._state.tally[0, 1]]
        origin, gpus = self._weeks.jobs.origin[0, waiting], self._weeks.jobs.gpus[0, waiting]
        jobs = np.bincount(origin, minlength=count) / 100.0
        held = np.bincount(origin, weights=gpus, minlength=count) / self._weeks.capacity[0]
        return {
            agent: {
                "observation": np.concatenate(
                    [self._rows[0, site].ravel(), [jobs[site], held[site]], series],
                    dtype=np.float32,
                    casting="same_kind",
                ),
                "action_mask": self._mask[0, site].astype(np.int8),
            }
            for site, agent in enumerate(self.possible_agents)
        }
