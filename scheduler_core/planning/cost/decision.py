"""One decision on all the jobs there are: the greedy, many of them at random, and path relinking between the best.

What a decision costs is told by `objective`. Called by the simulation of costs, the experiments and the benchmarks.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.cost.greedy import greedy
from scheduler_core.planning.cost.problem import Decision, Problem
from scheduler_core.planning.cost.randomised import Search, sought

ITERATIONS: Final = 10
"""Plans made for one decision; a hundred nodes and 450 jobs then take about a second."""

Method = Callable[[Problem, np.random.Generator, int], Decision]
"""What takes a decision: the problem, chance, and how many plans to make."""


def plain(problem: Problem, rng: np.random.Generator, iterations: int) -> Decision:
    """Decide by the greedy alone, without chance."""
    _ = rng, iterations  # every method is called alike
    return greedy(problem)


def randomised(problem: Problem, rng: np.random.Generator, iterations: int) -> Decision:
    """Decide by the cheapest of many greedy plans made at random, as the source does before relinking."""
    return sought(problem, rng, iterations, Search(moving=False, displacing=False, walking=False, renewing=0))[0]


def relinked(problem: Problem, rng: np.random.Generator, iterations: int) -> Decision:
    """Decide by random plans, improved move by move (ours), relinked with the best known; the best refilled (ours)."""
    return sought(problem, rng, iterations, Search())[0]


METHODS: Final[dict[str, Method]] = {"greedy": plain, "randomised": randomised, "relinked": relinked}


def decide(
    problem: Problem, rng: np.random.Generator, iterations: int = ITERATIONS, method: str | Method = "relinked"
) -> Decision:
    """Return where every job runs until the next decision, and with how many GPUs.

    The same problem, state of `rng` and number of iterations give the same decision; more iterations from the same
    state never a dearer one.

    Raises
    ------
    BadInput
        If the method is unknown, or `iterations` is below 1.

    References
    ----------
    ANDREAS (arXiv 2105.05080): the randomised greedy; its authors' code and a follow-up: path relinking.
    """
    if isinstance(method, str) and method not in METHODS:
        raise BadInput(f"method: found {method!r}, expected one of {', '.join(METHODS)}")
    return (METHODS[method] if isinstance(method, str) else method)(problem, rng, iterations)
