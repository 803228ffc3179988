"""Watts of machines: what cannot be is refused, and shared GPUs are accounted for like pooled ones."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pipelines.simulation.energy.account import account
from pipelines.simulation.energy.power_file import NodePower, PowerTable
from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from tests.examples import examples
from tests.pipelines.simulation.energy.sites import ASSUMED, START_TS, grid, powers, uses
from tests.pipelines.simulation.engine.simulations import gpu_machines, run, workload


def table(**fields: object) -> PowerTable:
    return PowerTable.model_validate(
        {
            "source": "made up",
            "defaults": {"gpu": "T4", "cpu": "X"},
            "unknown_use": ASSUMED,
            "gpus": {"T4": {"idle_w": 10.0, "full_w": 70.0}},
            "cpus": {"X": {"idle_w": 20.0, "full_w": 100.0, "cores": 10}},
            **fields,
        }
    )


def test_cpus_are_as_many_as_the_cores_make_up() -> None:
    machine = Machine(name="m", cpu_cores=30.0, mem_gib=0.0, gpus=2, gpu_type="T4")

    assert table().node(machine).cpu_idle_w == 60.0
    assert table(defaults={"gpu": "T4", "cpu": "X", "threads_per_core": 2}).node(machine).cpu_full_w == 150.0
    assert table().node(machine).idle_w(2) == 80.0


def test_a_machine_of_its_own_figures_goes_by_its_name() -> None:
    own = NodePower(name="m", cpu_idle_w=1.0, cpu_full_w=2.0, gpu_idle_w=3.0, gpu_full_w=4.0)
    machine = Machine(name="m", cpu_cores=30.0, mem_gib=0.0, gpus=2, gpu_type="H900")

    assert table(machines={"m": own}).nodes([machine]) == (own,)
    assert table(machines={"m": own}).guessed([machine]) == 0


@pytest.mark.parametrize(("idle_w", "full_w"), [(2.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (0.0, math.inf)])
def test_watts_that_cannot_be_are_refused(idle_w: float, full_w: float) -> None:
    with pytest.raises(ValidationError, match=r"_w|W idle"):
        NodePower(name="n", cpu_idle_w=0.0, cpu_full_w=0.0, gpu_idle_w=idle_w, gpu_full_w=full_w)


@settings(max_examples=examples(30))
@given(seed=st.integers(0, 1000))
def test_gpus_shared_by_devices_add_up_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = workload(
        *(
            {
                "at": float(at),
                "cores": float(rng.integers(0, 20)),
                "gpus": float(rng.choice([0.25, 0.5, 1.0, 1.5, 2.0])),
                "run": float(rng.integers(1, 9000)),
                "instances": int(rng.integers(1, 3)),
            }
            for at in range(15)
        )
    )
    ran = run(jobs, gpu_machines(2, 4), Discipline(sharing="devices"))

    found = account(ran, uses(ran.workload, rng), powers(ran.machines), grid(seed), START_TS, assumed=ASSUMED)

    assert 0.0 <= found.jobs.kwh.sum() <= found.total.kwh + 1e-12
