"""Steps of the compiled environment of sites: 16 made-up weeks at once on 6 sites, an agent a site, on one core.

An agent's step is a decision about a job that has room somewhere; agents without such a job are not counted.
"""

import time
from functools import partial
from typing import Final

import numpy as np

from pipelines.simulation.sites.environment import begun, rows_of
from pipelines.simulation.sites.loop import act, prepare
from pipelines.simulation.sites.weeks import Weeks, part, stacked
from tests.benchmarks.harness import Bar, Row, amount_row, benchmark
from tests.pipelines.simulation.sites.made_weeks import week

WEEKS, SITES, JOBS, TAKES = 16, 6, 800, 5
BAR: Final = Bar(side="at least", value=200_000.0)


def sites_rows() -> list[Row]:
    """Measure steps with the features of every legal start written, under random legal actions."""
    weeks = stacked([week(seed, jobs=JOBS, count=SITES) for seed in range(WEEKS)])
    _rate(part(weeks, np.arange(1)), np.random.default_rng(0))  # compiles
    rates = [_rate(weeks, np.random.default_rng(take)) for take in range(TAKES)]
    return [amount_row(f"agent steps, {WEEKS} weeks at once, {SITES} sites", rates, unit="1/s", bar=BAR)]


def _rate(weeks: Weeks, rng: np.random.Generator) -> float:
    """Return agents' steps for a CPU second of the environment; drawing the actions is not counted."""
    state, (mask, rows) = begun(weeks), rows_of(weeks)
    earned, steps, spent = np.zeros(state.head.shape), 0, 0.0
    while True:
        begin = time.process_time()
        active = prepare(weeks, state, mask, rows)
        spent += time.process_time() - begin
        if not active:
            return steps / spent
        actions = (rng.random(mask.shape) * mask).argmax(axis=2)
        steps += int((state.head >= 0).sum())
        begin = time.process_time()
        act(weeks, state, actions, earned)
        spent += time.process_time() - begin


main = partial(benchmark, "energy", __doc__, {"sites": sites_rows})

if __name__ == "__main__":
    main()
