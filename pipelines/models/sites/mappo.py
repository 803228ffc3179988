"""Agents of the sites by multi-agent PPO: a shared actor, a central critic, and two variants to compare with.

The actor scores each legal start of an agent's job; waiting scores 0. Called by the study of sites.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from pipelines.models.sites.network import Network
from pipelines.models.sites.training import BEGIN
from pipelines.simulation.sites.environment import begun, earned_usd, rows_of
from pipelines.simulation.sites.loop import State, act, prepare
from pipelines.simulation.sites.weeks import Weeks, part
from scheduler_core.kernels.sites.scoring import FEATURES
from scheduler_core.kernels.sites.value import DAY, STEPS_PER_H
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["KINDS", "Agents", "Kind", "played", "trained_agents"]

Kind = Literal["mappo", "independent", "central"]
KINDS: Final[tuple[Kind, ...]] = ("mappo", "independent", "central")
"""`mappo`: actors see their own job, the critic all sites, the reward is shared. `independent`: critic and reward of
each site alone. `central`: as `mappo`, but the actor sees all sites too, as one agent that decides for each in turn."""

GAMMA: Final = 0.97
"""Discount for an hour (the source gives no unit)."""
LAMBDA: Final = 0.95
ENTROPY: Final = 0.01
CLIP: Final = 0.2
EPOCHS: Final = 3
MOST_ROWS: Final = 24_000
"""Decisions of one iteration that are learnt from, drawn at random."""
ROWS_A_STEP: Final = 2000
RATE: Final = 3e-4
SHARPNESS: Final = 6.0
"""Factor on the linear path at which training begins, so that the first policy is nearly deterministic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Trained agents: `critic` is only used in training."""

    kind: Kind
    actor: Network
    critic: Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Decisions (d) of one rollout: inputs (d, S, i), legal starts (d, S), action, log probability, critic's input."""

    rows: FloatArray
    legal: BoolArray
    action: IntArray
    log_p: FloatArray
    seen: FloatArray
    gain: FloatArray
    target: FloatArray


