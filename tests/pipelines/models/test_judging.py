"""Intervals over resampled days, the evaluation table, and the gate that chooses which answer serves."""

import re
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelserve.bundle.card import COMBINABLE
from pipelines.models import judging
from pipelines.models.judging import COMBINED, COVERAGE_TOLERANCE, EVALUATION_SCHEMA, LEAST_ROWS, Judged, judge
from pipelines.models.metrics import Forecast
from tests.examples import examples

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


def test_the_lead_is_other_answer_minus_the_combination_and_null_on_its_own_row() -> None:
    answers = {"combined": about(0.3), "worse": about(0.9), "same": about(0.3)}

    ours, worse, same = judging.compare(judged(), answers, seed=0, draws=200).to_dicts()

    assert ours["lead"] is ours["lead_lo"] is ours["wmape_48h_diff"] is None
    assert worse["lead"] == pytest.approx(worse["pinball"] - ours["pinball"])
    assert 0 < worse["lead_lo"] < worse["lead"] < worse["lead_hi"]
    assert worse["wmape_48h_diff"] == pytest.approx(worse["wmape_48h"] - ours["wmape_48h"])
    assert worse["wmape_48h_diff_lo"] < worse["wmape_48h_diff"] < worse["wmape_48h_diff_hi"]
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
    assert row["coverage_p90"] == 0.5


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

FIGURES = ("pinball", "lead", "lead_lo", "lead_hi")


def row(model: str, pinball: float | None, lead: float | None = None, spread: float = 0.05, **more: object) -> dict:
    """A row of an evaluation, with the interval `lead - spread` to `lead + spread`."""
    lo, hi = (None, None) if lead is None else (lead - spread, lead + spread)
    figures = {"pinball": pinball, "lead": lead, "lead_lo": lo, "lead_hi": hi}
    return {"model": model, "split": "time", "n": 400, **figures, **more}


def runtime(*rows: dict) -> pl.DataFrame:
    return pl.DataFrame(rows, schema_overrides=dict.fromkeys(FIGURES, pl.Float64))


def test_the_combination_answers_and_is_set_against_the_best_simple_answer() -> None:
    rows = [row(COMBINED, 0.30), row("xgboost", 0.31, 0.01), row("reference", 0.5, 0.2), row("user_median", 0.40, 0.10)]

    verdict = judge("runtime", runtime(*rows))

    assert (verdict.passed, verdict.answer) == (True, COMBINED)
    lead = "against 0.4000 of user_median, lead +0.1000 [+0.0500, +0.1500]"
    assert verdict.text == f"pinball 0.3000 on 400 later rows {lead}"


@pytest.mark.parametrize("member", COMBINABLE)
def test_a_member_that_is_better_beyond_doubt_answers_alone(member: str) -> None:
    verdict = judge("runtime", runtime(row(COMBINED, 0.30), row(member, 0.20, -0.10), row("user_median", 0.40, 0.10)))

    assert (verdict.passed, verdict.answer) == (True, member)
    assert f"{member} alone is better by 0.1000 and answers" in verdict.text


@pytest.mark.parametrize(
    "other",
    [
        row("forest", 0.28, -0.02, 0.02),  # the interval ends at zero
        row("forest", 0.28, -0.02, 0.03),  # zero lies within it
        row("forest", 0.40, 0.10),
        row("forest", 0.20, None),
        row("forest", None, -0.10),
        row("forest", float("nan"), -0.10),
        row("forest", 0.20, -0.10, split="group"),
        row("recent_20", 0.20, -0.10),  # a baseline that no model can serve
        row("random_forest", 0.20, -0.10),
    ],
)
def test_otherwise_the_combination_answers(other: dict) -> None:
    verdict = judge("runtime", runtime(row(COMBINED, 0.30), other))

    assert (verdict.passed, verdict.answer) == (True, COMBINED)
    assert "alone" not in verdict.text


def test_of_several_better_members_the_best_answers() -> None:
    rows = [
        row(COMBINED, 0.3),
        row("forest", 0.25, -0.05, 0.01),
        row("same_gpus", 0.2, -0.1),
        row("xgboost", 0.1, -0.2, 9),
    ]

    assert judge("runtime", runtime(*rows)).answer == "same_gpus"


