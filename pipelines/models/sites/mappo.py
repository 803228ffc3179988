"""Agents of the sites by multi-agent PPO (MAPPO): a shared actor and a central critic, in numpy.

The actor scores each legal start of an agent's job; waiting scores 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from pipelines.models.sites.training import BEGIN
from pipelines.simulation.sites.environment import begun, earned_usd, rows_of
from pipelines.simulation.sites.loop import State, act, prepare
from pipelines.simulation.sites.weeks import Weeks, part
from scheduler_core.kernels.site_value import DAY, FEATURES, STEPS_PER_H
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["Agents", "Network", "played", "trained_agents"]

HIDDEN: Final = 64
BETAS: Final = (0.9, 0.999)
LARGEST_STEP: Final = 0.5
"""Largest norm of the derivatives; larger derivatives are scaled down to it."""


@dataclass(slots=True, kw_only=True)
class Network:
    """Map rows (n, inputs) to one number each: two layers of 64 (tanh) plus a linear path.

    `weights` are [W1, b1, W2, b2, w3, linear, b]; the last layer begins at 0, so the linear path decides at first.
    """

    weights: list[FloatArray]
    _moments: list[list[FloatArray]] = field(default_factory=list)
    _steps: int = 0

    @classmethod
    def drawn(cls, linear: FloatArray, rng: np.random.Generator) -> "Network":
        """Return a network with random hidden layers and a given linear path."""
        first = rng.standard_normal((len(linear), HIDDEN)) / np.sqrt(len(linear))
        second = rng.standard_normal((HIDDEN, HIDDEN)) / np.sqrt(HIDDEN)
        zeros = [np.zeros(HIDDEN), np.zeros(HIDDEN)]
        weights = [first, zeros[0], second, zeros[1], np.zeros(HIDDEN), linear.astype(np.float64), np.zeros(1)]
        return cls(weights=weights, _moments=[[np.zeros_like(each) for each in weights] for _ in BETAS])

    def __call__(self, rows: FloatArray) -> FloatArray:
        """Return the outputs (n,)."""
        return self._layers(rows)[-1]

    def _layers(self, rows: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        first_w, first_b, second_w, second_b, last, linear, bias = self.weights
        first = np.tanh(rows @ first_w + first_b)
        second = np.tanh(first @ second_w + second_b)
        return first, second, second @ last + rows @ linear + bias[0]

    def slopes(self, rows: FloatArray, slope: FloatArray) -> list[FloatArray]:
        """Return the derivatives of a loss by every weight, from its derivative by each output, `slope` (n,)."""
        first, second, _ = self._layers(rows)
        into_second = slope[:, None] * self.weights[4] * (1.0 - second**2)
        into_first = (into_second @ self.weights[2].T) * (1.0 - first**2)
        return [
            rows.T @ into_first,
            into_first.sum(axis=0),
            first.T @ into_second,
            into_second.sum(axis=0),
            second.T @ slope,
            rows.T @ slope,
            np.array([slope.sum()]),
        ]

    def descend(self, rows: FloatArray, slope: FloatArray, rate: float) -> None:
        """Take one step of Adam down a loss whose derivative by each output is `slope` (n,)."""
        slopes = self.slopes(rows, slope)
        share = min(1.0, LARGEST_STEP / (np.sqrt(sum(float((each**2).sum()) for each in slopes)) + 1e-12))
        self._steps += 1
        for weight, each, mean, square in zip(self.weights, slopes, *self._moments, strict=True):
            mean += (1.0 - BETAS[0]) * (each * share - mean)
            square += (1.0 - BETAS[1]) * ((each * share) ** 2 - square)
            size = np.sqrt(square / (1.0 - BETAS[1] ** self._steps)) + 1e-8
            weight -= rate * mean / (1.0 - BETAS[0] ** self._steps) / size


GAMMA: Final = 0.97
"""Discount for an hour (the source gives no unit)."""
LAMBDA: Final = 0.95
ENTROPY: Final = 0.01
CLIP: Final = 0.2
EPOCHS: Final = 3
MOST_ROWS: Final = 24_000
"""Maximum number of decisions of one iteration from which agents learn, drawn at random."""
ROWS_A_STEP: Final = 2000
RATE: Final = 3e-4
SHARPNESS: Final = 6.0
"""Factor on the linear path at which training begins, so that the first policy is nearly deterministic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agents:
    """Trained agents: actors see their own job, the critic all sites (in training), and the reward is shared."""

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
    seed: int,
    *,
    iterations: int = 16,
    batch: int = 6,
    talk: Callable[[str], None] = lambda _: None,
) -> Agents:
    """Return the agents with the largest utility on the tuning weeks; every fourth iteration is compared."""
    rng = np.random.default_rng(seed)
    linear = SHARPNESS * np.array([BEGIN.get(name, 0.0) for name in FEATURES])
    actor = Network.drawn(linear, rng)
    critic = Network.drawn(np.zeros(4 * weeks.capacity.shape[1] + 1), rng)
    agents = Agents(actor=actor, critic=critic)
    best, most = [each.copy() for each in actor.weights], float(played(tuning, agents).sum())
    for iteration in range(iterations):
        some = part(weeks, rng.permutation(len(weeks.arrive))[:batch])
        _learn(agents, _rollout(some, agents, rng), rng)
        if iteration % 4 == 3:
            usd = float(played(tuning, agents).sum())
            talk(f"iteration {iteration + 1}: {usd / len(tuning.arrive):.0f} USD a week of the tuning month")
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
        legal, scores = _scores(agents, mask, rows, at)
        best = np.where(legal, scores, -np.inf)
        actions[at] = np.where(best.max(axis=1) > 0.0, best.argmax(axis=1), legal.shape[1])
        act(weeks, state, actions, earned)
    return np.asarray(earned_usd(weeks, state).sum(axis=1), dtype=np.float64)


