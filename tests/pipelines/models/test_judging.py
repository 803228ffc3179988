"""The evaluation table: its columns, its leads and its weeks, by hand."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from pipelines.models import judging, metrics
from pipelines.models.judging import Judged
from pipelines.models.metrics import Forecast

T0 = datetime(2021, 3, 1, tzinfo=UTC)
RNG = np.random.default_rng(1)
RUN_S = np.exp(RNG.normal(8, 1, 1400))
TRUE = np.log(RUN_S)


def judged(per_day: int = 100) -> Judged:
    submitted = pl.Series([T0 + timedelta(days=i // per_day) for i in range(len(RUN_S))])
    return Judged(trace="t", task_type="ctr", split="time", submit_ts=submitted, run_s=RUN_S, n=len(RUN_S))


def about(noise: float) -> Forecast:
    middle = TRUE + np.random.default_rng(int(noise * 10)).normal(0, noise, len(TRUE))
    return Forecast(p50=middle, p90=middle + 1.2816 * noise)


def test_the_columns_are_those_promised() -> None:
    table = judging.compare(judged(), {"combined": about(0.3), "worse": about(0.9)}, seed=0, draws=50)

    promised = ["model", "trace", "task_type", "split", "n", "mae_h", "wmape", "wmape_48h"]
    promised += ["pinball", "pinball_lo", "pinball_hi", "pinball_p50", "coverage_p90", "within_2x"]
    promised += ["lead", "lead_lo", "lead_hi", "wmape_48h_diff", "wmape_48h_diff_lo", "wmape_48h_diff_hi"]
    assert table.columns[: len(promised)] == promised
    assert table["model"].to_list() == ["combined", "worse"]


def test_the_lead_is_other_answer_minus_the_combination_and_null_on_its_own_row() -> None:
    ours, worse = judging.compare(judged(), {"combined": about(0.3), "worse": about(0.9)}, seed=0, draws=200).to_dicts()

    assert ours["lead"] is ours["lead_lo"] is ours["wmape_48h_diff"] is None
    assert worse["lead"] == pytest.approx(worse["pinball"] - ours["pinball"])
    assert 0 < worse["lead_lo"] < worse["lead"] < worse["lead_hi"]
    assert worse["wmape_48h_diff"] == pytest.approx(worse["wmape_48h"] - ours["wmape_48h"])
    assert worse["wmape_48h_diff_lo"] < worse["wmape_48h_diff"] < worse["wmape_48h_diff_hi"]


def test_a_model_has_no_lead_over_itself() -> None:
    _, same = judging.compare(judged(), {"combined": about(0.3), "same": about(0.3)}, seed=0, draws=50).to_dicts()

    assert (same["lead"], same["lead_lo"], same["lead_hi"]) == (0.0, 0.0, 0.0)


def test_pairing_makes_the_interval_of_a_lead_narrower_than_that_of_the_losses() -> None:
    day_effect = np.repeat(np.random.default_rng(4).normal(0, 1, 14), 100)
    both = {"combined": Forecast(p50=TRUE + day_effect, p90=TRUE + day_effect)}
    both["other"] = Forecast(p50=both["combined"].p50 + 0.1, p90=both["combined"].p90)

    _, other = judging.compare(judged(), both, seed=0).to_dicts()

    assert other["lead_hi"] - other["lead_lo"] < 0.2 * (other["pinball_hi"] - other["pinball_lo"])


def test_weekly_coverage_is_the_range_over_weeks_with_enough_rows() -> None:
    p90 = np.where(np.arange(1400) < 700, TRUE + 1, TRUE - 1)  # the first week covered, the second missed

    row = judging.compare(judged(), {"combined": Forecast(p50=TRUE, p90=p90)}, seed=0, draws=10).to_dicts()[0]

    assert (row["coverage_p90_week_lo"], row["coverage_p90_week_hi"]) == (0.0, 1.0)
    assert row["coverage_p90"] == pytest.approx(metrics.coverage_p90(TRUE, p90)) == 0.5


def test_every_other_answer_is_compared_with_the_combination_wherever_it_stands() -> None:
    forecasts = {"forest": about(0.5), "combined": about(0.3), "recent_20": about(0.9)}

    table = judging.compare(judged(), forecasts, seed=0, draws=50)

    assert table["model"].to_list() == list(forecasts)
    assert table["lead"].is_null().to_list() == [False, True, False]
    [ours] = table.filter(pl.col("model") == "combined")["pinball"]
    assert table["lead"].drop_nulls().to_list() == pytest.approx(
        [loss - ours for loss in table.filter(pl.col("model") != "combined")["pinball"]]
    )
    assert table.schema == pl.Schema(judging.EVALUATION_SCHEMA)
