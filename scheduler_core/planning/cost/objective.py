"""Cost of a decision: tardiness, the worst case of postponed jobs, and energy until the next decision.

`Terms` has the constants of a problem; `cost` computes the cost of one decision from them. Called by every search of
this package and by the cost study.
"""

from dataclasses import dataclass

import numpy as np

from scheduler_core.errors import BadInput
from scheduler_core.planning.cost.problem import POSTPONED, Decision, Problem
from scheduler_core.planning.power import JOULES_PER_KWH
from scheduler_core.types import FloatArray, IntArray

__all__ = ["Terms", "check", "cost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParts:
    """Parts of the cost of a decision in USD, and `horizon_s`, the time until the next decision."""

    tardiness_usd: float
    postponed_usd: float
    energy_usd: float
    rest_usd: float
    horizon_s: float

    @property
    def total(self) -> float:
        """Return the total cost, which every search minimises."""
        return self.tardiness_usd + self.postponed_usd + self.energy_usd + self.rest_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The constants of one problem, for J jobs, M nodes and K node types.

    `run_s` (J, K, 1 + most GPUs) is the remaining run time, +inf where impossible. `slack_s` (J,) is the time from now
    to the due date. A job that now runs on `stay_node` with `stay_gpus` takes `restart_s` longer in any other
    configuration. `kind` (M,) is each node's type and `room` (M,) its number of GPUs. Until the next decision, a
    switched-on node costs `node_usd_per_s` (K,) and each busy GPU `gpu_usd_per_s` (K,). After it, a GPU with its share
    of the idle power of a full node costs `later_usd_per_s` (K,). `postponed_usd` (J,) is rho times the cost of a
    postponed job's worst tardiness, `postponed_rest_usd` (J,) its least energy cost.
    """

    run_s: FloatArray
    slack_s: FloatArray
    weight: FloatArray
    stay_node: IntArray
    stay_gpus: IntArray
    restart_s: float
    period_s: float
    kind: IntArray
    room: IntArray
    node_usd_per_s: FloatArray
    gpu_usd_per_s: FloatArray
    later_usd_per_s: FloatArray
    postponed_usd: FloatArray
    postponed_rest_usd: FloatArray

    @classmethod
    def of(cls, problem: Problem) -> "Terms":
        """Return the constants of a problem.

        The worst tardiness of a postponed job assumes that it starts a whole period from now (ours) in its slowest
        configuration. A job that no node can run costs nothing, because no decision changes its cost.
        """
        jobs, kinds = problem.jobs, problem.nodes.types
        idle_w = np.array([kind.idle_w for kind in kinds], np.float64)
        active_w = np.array([kind.gpu_active_w for kind in kinds], np.float64)
        gpus = np.array([kind.gpus for kind in kinds], np.int64)
        usd_per_joule = problem.usd_per_kwh * problem.pue / JOULES_PER_KWH
        later_usd_per_joule = (problem.later_usd_per_kwh or 0.0) * problem.pue / JOULES_PER_KWH
        run_s = _possible_run_s(problem, gpus)
        current = problem.current or Decision.nothing(len(jobs))
        again_s = np.where(current.node == POSTPONED, 0.0, problem.restart_s)
        later = (active_w + idle_w / np.maximum(gpus, 1)) * later_usd_per_joule
        slack_s = jobs.due_s - problem.now_s
        longest = np.where(np.isfinite(run_s), run_s, -np.inf).max(axis=(1, 2), initial=-np.inf) + again_s
        worst = np.maximum(longest + problem.period_s - slack_s, 0.0)  # 0 if no configuration is possible
        return cls(
            run_s=run_s,
            slack_s=slack_s,
            weight=jobs.weight_usd_per_s,
            stay_node=current.node,
            stay_gpus=current.gpus,
            restart_s=problem.restart_s,
            period_s=problem.period_s,
            kind=problem.nodes.type_of,
            room=problem.nodes.gpus,
            node_usd_per_s=idle_w * usd_per_joule,
            gpu_usd_per_s=active_w * usd_per_joule,
            later_usd_per_s=later,
            postponed_usd=problem.rho * jobs.weight_usd_per_s * worst,
            postponed_rest_usd=_least_usd(run_s + again_s[:, None, None], later),
        )


def _possible_run_s(problem: Problem, gpus: IntArray) -> FloatArray:
    """Return the run times, +inf where the node type has too few GPUs or no node has that type."""
    counts = np.arange(problem.jobs.run_s.shape[2])
    present = np.bincount(problem.nodes.type_of, minlength=len(gpus)) > 0
    possible = (counts >= 1) & (counts <= gpus[:, None]) & present[:, None]
    return np.where(possible & ~np.isnan(problem.jobs.run_s), problem.jobs.run_s, np.inf)


def _least_usd(run_s: FloatArray, later_usd_per_s: FloatArray) -> FloatArray:
    """Return the least energy cost of each job's whole run (J,); 0 for a job without a possible configuration."""
    finite = np.isfinite(run_s)
    usd = np.where(finite, run_s, 0.0) * np.arange(run_s.shape[2]) * later_usd_per_s[:, None]
    least = np.where(finite, usd, np.inf).min(axis=(1, 2), initial=np.inf)
    return np.where(np.isfinite(least), least, 0.0)


def chosen_run_s(terms: Terms, decision: Decision) -> FloatArray:
    """Return the run time of every job under the decision, with restarts (J,); +inf where postponed or impossible."""
    jobs, runs = np.arange(len(decision.node)), decision.node != POSTPONED
    run_s = np.full(len(jobs), np.inf)
    node, gpus = decision.node[runs], decision.gpus[runs]
    stays = (terms.stay_node[runs] == node) & (terms.stay_gpus[runs] == gpus)
    again = (terms.stay_node[runs] != POSTPONED) & ~stays
    run_s[runs] = terms.run_s[jobs[runs], terms.kind[node], gpus] + np.where(again, terms.restart_s, 0.0)
    return run_s


def cost(problem: Problem, decision: Decision) -> CostParts:
    """Return the parts of the cost of a decision.

    tardiness  Σ ω_j max(0, now + run_j - due_j)                              sum over jobs that run
    postponed  rho Σ ω_j max(0, now + H + slowest run_j - due_j)              sum over postponed jobs
    energy     h · (idle power of nodes with a job + power added by busy GPUs) · price · PUE
    rest       Σ GPUs · (run_j - h) · (active power + share of idle power) · later price · PUE   (ours; see below)

    ω_j is the weight, H the period, and h the time until the first completion, at most H. A node without a job is
    switched off. `rest` is 0 without a later price. It includes the least energy of postponed jobs; without that,
    postponing would seem to save energy. Like tardiness, it assumes that a configuration is kept until the job ends.

    Raises
    ------
    BadInput
        If the jobs on a node need more GPUs than it has, or a job has an impossible configuration.

    References
    ----------
    ANDREAS (arXiv 2105.05080): the objective without `rest`.
    """
    terms = Terms.of(problem)
    run_s = chosen_run_s(terms, check(terms, decision))
    runs = decision.node != POSTPONED
    node, gpus = decision.node[runs], decision.gpus[runs]
    kind, on = terms.kind[node], np.unique(node)
    horizon_s = min(terms.period_s, float(run_s.min(initial=np.inf)))
    watts_usd = terms.node_usd_per_s[terms.kind[on]].sum() + (gpus * terms.gpu_usd_per_s[kind]).sum()
    rest = (gpus * terms.later_usd_per_s[kind] * (run_s[runs] - horizon_s)).sum()
    late_s = np.maximum(run_s[runs] - terms.slack_s[runs], 0.0)
    return CostParts(
        tardiness_usd=float((terms.weight[runs] * late_s).sum()),
        postponed_usd=float(terms.postponed_usd[~runs].sum()),
        energy_usd=float(watts_usd * horizon_s),
        rest_usd=float(rest + terms.postponed_rest_usd[~runs].sum()),
        horizon_s=horizon_s,
    )


def check(terms: Terms, decision: Decision) -> Decision:
    """Return the decision, or raise `BadInput` with the reason if it cannot be carried out."""
    jobs, nodes = len(terms.weight), len(terms.kind)
    if not len(decision.node) == len(decision.gpus) == jobs:
        raise BadInput(f"decision: found {len(decision.node)} jobs, expected {jobs}")
    if jobs and not POSTPONED <= decision.node.min() <= decision.node.max() < nodes:
        raise BadInput(f"decision: found nodes up to {decision.node.max()}, expected {POSTPONED}..{nodes - 1}")
    if ((decision.node == POSTPONED) != (decision.gpus == 0)).any():
        raise BadInput("decision: found a postponed job with GPUs or a running one without, expected neither")
    if jobs and not 0 <= decision.gpus.min() <= decision.gpus.max() < terms.run_s.shape[2]:
        raise BadInput(f"decision: found {decision.gpus.max()} GPUs for a job, expected 0..{terms.run_s.shape[2] - 1}")
    runs = decision.node != POSTPONED
    if np.isinf(chosen_run_s(terms, decision)[runs]).any():
        raise BadInput("decision: found a job on a node type or with GPUs it cannot run with; see run_s")
    taken = np.bincount(decision.node[runs], weights=decision.gpus[runs], minlength=nodes)
    if (taken > terms.room).any():
        worst = int(np.argmax(taken - terms.room))
        raise BadInput(f"decision: found {taken[worst]:.0f} GPUs taken on node {worst}, expected {terms.room[worst]}")
    return decision
