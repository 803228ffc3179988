"""The picture of a training run: loss by week beside the best baseline, and calibration."""

from dataclasses import replace
from datetime import date, timedelta

import polars as pl
import pytest

from pipelines.models.evaluate import FitRecord
from pipelines.report.training import calibration, picture, weekly_loss

MONDAY = date(2021, 3, 1)
LOSSES = {"combined": (0.5, 0.6), "recent_20": (0.7, 0.6), "user_median": (0.6, 0.9), "global_median": (2.0, 2.0)}
RECORD = FitRecord(
    rounds=pl.DataFrame(),
    weeks=pl.DataFrame(
        [
            {"week": MONDAY + timedelta(weeks=week), "model": model, "jobs": 10, "pinball": losses[week]}
            for model, losses in LOSSES.items()
            for week in (0, 1)
        ]
    ),
    calibration=pl.DataFrame(
        [
            {"quantile": tau, "predicted_s": 10.0 * (1 + i), "jobs": 20, "share": tau - 0.05}
            for tau in (0.5, 0.9)
            for i in range(3)
        ]
    ),
)


def test_a_record_becomes_a_picture() -> None:
    drawn = picture(RECORD, "runtime.made.ctr")

    assert drawn is not None
    assert drawn.startswith(b"\x89PNG")


@pytest.mark.parametrize("record", [None, replace(RECORD, weeks=RECORD.weeks[:0])])
def test_without_judged_jobs_there_is_no_picture(record: FitRecord | None) -> None:
    assert picture(record, "runtime.made.ctr") is None


def test_the_model_is_drawn_beside_the_best_other_forecast() -> None:
    spec = weekly_loss(RECORD.weeks).to_dict()

    [rows] = spec["datasets"].values()
    assert {row["model"] for row in rows} == {"combined", "recent_20"}
    assert {row["week"] for row in rows} == {"2021-03-01", "2021-03-08"}
    assert "20 later jobs" in str(spec["title"])


def test_calibration_marks_the_levels() -> None:
    spec = calibration(RECORD.calibration).to_dict()

    points, levels = sorted(spec["datasets"].values(), key=len, reverse=True)
    assert {row["quantile"] for row in points} == {"p50", "p90"}
    assert sorted(row["quantile"] for row in levels) == [0.5, 0.9]
    assert "60 later jobs" in str(spec["title"])