def world_of(state: State) -> FloatArray:
    """Return the inputs of a central critic by week (B, 4 S + 1): free GPUs, cost now, in 6 h and 12 h, the queue."""
    cost = [state.sums[:, :, step + 1] - state.sums[:, :, step] for step in (0, DAY // 4, DAY // 2)]
    scale = np.abs(state.sums[:, :, -1]).mean(axis=1, keepdims=True) / DAY + 1e-12
    return np.concatenate([state.free / 50.0, *(each / scale for each in cost), state.tally[:, 1:2] / 100.0], axis=1)


def trained_agents(
    weeks: Weeks,
    tuning: Weeks,
    kind: Kind,
    seed: int,
    *,
    iterations: int = 16,
    batch: int = 6,
    talk: Callable[[str], None] = lambda _: None,
) -> Agents:
    """Return the agents with the largest utility on the tuning weeks, of those after every fourth iteration."""
    rng = np.random.default_rng(seed)
    sites = weeks.capacity.shape[1]
    world = 4 * sites + 1
    linear = SHARPNESS * np.array([BEGIN.get(name, 0.0) for name in FEATURES])
    actor = Network.drawn(np.concatenate([linear, np.zeros(world if kind == "central" else 0)]), rng)
    critic = Network.drawn(np.zeros(len(FEATURES) if kind == "independent" else world), rng)
    agents = Agents(kind=kind, actor=actor, critic=critic)
    best, most = [each.copy() for each in actor.weights], float(played(tuning, agents).sum())
    for iteration in range(iterations):
        some = part(weeks, rng.permutation(len(weeks.arrive))[:batch])
        _learn(agents, _rollout(some, agents, rng), rng)
        if iteration % 4 == 3:
            usd = float(played(tuning, agents).sum())
            talk(f"{kind}, iteration {iteration + 1}: {usd / len(tuning.arrive):.0f} USD a week of the tuning month")
            if usd > most:
                best, most = [each.copy() for each in actor.weights], usd
    actor.weights[:] = best
    return agents


def played(weeks: Weeks, agents: Agents) -> FloatArray:
    """Return the utility of each week (B,) if every agent takes its most probable action."""
    state, (mask, rows) = begun(weeks), rows_of(weeks)
    actions, earned = np.zeros(state.head.shape, dtype=np.int64), np.zeros(state.head.shape)
    while prepare(weeks, state, mask, rows):
        at = np.nonzero(state.head >= 0)
        legal, scores = _scores(agents, state, mask, rows, at)
        best = np.where(legal, scores, -np.inf)
        actions[at] = np.where(best.max(axis=1) > 0.0, best.argmax(axis=1), legal.shape[1])
        act(weeks, state, actions, earned)
    return np.asarray(earned_usd(weeks, state).sum(axis=1), dtype=np.float64)


def _scores(
    agents: Agents, state: State, mask: BoolArray, rows: FloatArray, at: tuple[IntArray, ...]
) -> tuple[BoolArray, FloatArray]:
    """Return the legal starts (d, S) of the agents `at`, and their scores; illegal ones are 0."""
    legal = mask[at][:, :-1]
    scores = np.zeros(legal.shape)
    scores[legal] = agents.actor(_inputs(agents, state, rows, at)[legal])
    return legal, scores


def _inputs(agents: Agents, state: State, rows: FloatArray, at: tuple[IntArray, ...]) -> FloatArray:
    if agents.kind != "central":
        return rows[at]
    world = np.repeat(world_of(state)[at[0]][:, None], rows.shape[2], axis=1)
    return np.concatenate([rows[at], world], axis=2)


def _rollout(weeks: Weeks, agents: Agents, rng: np.random.Generator) -> Decisions:
    """Play weeks with random actions; return the decisions with generalised advantages and targets of the critic."""
    state, (mask, rows) = begun(weeks), rows_of(weeks)
    scale = float(weeks.worth_usd[0] * STEPS_PER_H * 40.0)
    kept: list[tuple[Any, ...]] = []  # Any: arrays of several types
    rounds: list[tuple[FloatArray, FloatArray, IntArray, IntArray, IntArray]] = []
    while prepare(weeks, state, mask, rows):
        at = np.nonzero(state.head >= 0)
        legal, scores = _scores(agents, state, mask, rows, at)
        log_p = _log_softmax(scores, legal)
        action = np.exp(log_p).cumsum(axis=1)
        action = (action < rng.random(len(action))[:, None]).sum(axis=1).clip(0, legal.shape[1])
        actions, earned = np.full(state.head.shape, legal.shape[1]), np.zeros(state.head.shape)
        actions[at] = action
        inputs = _inputs(agents, state, rows, at).astype(np.float32)
        if agents.kind == "independent":
            seen = (rows[at] * legal[..., None]).sum(axis=1) / np.maximum(legal.sum(axis=1), 1)[:, None]
        else:
            seen = world_of(state)[at[0]]
        kept.append((inputs, legal, action, log_p[np.arange(len(action)), action], seen))
        now = state.tally[:, 0].copy()
        act(weeks, state, actions, earned)
        shared = (
            earned if agents.kind == "independent" else np.repeat(earned.sum(axis=1)[:, None], mask.shape[1], axis=1)
        )
        rounds.append((agents.critic(seen), shared[at] / scale, at[0], at[1], now[at[0]]))
    gain, target = _advantages(rounds, state.head.shape, own=agents.kind == "independent")
    columns = [np.concatenate(each) for each in zip(*kept, strict=True)]
    return Decisions(
        **dict(zip(("rows", "legal", "action", "log_p", "seen"), columns, strict=True)), gain=gain, target=target
    )


def _log_softmax(scores: FloatArray, legal: BoolArray) -> FloatArray:
    """Return log probabilities (d, S + 1) of the starts and of waiting, whose score is 0."""
    every = np.concatenate([np.where(legal, scores, -np.inf), np.zeros((len(scores), 1))], axis=1)
    every -= every.max(axis=1, keepdims=True)
    return np.asarray(every - np.log(np.exp(every).sum(axis=1, keepdims=True)), dtype=np.float64)


def _advantages(
    rounds: list[tuple[FloatArray, FloatArray, IntArray, IntArray, IntArray]], shape: tuple[int, ...], *, own: bool
) -> tuple[FloatArray, FloatArray]:
    """Return generalised advantages and the critic's targets, in order of the decisions.

    The sequence of a week is that of its rounds; of an independent agent, that of its own decisions.
    """
    count = shape if own else shape[:1]
    later, value, moment = np.zeros(count), np.zeros(count), np.full(count, -1.0)
    gains, targets = [], []
    for values, reward, week, site, now in reversed(rounds):
        key = (week, site) if own else (week,)
        fade = np.where(moment[key] < 0.0, 0.0, GAMMA ** ((moment[key] - now) / STEPS_PER_H))
        gain = reward + fade * value[key] - values + fade * LAMBDA * later[key]
        gains.append(gain)
        targets.append(gain + values)
        later[key], value[key], moment[key] = gain, values, now
    return np.concatenate(gains[::-1]), np.concatenate(targets[::-1])


def _learn(agents: Agents, made: Decisions, rng: np.random.Generator) -> None:
    """Improve actor and critic by the clipped objective with an entropy bonus."""
    gain = (made.gain - made.gain.mean()) / (made.gain.std() + 1e-8)
    for _ in range(EPOCHS):
        order = rng.permutation(len(gain))[:MOST_ROWS]
        for begin in range(0, len(order), ROWS_A_STEP):
            few = order[begin : begin + ROWS_A_STEP]
            rows, legal, action = made.rows[few].astype(np.float64), made.legal[few], made.action[few]
            scores = np.zeros(legal.shape)
            scores[legal] = agents.actor(rows[legal])
            log_p = _log_softmax(scores, legal)
            p, each = np.exp(log_p), np.arange(len(few))
            ratio = np.exp(log_p[each, action] - made.log_p[few])
            free = np.where(gain[few] > 0.0, ratio < 1.0 + CLIP, ratio > 1.0 - CLIP)
            push = np.where(free, ratio * gain[few], 0.0)
            slope = push[:, None] * p
            slope[each, action] -= push
            logs = np.where(p > 0.0, log_p, 0.0)
            slope += ENTROPY * p * (logs - (p * logs).sum(axis=1, keepdims=True))
            agents.actor.descend(rows[legal], slope[:, :-1][legal] / len(few), RATE)
            agents.critic.descend(made.seen[few], (agents.critic(made.seen[few]) - made.target[few]) / len(few), RATE)
