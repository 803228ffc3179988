"""Made-up sites and weeks of jobs. Nothing is asserted here."""

import numpy as np

from pipelines.simulation.energy.power_file import Assumed, NodePower
from pipelines.simulation.sites.weeks import REGIMES, Place, Pool, Terms, Weeks, drawn, week_of
from scheduler_core.planning.hourly import Grid, HourlySeries

START_TS = 1_680_048_000.0
"""A whole hour: midnight UTC."""

TERMS = REGIMES["B-loose"]


def places(count: int = 3, seed: int = 0, gpus: int = 16) -> tuple[Place, ...]:
    rng = np.random.default_rng(seed)
    hours = 24 * 60
    daily = np.sin(np.arange(hours) * 2.0 * np.pi / 24.0)
    return tuple(
        Place(
            name=f"zone-{number}",
            gpus=gpus + 8 * number,
            power=NodePower(name="n", cpu_idle_w=80.0, cpu_full_w=800.0, gpu_idle_w=50.0, gpu_full_w=400.0),
            assumed=Assumed(cpu_frac=0.25, gpu_frac=1.0),
            grid=Grid(
                zone=f"zone-{number}",
                carbon=HourlySeries(
                    start_s=START_TS - 86400.0, values=rng.uniform(20.0, 700.0, hours), unit="g/kWh", wrap=True
                ),
                price=HourlySeries(
                    start_s=START_TS - 86400.0,
                    values=0.08 + 0.06 * np.roll(daily, 8 * number) + rng.normal(0.0, 0.02, hours),
                    unit="USD/kWh",
                    wrap=True,
                ),
                pue=1.1 + 0.1 * number,
            ),
        )
        for number in range(count)
    )


def pool(jobs: int = 120, seed: int = 0) -> Pool:
    rng = np.random.default_rng(seed)
    run = np.ceil(rng.lognormal(2.2, 1.0, jobs)).clip(1, 96).astype(np.int64)
    return Pool(
        week=np.zeros(jobs, dtype=np.int64),
        arrive=np.sort(rng.integers(0, 300, jobs)),
        gpus=rng.choice([1, 2, 4, 8], jobs).astype(np.int64),
        run_steps=run,
        told_steps=np.ceil(run * rng.lognormal(0.0, 0.5, jobs)).astype(np.int64),
        group=np.arange(jobs),
    )


def week(seed: int = 0, *, jobs: int = 120, count: int = 3, terms: Terms = TERMS) -> Weeks:
    sites = places(count, seed)
    rng = np.random.default_rng(seed)
    made = drawn(pool(jobs, seed), np.ones(count), sum(each.gpus for each in sites), terms, rng, load=10.0)
    return week_of(sites, made, START_TS, terms)