def _scores(
    agents: Agents, mask: BoolArray, rows: FloatArray, at: tuple[IntArray, ...]
) -> tuple[BoolArray, FloatArray]:
    """Return the legal starts (d, S) of the agents `at`, and their scores; illegal ones are 0."""
    legal = mask[at][:, :-1]
    scores = np.zeros(legal.shape)
    scores[legal] = agents.actor(rows[at][legal])
    return legal, scores


def _rollout(weeks: Weeks, agents: Agents, rng: np.random.Generator) -> Decisions:
    """Play weeks with random actions; return the decisions with generalised advantages and targets of the critic."""
    state, (mask, rows) = begun(weeks), rows_of(weeks)
    scale = float(weeks.worth_usd[0] * STEPS_PER_H * 40.0)
    kept: list[tuple[Any, ...]] = []  # Any: arrays of several types
    rounds: list[tuple[FloatArray, FloatArray, IntArray, IntArray]] = []
    while prepare(weeks, state, mask, rows):
        at = np.nonzero(state.head >= 0)
        legal, scores = _scores(agents, mask, rows, at)
        log_p = _log_softmax(scores, legal)
        action = np.exp(log_p).cumsum(axis=1)
        action = (action < rng.random(len(action))[:, None]).sum(axis=1).clip(0, legal.shape[1])
        actions, earned = np.full(state.head.shape, legal.shape[1]), np.zeros(state.head.shape)
        actions[at] = action
        seen = world_of(state)[at[0]]
        kept.append((rows[at].astype(np.float32), legal, action, log_p[np.arange(len(action)), action], seen))
        now = state.tally[:, 0].copy()
        act(weeks, state, actions, earned)
        rounds.append((agents.critic(seen), earned.sum(axis=1)[at[0]] / scale, at[0], now[at[0]]))
    gain, target = _advantages(rounds, len(state.head))
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
    rounds: list[tuple[FloatArray, FloatArray, IntArray, IntArray]], weeks: int
) -> tuple[FloatArray, FloatArray]:
    """Return generalised advantages and the critic's targets, in order of the decisions; a week's rounds follow."""
    later, value, moment = np.zeros(weeks), np.zeros(weeks), np.full(weeks, -1.0)
    gains, targets = [], []
    for values, reward, week, now in reversed(rounds):
        fade = np.where(moment[week] < 0.0, 0.0, GAMMA ** ((moment[week] - now) / STEPS_PER_H))
        gain = reward + fade * value[week] - values + fade * LAMBDA * later[week]
        gains.append(gain)
        targets.append(gain + values)
        later[week], value[week], moment[week] = gain, values, now
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
