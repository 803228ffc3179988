"""Intervals over resampled days, the evaluation table, and the gate that chooses which answer serves."""

import math
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from modelserve.bundle.card import FITTED
from pipelines.models import judging
from pipelines.models.judging import (
    COMBINED,
    COVERAGE_TOLERANCE,
    EVALUATION_SCHEMA,
    LEAST_DAYS,
    LEAST_ROWS,
    Judged,
    Verdict,
    judge,
)
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


def shifted(by: float) -> Forecast:
    """A forecast as good as that of noise 0.5, but worse by a shift on days of one half and better on the others."""
    day = np.arange(len(RUN_S)) // 100
    base = about(0.5)
    middle = np.where(day % 2, TRUE + by, TRUE + 0.8 * (base.p50 - TRUE)) if by else base.p50 + 0.01 * (-1.0) ** day
    return Forecast(p50=middle, p90=middle + 1.2816 * 0.5)


def test_the_lead_is_other_answer_minus_the_combination_and_null_on_its_own_row() -> None:
    answers = {"combined": about(0.3), "worse": about(0.9), "same": about(0.3)}

    ours, worse, same = judging.compare(judged(), answers, seed=0, draws=200).to_dicts()

    assert ours["lead"] is ours["lead_lo"] is None
    assert worse["lead"] == pytest.approx(worse["pinball"] - ours["pinball"])
    assert 0 < worse["lead_lo"] < worse["lead"] < worse["lead_hi"]
    assert (same["lead"], same["lead_lo"], same["lead_hi"]) == (0.0, 0.0, 0.0)


def test_pairing_makes_the_interval_of_a_lead_narrower_than_that_of_the_losses() -> None:
    day_effect = np.repeat(np.random.default_rng(4).normal(0, 1, 14), 100)
    both = {"combined": Forecast(p50=TRUE + day_effect, p90=TRUE + day_effect)}
    both["other"] = Forecast(p50=both["combined"].p50 + 0.1, p90=both["combined"].p90)

    _, other = judging.compare(judged(), both, seed=0).to_dicts()

    assert other["lead_hi"] - other["lead_lo"] < 0.2 * (other["pinball_hi"] - other["pinball_lo"])


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


# Intervals over days.


def test_the_interval_of_a_mean_is_about_two_standard_errors_wide() -> None:
    rows = np.random.default_rng(2).normal(size=400)
    draws = judging.day_draws(400, seed=0, draws=4000)

    interval = judging.mean_interval(np.arange(400), rows, draws)

    error = rows.std() / 20
    assert interval.hi - interval.lo == pytest.approx(2 * 1.96 * error, rel=0.06)


def test_a_ratio_resamples_both_sums_over_the_same_days() -> None:
    bottom = np.array([1.0, 10.0, 100.0, 1000.0])

    interval = judging.ratio_interval(np.arange(4), 3 * bottom, bottom, judging.day_draws(4, seed=0))

    alone = judging.mean_interval(np.zeros(5, dtype=np.int64), np.ones(5), judging.day_draws(1, seed=0))
    assert (interval.value, interval.lo, interval.hi) == pytest.approx((3.0, 3.0, 3.0))
    assert (alone.value, alone.lo, alone.hi) == (1.0, -np.inf, np.inf)


# The gate.

FIGURES = ("pinball", "lead_hi", "excess", "excess_lo", "excess_hi")
BEST = 0.4
"""Loss of the best simple answer in the tables below, `same_gpus`."""


def row(model: str, pinball: float | None, spread: float = 0.05, **more: object) -> dict:
    """A row of an evaluation, with intervals of `spread` on both sides; the combination has a loss of 0.3."""
    excess, lead_hi = (None, None) if pinball is None else (pinball - BEST, pinball - 0.3 + spread)
    figures = {"pinball": pinball, "lead_hi": None if model == COMBINED else lead_hi, "excess": excess}
    ends = {} if excess is None else {"excess_lo": excess - spread, "excess_hi": excess + spread}
    return {"model": model, "split": "time", "n": 400, "days": 20, **figures, **ends, **more}


def verdict_of(*rows: dict) -> Verdict:
    best = row("same_gpus", BEST, **{key: rows[0][key] for key in ("n", "days", "split")})
    table = [*rows, best, {**best, "model": "reference", "pinball": 0.5}]
    return judge("runtime", pl.DataFrame(table, schema_overrides=dict.fromkeys(FIGURES, pl.Float64)))


@pytest.mark.parametrize(
    ("pinball", "spread", "more", "word", "answer"),
    [
        (0.30, 0.05, {}, "better", COMBINED),
        (0.30, 0.20, {}, "level", COMBINED),
        (0.42, 0.05, {}, "level", COMBINED),  # at the tolerance of 5 %
        (0.43, 0.05, {}, "too few", "same_gpus"),  # beyond it, and not surely
        (0.43, 0.02, {}, "worse", "same_gpus"),
        (0.41, 0.005, {}, "worse", "same_gpus"),  # surely worse, though within the tolerance
        (0.30, 0.05, {"n": LEAST_ROWS - 1}, "too few", COMBINED),
        (0.30, 0.05, {"days": LEAST_DAYS - 1}, "too few", COMBINED),
        (0.41, 0.05, {"n": LEAST_ROWS - 1}, "too few", "same_gpus"),
        (0.60, 0.05, {"n": 1}, "too few", "same_gpus"),
    ],
)
def test_a_model_is_compared_with_the_best_simple_answer(
    pinball: float, spread: float, more: dict, word: str, answer: str
) -> None:
    verdict = verdict_of(row(COMBINED, pinball, spread, **more))

    assert (verdict.word, verdict.answer) == (word, answer)
    assert verdict.proven is (word in ("better", "level"))
    assert f"against 0.4000 of same_gpus on {more.get('n', 400)} later rows" in verdict.text
    assert verdict.text.endswith(f"{answer} answers")
    assert ("too few later rows to tell" in verdict.text) is (word == "too few")


