"""Prices on real grids: runs shared among grids, months of a series, and savings at equal completion time by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.studies.carbon import months
from pipelines.studies.carbon.jobs import ArrivingJobs
from pipelines.studies.carbon.months import ARMS, PER_GRAM, PER_KWH, SAME_KWH, saving_rows
from pipelines.studies.carbon.simulation import Cluster, Simulated, simulate
from pipelines.studies.energy import month_of
from scheduler_core.planning.elastic import Planner
from scheduler_core.planning.hourly import HourlySeries
from tests.pipelines.studies.carbon.arrivals import arriving


def test_plans_by_a_price_per_kwh_are_simulated_once_for_all_grids(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Planner] = []

    def counted(jobs: ArrivingJobs, cluster: Cluster, budget_kwh: float, planner: Planner) -> Simulated:
        ran.append(planner)
        return simulate(jobs, cluster, budget_kwh, planner)

    jobs = arriving([0.0, 600.0], [9000.0, 4000.0])
    monkeypatch.setattr(months, "simulate", counted)
    monkeypatch.setattr(months, "drawn", lambda *_, **__: jobs)
    a_day = HourlySeries(start_s=0.0, values=np.tile(np.arange(100.0, 124.0), 365), unit="g/kWh")
    grids = {"A": a_day, "B": replace(a_day, values=3.0 * a_day.values)}
    measured = SimpleNamespace(full_w=200.0)
    of = months.Months(
        measured=measured, cluster=Cluster(gpus=4, period_s=900.0), jobs=2, prices=(1.0, 9.0), grids=grids
    )
    by_kwh, by_gram = of(ARMS[PER_KWH], 0), of(ARMS[PER_GRAM], 0)

    assert len(ran) == 2 + 8
    assert [(row["zone"], row["month"], row["share"]) for row in by_kwh] == [
        (zone, f"1970-{month}", price) for zone in "AB" for month in ("06", "12") for price in (1.0, 9.0)
    ]
    assert [row["kwh"] for row in by_kwh[:4]] == [row["kwh"] for row in by_kwh[4:]]
    assert [3.0 * row["kg"] for row in by_kwh[:4]] == pytest.approx([row["kg"] for row in by_kwh[4:]])
    assert len(by_gram) == 8


def test_a_month_is_within_the_year_of_the_series() -> None:
    year = HourlySeries(start_s=0.0, values=np.zeros(365 * 24), unit="g/kWh")

    assert month_of(year, 12) == (334 * 86_400.0, 365 * 86_400.0)
    with pytest.raises(BadUsage, match="without all of 1970-12"):
        month_of(replace(year, values=np.zeros(364 * 24), filled=np.zeros(364 * 24, np.bool_)), 12)


def test_carbon_saved_at_equal_completion_time_by_hand() -> None:
    def points(arm: str, kwh: float, kg: float) -> list[dict[str, object]]:
        ends = ((1.0, 200.0), (2.0, 100.0))
        of = {"zone": "Z", "month": "2023-06", "arm": arm}
        return [
            {**of, "seed": seed, "share": by, "mean_jct_s": s, "kwh": by * kwh, "kg": by * kg}
            for seed in (0, 1)
            for by, s in ends
        ]

    costs = dict(zip(ARMS, ((10.0, 5.0), (8.0, 4.0), (8.0, 3.0)), strict=True))
    rows = saving_rows(pl.DataFrame([row for arm, each in costs.items() for row in points(arm, *each)]))

    found = {(row["budget"], row["against"]): row for row in rows}
    assert found[PER_KWH, SAME_KWH]["carbon_less_pct"] == pytest.approx(20.0)
    assert found[PER_KWH, SAME_KWH]["net_of_energy_pct"] == pytest.approx(0.0)
    assert found[PER_GRAM, SAME_KWH]["net_of_energy_pct"] == pytest.approx(20.0)
    assert found[PER_GRAM, PER_KWH]["carbon_less_pct"] == pytest.approx(25.0)
