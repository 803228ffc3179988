"""Step time and throughput of training as functions of the number of GPUs, of nodes, and of samples on each GPU.

Measured step times are read in `pipelines.studies.energy.measured`. Called by the carbon and energy studies.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from scheduler_core.errors import BadInput
from scheduler_core.types import FloatArray

__all__ = ["ScalingModel", "fit_scaling", "scaling_error"]

LEAST_GAMMA, MOST_GAMMA = 1.0, 10.0
"""Range of the exponent gamma of `ScalingModel`: at 1 computing and synchronising add up, at 10 they overlap."""

ROUNDS: Final = 60
"""Number of iterations of the fit, far more than it needs to converge."""

LEAST_S: Final = 1e-6
"""Minimum starting value of a coefficient in seconds, used where least squares give less."""

DAMPING: Final = 1e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingModel:
    """Step time of data-parallel training.

    Computing takes T_grad = `grad_s + grad_s_per_sample * batch`. Synchronising n GPUs takes T_sync =
    `local_s + local_s_per_gpu * (n - 2)` on one node, `remote_s + remote_s_per_gpu * (n - 2)` across nodes, and 0 with
    one GPU. Computing and synchronising overlap: T_iter = (T_grad^gamma + T_sync^gamma)^(1 / gamma).

    References
    ----------
    Pollux: co-adaptive cluster scheduling for goodput-optimized deep learning (OSDI 2021), sections 3.2 and 4.1.

    >>> model = ScalingModel(
    ...     grad_s=0.1, grad_s_per_sample=0.01, local_s=0.1, local_s_per_gpu=0.0, remote_s=0.6, remote_s_per_gpu=0.0,
    ...     gamma=1.0, batch_per_gpu=10.0, gpus_per_node=4,
    ... )
    >>> model.split_throughput([1, 2], batch=10.0).round(1).tolist()
    [50.0, 40.0]
    """

    grad_s: float
    grad_s_per_sample: float
    local_s: float
    local_s_per_gpu: float
    remote_s: float
    remote_s_per_gpu: float
    gamma: float
    batch_per_gpu: float
    gpus_per_node: int

    def step_s(
        self, gpus: npt.ArrayLike, nodes: npt.ArrayLike | None = None, batch_per_gpu: npt.ArrayLike | None = None
    ) -> FloatArray:
        """Return the seconds per training step; if `nodes` is None, the GPUs are on as few nodes as can hold them."""
        many = np.asarray(gpus, dtype=np.float64)
        across = np.ceil(many / self.gpus_per_node) if nodes is None else np.asarray(nodes, dtype=np.float64)
        batch = np.asarray(self.batch_per_gpu if batch_per_gpu is None else batch_per_gpu, dtype=np.float64)
        beyond = np.maximum(many - 2.0, 0.0)
        sync = np.where(
            across > 1.0,
            self.remote_s + self.remote_s_per_gpu * beyond,
            self.local_s + self.local_s_per_gpu * beyond,
        )
        sync = np.where(many > 1.0, sync, 0.0)
        return np.asarray(_joined(self.grad_s + self.grad_s_per_sample * batch, sync, self.gamma))

    def split_throughput(self, gpus: npt.ArrayLike, nodes: npt.ArrayLike | None = None, *, batch: float) -> FloatArray:
        """Return samples per second if one batch is split among the GPUs, which leaves training results unchanged."""
        many = np.asarray(gpus, dtype=np.float64)
        at_least_one = np.maximum(many, 1.0)
        return np.asarray(np.where(many > 0.0, batch / self.step_s(at_least_one, nodes, batch / at_least_one), 0.0))


def fit_scaling(
    gpus: npt.ArrayLike,
    nodes: npt.ArrayLike,
    batch_per_gpu: npt.ArrayLike,
    step_s: npt.ArrayLike,
    sync_s: npt.ArrayLike,
    *,
    gpus_per_node: int,
) -> ScalingModel:
    """Fit a model to measured steps by least squares on logarithms of step times and of computing times.

    Computing time is `step_s` minus `sync_s`, the time spent waiting for other GPUs. If all measured runs were on one
    node, or all were across nodes, the same synchronising time is used for both cases. The model's `batch_per_gpu` is
    the median of the measured ones.

    Raises
    ------
    BadInput
        If there are no rows, columns differ in length, or a step time is not above its synchronising time.
    """
    given = (gpus, nodes, batch_per_gpu, step_s, sync_s)
    many, across, batch, step, sync = (np.asarray(each, dtype=np.float64) for each in given)
    _check(many, across, batch, step, sync)
    start = _start(many, across, batch, step, sync, gpus_per_node)
    found = _settled(start, many, across, batch, step, step - sync)
    if not ((across > 1) & (many > 1)).any():
        return replace(found, remote_s=found.local_s, remote_s_per_gpu=found.local_s_per_gpu)
    if not ((across == 1) & (many > 1)).any():
        return replace(found, local_s=found.remote_s, local_s_per_gpu=found.remote_s_per_gpu)
    return found


def scaling_error(
    model: ScalingModel,
    gpus: npt.ArrayLike,
    nodes: npt.ArrayLike,
    batch_per_gpu: npt.ArrayLike,
    step_s: npt.ArrayLike,
) -> float:
    """Return the mean absolute relative error of the modelled step times."""
    measured = np.asarray(step_s, dtype=np.float64)
    return float(np.abs(model.step_s(gpus, nodes, batch_per_gpu) / measured - 1.0).mean())


def _joined(grad: FloatArray | float, sync: FloatArray, gamma: float) -> FloatArray:
    """Return (grad^gamma + sync^gamma)^(1 / gamma) without overflow."""
    longer, shorter = np.maximum(grad, sync), np.minimum(grad, sync)
    joined: FloatArray = longer * (1.0 + (shorter / longer) ** gamma) ** (1.0 / gamma)
    return joined


def _start(
    many: FloatArray, across: FloatArray, batch: FloatArray, step: FloatArray, sync: FloatArray, gpus_per_node: int
) -> ScalingModel:
    """Return a starting model: computing and synchronising times, each fitted to its own measurements."""
    grad = _above_zero(batch, step - sync)
    waits = {}
    for name, rows in {"local": (across == 1) & (many > 1), "remote": (across > 1) & (many > 1)}.items():
        if rows.any():
            waits[name] = _above_zero(many[rows] - 2.0, sync[rows])
    local = waits.get("local", waits.get("remote", (LEAST_S, LEAST_S)))
    remote = waits.get("remote", local)
    return ScalingModel(
        grad_s=grad[0],
        grad_s_per_sample=grad[1],
        local_s=local[0],
        local_s_per_gpu=local[1],
        remote_s=remote[0],
        remote_s_per_gpu=remote[1],
        gamma=1.5,
        batch_per_gpu=float(np.median(batch)),
        gpus_per_node=gpus_per_node,
    )


def _above_zero(x: FloatArray, y: FloatArray) -> tuple[float, float]:
    """Return intercept and slope that minimise squared relative errors, both at least `LEAST_S`."""
    columns = np.column_stack([1.0 / y, x / y])
    (intercept, slope), *_ = np.linalg.lstsq(columns, np.ones(len(y)), rcond=None)
    return max(float(intercept), LEAST_S), max(float(slope), LEAST_S)


def _settled(
    start: ScalingModel, many: FloatArray, across: FloatArray, batch: FloatArray, step: FloatArray, grad: FloatArray
) -> ScalingModel:
    """Improve a model by Levenberg-Marquardt steps on the logarithms of its coefficients."""

    def misses(theta: FloatArray) -> FloatArray:
        model = _of(start, theta)
        computing_s = model.grad_s + model.grad_s_per_sample * batch
        return np.concatenate([np.log(model.step_s(many, across, batch) / step), np.log(computing_s / grad)])

    theta, damping = _theta(start), DAMPING
    found = misses(theta)
    for _ in range(ROUNDS):
        slopes = np.column_stack([(misses(theta + shift) - found) / 1e-6 for shift in 1e-6 * np.eye(len(theta))])
        square = slopes.T @ slopes
        step_by = np.linalg.solve(
            square + damping * (np.diag(np.diag(square)) + 1e-9 * np.eye(len(theta))), -slopes.T @ found
        )
        tried = theta + np.clip(step_by, -1.0, 1.0)
        missed = misses(tried)
        if missed @ missed < found @ found:
            theta, found, damping = tried, missed, damping / 3.0
        else:
            damping *= 4.0
    return _of(start, theta)


COEFFICIENTS: Final = ("grad_s", "grad_s_per_sample", "local_s", "local_s_per_gpu", "remote_s", "remote_s_per_gpu")


def _theta(model: ScalingModel) -> FloatArray:
    share = (model.gamma - LEAST_GAMMA) / (MOST_GAMMA - LEAST_GAMMA)
    return np.array([*(np.log(getattr(model, name)) for name in COEFFICIENTS), np.log(share / (1.0 - share))])


def _of(model: ScalingModel, theta: FloatArray) -> ScalingModel:
    """Return the model for unbounded parameters `theta`.

    Exponentials keep its coefficients above 0, and a logistic function keeps gamma in its range.
    """
    gamma = LEAST_GAMMA + (MOST_GAMMA - LEAST_GAMMA) / (1.0 + np.exp(-np.clip(theta[-1], -30.0, 30.0)))
    coefficients = dict(zip(COEFFICIENTS, np.exp(np.clip(theta[:-1], -40.0, 10.0)).tolist(), strict=True))
    return replace(model, **coefficients, gamma=float(gamma))


def _check(many: FloatArray, across: FloatArray, batch: FloatArray, step: FloatArray, sync: FloatArray) -> None:
    shapes = {each.shape for each in (many, across, batch, step, sync)}
    if len(shapes) != 1 or many.ndim != 1 or not len(many):
        raise BadInput(f"columns of {sorted(shapes)}, expected five of the same length, at least one")
    for name, column in {"GPUs": many, "nodes": across, "batches": batch}.items():
        if not (np.isfinite(column) & (column > 0.0)).all():
            raise BadInput(f"{name} from {np.min(column):g}, expected finite numbers above zero")
    if not (np.isfinite(step) & (sync >= 0.0) & (step > sync)).all():
        bad = int((~(step > sync)).sum())
        raise BadInput(f"{bad} steps not longer than their synchronising, expected none; leave such rows out")
