"""A network of two hidden layers with a linear path beside them: forward, gradients, and steps of Adam, in numpy.

Called by `mappo`.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler_core.types import FloatArray

__all__ = ["Network"]

HIDDEN: Final = 64
BETAS: Final = (0.9, 0.999)
LARGEST_STEP: Final = 0.5
"""Largest norm of the derivatives; longer ones are shortened."""


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