@pytest.mark.parametrize("member", sorted(FITTED))
def test_a_trained_member_that_is_surely_better_than_the_combination_is_judged_for_it(member: str) -> None:
    ours = row(COMBINED, 0.30)

    assert verdict_of(ours, row(member, 0.20)).answer == member
    assert verdict_of(ours, row(member, 0.20), row("recent_20", 0.25)).answer == member
    assert verdict_of(ours, row(member, 0.28)).answer == COMBINED  # the interval reaches beyond zero
    assert verdict_of(ours, row(member, 0.20, split="group")).answer == COMBINED
    assert verdict_of(row(COMBINED, 0.30, n=49), row(member, 0.20, n=49)).answer == COMBINED
    assert verdict_of(ours, row(member, 0.20), row("other", 0.01)).answer == member


def test_a_baseline_that_no_bundle_holds_judges_but_does_not_answer() -> None:
    better = row("user_median", 0.10, 0.0)

    verdict = verdict_of({**row(COMBINED, 0.30), "excess": 0.2, "excess_lo": 0.1, "excess_hi": 0.3}, better)

    assert (verdict.word, verdict.answer) == ("worse", "same_gpus")
    assert "against 0.1000 of user_median" in verdict.text


@pytest.mark.parametrize(
    "nothing",
    [
        pl.DataFrame(schema=EVALUATION_SCHEMA),
        pl.DataFrame([row("forest", 0.1, split="random"), row("same_gpus", 0.1, split="random")]),
    ],
)
def test_without_later_rows_history_answers(nothing: pl.DataFrame) -> None:
    verdict = judge("runtime", nothing)

    assert (verdict.word, verdict.answer) == ("too few", "history")
    assert verdict.text == "no later job to judge on: history answers"


@pytest.mark.parametrize("loss", [None, math.nan, math.inf])
def test_a_model_without_a_finite_loss_fails(loss: float | None) -> None:
    for verdict in (verdict_of(row(COMBINED, loss)), verdict_of(row("forest", 0.1))):
        assert (verdict.word, verdict.text) == (
            "failed",
            "no finite loss of combined or of a simple answer, expected both",
        )


# The same verdicts by hand, in plain numpy, from the rows themselves.


def by_hand(forecasts: dict[str, Forecast], days: np.ndarray, seed: int) -> str:
    losses = {}
    for name, forecast in forecasts.items():
        low, high = TRUE - forecast.p50, TRUE - forecast.p90
        losses[name] = (0.5 * np.abs(low) + np.where(high >= 0, 0.9 * high, -0.1 * high)) / 2
    best = min((name for name in losses if name != COMBINED), key=lambda name: losses[name].mean())
    gap = losses[COMBINED] - losses[best]
    counts = np.random.default_rng(seed).multinomial(len(set(days)), [1 / len(set(days))] * len(set(days)), size=1000)
    means = [np.repeat(gap, drawn[days]).mean() for drawn in counts]
    lo, hi = np.percentile(means, [2.5, 97.5])
    if len(days) < 50 or len(set(days)) < 5:
        return "too few"
    if hi < 0 or lo > 0:
        return "better" if hi < 0 else "worse"
    return "level" if gap.mean() <= 0.05 * losses[best].mean() else "too few"


@pytest.mark.parametrize(
    ("ours", "per_day", "word"),
    [
        (about(0.3), 100, "better"),
        (about(0.9), 100, "worse"),
        (shifted(0.0), 100, "level"),
        (shifted(0.55), 100, "too few"),  # worse in the mean of days that differ
        (about(0.3), 400, "too few"),  # four days
    ],
)
def test_each_verdict_is_found_by_hand_from_the_same_rows(ours: Forecast, per_day: int, word: str) -> None:
    answers = {COMBINED: ours, "same_gpus": about(0.5), "typical": about(1.5)}

    verdict = judge("runtime", judging.compare(judged(per_day), answers, seed=3))

    days = np.arange(len(RUN_S)) // per_day
    assert verdict.word == by_hand(answers, days, 3) == word


def usage(target: str, coverage: float | None, n: int = 100) -> dict:
    return {"model": "xgboost", "target": target, "split": "time", "n": n, "level": 0.95, "coverage": coverage}


@pytest.mark.parametrize(
    ("rows", "passed", "said"),
    [
        ([usage("mem_gib", 0.95), usage("gpus", 1.0)], True, "gpus covered 1.000 of 100 later rows; mem_gib"),
        ([usage("mem_gib", 0.95 - COVERAGE_TOLERANCE + 1e-9)], True, "mem_gib covered 0.900"),
        ([usage("mem_gib", 0.95), usage("gpus", 0.88)], False, "^gpus covered 0.880 of 100 later rows, expected 0.95"),
        ([usage("mem_gib", 0.99, n=3)], False, "mem_gib has 3 later rows"),
        ([usage("mem_gib", None)], False, "expected 0.95"),
        ([{**usage("mem_gib", 0.99), "model": "group_max"}], False, "no rows of xgboost"),
        ([{**usage("mem_gib", 0.99), "split": "random"}], False, "no rows of the split time"),
    ],
)
def test_usage_models_must_cover_what_they_say(rows: list[dict], passed: bool, said: str) -> None:
    verdict = judge("usage", pl.DataFrame(rows, schema_overrides={"coverage": pl.Float64}))

    assert verdict.proven is passed
    assert re.search(said, verdict.text)
