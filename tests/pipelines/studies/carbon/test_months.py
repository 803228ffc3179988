"""Prices on real grids: plans with one price now and another later, and savings at equal completion time by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.studies.carbon import months
from pipelines.studies.carbon.foreseen import foreseen
from pipelines.studies.carbon.jobs import ArrivingJobs
from pipelines.studies.carbon.months import ARMS, PER_KWH, SAME_KWH, Outlook, saving_rows
from pipelines.studies.carbon.simulation import Cluster, Simulated, simulate
from pipelines.studies.energy import RecordedHours
from scheduler_core.planning.elastic import ElasticJobs, Period, Planner, drawn_w, remaining_s
from scheduler_core.planning.hourly import HourlySeries
from scheduler_core.planning.release import forecast
from tests.examples import examples
from tests.pipelines.studies.carbon.arrivals import arriving

MOST = 4


def drawn(seed: int) -> ElasticJobs:
    rng = np.random.default_rng(seed)
    many = int(rng.integers(1, 8))
    return ElasticJobs(
        steps_left=rng.uniform(100.0, 9000.0, many),
        steps_per_s=np.arange(MOST + 1) ** rng.uniform(0.3, 1.0, (many, 1)),
        perf=np.sort(rng.uniform(0.5, 1.0, (many, 3)), axis=1),
        watts=np.sort(rng.uniform(80.0, 250.0, (many, 3)), axis=1),
        mhz=np.array([900.0, 1200.0, 1500.0]),
        age_s=rng.uniform(0.0, 900.0, many),
        rigid_gpus=np.where(rng.random(many) < 0.3, rng.integers(1, MOST + 1, many), 0),
    )


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 100_000), price=st.floats(0.0, 1e6))
def test_equal_prices_give_the_least_time_plus_cost_if_there_are_enough_gpus(seed: int, price: float) -> None:
    jobs = drawn(seed)

    plan = foreseen(jobs, 1000, price, np.full(len(jobs), price))

    cost = remaining_s(jobs, plan) * (1.0 + price * drawn_w(jobs, plan) / 3.6e6)
    speed = np.where(jobs.allowed, jobs.steps_per_s, 0.0)[:, 1:, None] * jobs.perf[:, None, :]
    watts = np.arange(1, MOST + 1)[:, None] * jobs.watts[:, None, :]
    with np.errstate(divide="ignore"):
        every = jobs.steps_left[:, None, None] / speed * (1.0 + price * watts / 3.6e6)
    assert cost == pytest.approx(every.min(axis=(1, 2)))


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 100_000), gpus=st.integers(0, 16), later=st.floats(0.0, 1e7))
def test_plans_stay_within_gpus_and_draw_less_the_dearer_energy_is_now(seed: int, gpus: int, later: float) -> None:
    jobs = drawn(seed)
    plans = [foreseen(jobs, 1000, now, np.full(len(jobs), 1e5)) for now in (1e3, 1e5, 3e5, 1e7)]
    within = foreseen(jobs, gpus, 3e4, np.full(len(jobs), later))

    watts = [float(drawn_w(jobs, plan).sum()) for plan in plans]
    assert (np.diff(watts) <= 1e-9 * max(watts)).all()
    assert watts[-1] == 0.0
    assert within.gpus.sum() <= gpus
    assert (jobs.allowed[np.arange(len(jobs)), within.gpus] | (within.gpus == 0)).all()


def test_forecasts_of_short_jobs_are_of_the_next_hours() -> None:
    day = np.where(np.arange(24) < 12, 100.0, 500.0)
    outlook = Outlook(carbon=HourlySeries(start_s=0.0, values=np.tile(day, 20), unit="g/kWh"), starts_s=18 * 86_400.0,
                      usual_g_per_kwh=300.0)  # fmt: skip

    assert outlook.intensity(11 * 3600.0) == 100.0
    assert outlook._expected(drawn(3))[0] >= 100.0
    assert outlook.intensity(13 * 3600.0) == 500.0


def test_an_hour_is_forecast_once_for_all_rounds_and_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(series: HourlySeries, hours: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        made.append(int(hours[0]))
        return forecast(series, hours, ahead)

    monkeypatch.setattr(months, "forecast", counted)
    outlook = Outlook(carbon=HourlySeries(start_s=0.0, values=np.arange(480.0), unit="g/kWh"), starts_s=0.0,
                      usual_g_per_kwh=300.0)  # fmt: skip
    for price in (1.0, 9.0):
        plan = outlook.foreseeing(price)
        for half_hours in range(96, 104):
            intensity = outlook.intensity(half_hours * 1800.0)
            plan(drawn(3), 4, Period(intensity_g_per_kwh=intensity, budget_g=np.inf, period_s=1800.0))

    assert made == [48, 49, 50, 51]


def test_plans_by_a_price_per_kwh_are_simulated_once_for_all_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Planner] = []

    def counted(jobs: ArrivingJobs, cluster: Cluster, budget_kwh: float, planner: Planner) -> Simulated:
        ran.append(planner)
        return simulate(jobs, cluster, budget_kwh, planner)

    jobs = arriving([0.0, 600.0], [9000.0, 4000.0])
    monkeypatch.setattr(months, "simulate", counted)
    monkeypatch.setattr(months, "drawn", lambda *_, **__: jobs)
    a_day = HourlySeries(start_s=0.0, values=np.tile(np.arange(100.0, 124.0), 60), unit="g/kWh")
    grids = [RecordedHours(zone=zone, series=series, starts_ts=np.array([0.0]), ends_ts=np.array([2e6]), notes=())
             for zone, series in (("A", a_day), ("B", replace(a_day, values=3.0 * a_day.values)))]  # fmt: skip
    measured = SimpleNamespace(full_w=200.0)
    of = months.Months(
        measured=measured, cluster=Cluster(gpus=4, period_s=900.0), jobs=2, prices=(1.0, 9.0), grids=grids
    )
    by_kwh, by_gram = of(ARMS[PER_KWH], 0), of(ARMS["a price a gram"], 0)

    assert len(ran) == 2 + 4
    assert [(row["zone"], row["share"]) for row in by_kwh] == [("A", 1.0), ("A", 9.0), ("B", 1.0), ("B", 9.0)]
    assert [row["kwh"] for row in by_kwh[:2]] == [row["kwh"] for row in by_kwh[2:]]
    assert [3.0 * row["kg"] for row in by_kwh[:2]] == pytest.approx([row["kg"] for row in by_kwh[2:]])
    assert len(by_gram) == 4


def test_carbon_saved_at_equal_completion_time_by_hand() -> None:
    def points(arm: str, kwh: float, kg: float) -> list[dict[str, object]]:
        ends = ((1.0, 200.0), (2.0, 100.0))
        of = {"zone": "Z", "month": "2023-06", "arm": arm}
        return [
            {**of, "seed": seed, "share": by, "mean_jct_s": s, "kwh": by * kwh, "kg": by * kg}
            for seed in (0, 1)
            for by, s in ends
        ]

    costs = dict(zip(ARMS, ((10.0, 5.0), (8.0, 4.0), (8.0, 3.0), (9.0, 3.0)), strict=True))
    rows = saving_rows(pl.DataFrame([row for arm, each in costs.items() for row in points(arm, *each)]))

    found = {(row["budget"], row["against"]): row for row in rows}
    assert found[PER_KWH, SAME_KWH]["carbon_less_pct"] == pytest.approx(20.0)
    assert found[PER_KWH, SAME_KWH]["net_of_energy_pct"] == pytest.approx(0.0)
    assert found["a price a gram", SAME_KWH]["net_of_energy_pct"] == pytest.approx(20.0)
    assert found["a price a gram, foreseen", PER_KWH]["kwh_less_pct"] == pytest.approx(-12.5)