@pytest.mark.parametrize(
    ("n", "answer", "said"),
    [
        (LEAST_ROWS, "forest", "forest alone"),
        (LEAST_ROWS - 1, COMBINED, "on 49 later rows.*: too few to choose another answer"),
        (1, COMBINED, "on 1 later rows.*: too few"),
        (None, COMBINED, "on 0 later rows.*: too few"),
    ],
)
def test_another_answer_takes_enough_rows_to_choose(n: int | None, answer: str, said: str) -> None:
    rows = [row(COMBINED, 0.3, n=n), row("forest", 0.2, -0.1, n=n)]

    verdict = judge(
        "runtime", pl.DataFrame(rows, schema_overrides={**dict.fromkeys(FIGURES, pl.Float64), "n": pl.Int64})
    )

    assert (verdict.passed, verdict.answer) == (True, answer)
    assert re.search(said, verdict.text)


@pytest.mark.parametrize(
    "nothing",
    [
        pl.DataFrame(schema=EVALUATION_SCHEMA),
        runtime(row(COMBINED, 0.3)).clear(),
        runtime(row(COMBINED, 0.3, split="random"), row("forest", 0.1, -0.2, split="random")),
    ],
)
def test_without_later_rows_the_combination_answers(nothing: pl.DataFrame) -> None:
    verdict = judge("runtime", nothing)

    assert (verdict.passed, verdict.answer) == (True, COMBINED)
    assert verdict.text == "no later job to compare on: the combination answers"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(COMBINED, float("nan")), row("user_median", 0.4, 0.1)], "pinball nan of combined, expected a number"),
        ([row(COMBINED, None), row("forest", 0.4, -0.1)], "pinball nan of combined, expected a number"),
        ([row(COMBINED, float("inf"))], "pinball inf of combined, expected a number"),
        ([row(COMBINED, float("nan"), n=3)], "pinball nan"),
        ([row("user_median", 0.4, 0.1)], "0 rows of combined, expected one"),
        ([row(COMBINED, 0.3), row(COMBINED, 0.2), row("user_median", 0.4, 0.1)], "2 rows of combined, expected one"),
    ],
)
def test_a_model_without_one_finite_loss_is_refused(rows: list[dict], said: str) -> None:
    verdict = judge("runtime", runtime(*rows))

    assert not verdict.passed
    assert said in verdict.text


@pytest.mark.parametrize("column", ["model", "split", "n", *FIGURES])
def test_an_evaluation_that_lacks_a_column_is_refused(column: str) -> None:
    verdict = judge("runtime", runtime(row(COMBINED, 0.3), row("forest", 0.4, 0.1)).drop(column))

    assert (verdict.passed, verdict.text) == (False, f"the evaluation lacks {column}")
    assert not judge("usage", pl.DataFrame()).passed


@settings(max_examples=examples(40), deadline=None)
@given(
    leads=st.dictionaries(
        st.sampled_from([*COMBINABLE, "recent_20"]), st.tuples(st.floats(-0.2, 0.2), st.floats(0.0, 0.3)), max_size=7
    ),
    order=st.randoms(use_true_random=False),
)
def test_what_answers_alone_is_a_member_with_its_whole_interval_below_zero(leads: dict, order: object) -> None:
    rows = [row(COMBINED, 0.3), *(row(name, 0.3 + lead, lead, spread) for name, (lead, spread) in leads.items())]
    shuffled = list(rows)
    order.shuffle(shuffled)

    verdict = judge("runtime", runtime(*shuffled))

    allowed = {name: lead for name, (lead, spread) in leads.items() if name != "recent_20" and lead + spread < 0.0}
    assert verdict.passed
    if allowed:
        assert allowed[verdict.answer] == pytest.approx(min(allowed.values()))
    else:
        assert verdict.answer == COMBINED
    assert judge("runtime", runtime(*rows)) == verdict


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

    assert verdict.passed is passed
    assert re.search(said, verdict.text)
