"""Scaling models: measured steps come back, GPUs beyond a node cost more, and bad columns are refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.errors import BadInput
from scheduler_core.planning.scaling import ScalingModel, fit_scaling, scaling_error

TRUTH = ScalingModel(
    grad_s=0.05,
    grad_s_per_sample=0.002,
    local_s=0.02,
    local_s_per_gpu=0.003,
    remote_s=0.08,
    remote_s_per_gpu=0.004,
    gamma=2.0,
    batch_per_gpu=64.0,
    gpus_per_node=4,
)


def measured(model: ScalingModel, most: int = 12) -> dict[str, np.ndarray]:
    gpus, batch = (each.ravel().astype(float) for each in np.meshgrid(np.arange(1, most + 1), [16, 64, 256]))
    nodes = np.ceil(gpus / model.gpus_per_node)
    step = model.step_s(gpus, nodes, batch)
    sync = step - (model.grad_s + model.grad_s_per_sample * batch)
    return {"gpus": gpus, "nodes": nodes, "batch_per_gpu": batch, "step_s": step, "sync_s": np.maximum(sync, 0.0)}


@pytest.mark.parametrize("gamma", [1.2, 2.0, 5.0])
def test_steps_made_by_a_model_are_told_again(gamma: float) -> None:
    rows = measured(replace(TRUTH, gamma=gamma))

    model = fit_scaling(**rows, gpus_per_node=4)

    assert scaling_error(model, *(rows[name] for name in ("gpus", "nodes", "batch_per_gpu", "step_s"))) < 0.005


def test_counts_held_out_are_told_from_the_others() -> None:
    rows = measured(TRUTH)
    seen = rows["gpus"] != 7

    model = fit_scaling(**{name: column[seen] for name, column in rows.items()}, gpus_per_node=4)

    assert model.step_s(7, 2, 64.0) == pytest.approx(float(TRUTH.step_s(7, 2, 64.0)), rel=0.01)


def test_one_gpu_waits_for_nobody_and_a_second_node_costs_more() -> None:
    assert TRUTH.step_s(1) == pytest.approx(0.05 + 0.002 * 64)
    assert TRUTH.step_s(4, 2) > TRUTH.step_s(4, 1)
    assert TRUTH.step_s(4) == TRUTH.step_s(4, 1)
    assert TRUTH.step_s(5) == TRUTH.step_s(5, 2)


@pytest.mark.parametrize(("gpus", "sync_s"), [(2, 0.02), (3, 0.023), (4, 0.026), (5, 0.08 + 3 * 0.004)])
def test_synchronising_grows_by_the_gpus_beyond_two(gpus: int, sync_s: float) -> None:
    assert replace(TRUTH, gamma=1.0).step_s(gpus) == pytest.approx(0.05 + 0.002 * 64 + sync_s, rel=1e-12)


def test_throughput_is_samples_over_step_time() -> None:
    assert TRUTH.split_throughput([0, 4], batch=64.0) == pytest.approx(
        [0.0, 64.0 / float(TRUTH.step_s(4, batch_per_gpu=16.0))]
    )


@given(st.floats(1.0, 10.0), st.integers(2, 64))
def test_overlap_lies_between_the_longer_of_the_two_and_their_sum(gamma: float, gpus: int) -> None:
    step = float(replace(TRUTH, gamma=gamma).step_s(gpus))
    grad = 0.05 + 0.002 * 64
    sync = float(replace(TRUTH, gamma=1.0).step_s(gpus)) - grad

    assert max(grad, sync) * (1 - 1e-12) <= step <= (grad + sync) * (1 + 1e-12)


@pytest.mark.parametrize("alone", ["one node", "several"])
def test_synchronising_that_was_not_measured_is_taken_from_what_was(alone: str) -> None:
    rows = measured(TRUTH)
    kept = rows["nodes"] == 1 if alone == "one node" else rows["nodes"] > 1

    model = fit_scaling(**{name: column[kept] for name, column in rows.items()}, gpus_per_node=4)

    assert (model.local_s, model.local_s_per_gpu) == (model.remote_s, model.remote_s_per_gpu)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"sync_s": [2.0]}, "1 steps not longer"),
        ({"step_s": [np.nan]}, "not longer"),
        ({"gpus": [0.0]}, "GPUs from 0"),
        ({"batch_per_gpu": [-1.0]}, "batches from -1"),
        ({"gpus": [1.0, 2.0]}, "same length"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(change: dict[str, list[float]], said: str) -> None:
    rows = {"gpus": [2.0], "nodes": [1.0], "batch_per_gpu": [8.0], "step_s": [1.0], "sync_s": [0.1], **change}

    with pytest.raises(BadInput, match=said):
        fit_scaling(**rows, gpus_per_node=4)
