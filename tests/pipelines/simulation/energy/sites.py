"""Made-up grids, powers and random uses for the tests of accounts and shifting. Nothing is asserted here."""

import numpy as np

from pipelines.simulation.energy.power_file import Assumed, NodePower
from pipelines.simulation.engine.workload import Workload
from pipelines.simulation.measures.job_metrics import Uses
from scheduler_core.cluster import UNITS, Machine
from scheduler_core.planning.hourly import HOUR_S, Grid, HourlySeries

START_TS = 1_680_000_000.0
"""No whole hour: 10:40."""

ASSUMED = Assumed(cpu_frac=0.25, gpu_frac=0.5)


def hourly(values: object, unit: str = "g/kWh", *, start_s: float = 0.0, wrap: bool = False) -> HourlySeries:
    return HourlySeries(start_s=start_s, values=np.array(values, dtype=np.float64), unit=unit, wrap=wrap)


def grid(seed: int = 0, *, hours: int = 480, pue: float = 1.25) -> Grid:
    rng = np.random.default_rng(seed)
    start_s = START_TS // HOUR_S * HOUR_S
    return Grid(
        zone="made-up",
        carbon=hourly(rng.uniform(20.0, 700.0, hours), start_s=start_s, wrap=True),
        price=hourly(rng.normal(0.05, 0.1, hours), "USD/kWh", start_s=start_s, wrap=True),
        pue=pue,
    )


def power(number: int = 0) -> NodePower:
    return NodePower(
        name=f"n{number}",
        cpu_idle_w=40.0 + number,
        cpu_full_w=330.0 + number,
        gpu_idle_w=30.0,
        gpu_full_w=300.0 + number,
    )


def powers(machines: tuple[Machine, ...]) -> tuple[NodePower, ...]:
    return tuple(power(number) for number in range(len(machines)))


def uses(workload: Workload, rng: np.random.Generator) -> Uses:
    """Draw uses up to the request, a third of them unknown."""
    mean = workload.request_units * rng.uniform(0.0, 1.0, workload.request_units.shape)
    mean[rng.random(mean.shape) < 1 / 3] = np.nan
    return Uses(mean=mean)


def known(*amounts: tuple[float, float, float]) -> Uses:
    """Return uses from (cores, GiB, GPUs)."""
    return Uses(mean=np.array(amounts, dtype=np.float64).reshape(-1, 3) * np.array(UNITS))
