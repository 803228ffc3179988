import re

import polars as pl
import pytest

from pipelines.models.judging import COVERAGE_TOLERANCE, LEAST_ROWS, judge


def row(
    model: str, pinball: float | None, lead: float | None = None, lead_lo: float | None = None, **more: object
) -> dict:
    return {"model": model, "split": "time", "n": 400, "pinball": pinball, "lead": lead, "lead_lo": lead_lo, **more}


def runtime(*rows: dict) -> pl.DataFrame:
    return pl.DataFrame(rows, schema_overrides={"pinball": pl.Float64, "lead": pl.Float64, "lead_lo": pl.Float64})


def test_a_lead_whose_interval_excludes_zero_passes() -> None:
    verdict = judge("runtime", runtime(row("xgboost", 0.30), row("user_median", 0.40, 0.10, 0.05)))

    assert verdict.passed
    assert "0.3000 against 0.4000 of user_median on 400 later rows, lead +0.1000, at least +0.0500" in verdict.text


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("xgboost", 0.3), row("user_median", 0.4, 0.1, -0.01)], "interval begins at -0.0100: expected above zero"),
        ([row("xgboost", 0.3), row("user_median", 0.4, 0.1, 0.0)], r"begins at \+0.0000"),
        ([row("xgboost", 0.3), row("user_median", 0.2, -0.1, -0.2)], "lead -0.1000: expected above zero"),
        ([row("xgboost", 0.3), row("user_median", 0.4, None, None)], "expected above zero"),
        ([row("xgboost", 0.3), row("user_median", 0.9, 0.6, 0.5), row("recent_20", 0.31, 0.01, -0.1)], "of recent_20"),
        ([row("xgboost", 0.3)], "no history baseline"),
        ([row("xgboost", 0.3), row("random_forest", 0.4, 0.1, 0.05)], "no history baseline"),
        ([row("user_median", 0.4, 0.1, 0.05)], "0 rows of xgboost"),
        ([row("xgboost", 0.3), row("xgboost", 0.2), row("user_median", 0.4, 0.1, 0.05)], "2 rows of xgboost"),
        ([row("xgboost", 0.3, n=LEAST_ROWS - 1), row("user_median", 0.4, 0.1, 0.05)], "49 held-out rows"),
        ([row("xgboost", 0.3, n=None), row("user_median", 0.4, 0.1, 0.05)], "0 held-out rows"),
        (
            [row("xgboost", 0.3, split="random"), row("user_median", 0.4, 0.1, 0.05, split="random")],
            "no rows of the split",
        ),
    ],
)
def test_everything_else_is_refused_in_words(rows: list[dict], said: str) -> None:
    verdict = judge("runtime", runtime(*rows))

    assert not verdict.passed
    assert re.search(said, verdict.text)


def test_the_forest_may_be_better() -> None:
    rows = [row("xgboost", 0.30), row("random_forest", 0.20, -0.1, -0.2), row("user_median", 0.40, 0.10, 0.05)]

    assert judge("runtime", runtime(*rows)).passed


def test_rows_of_other_splits_do_not_count() -> None:
    random = [row("xgboost", 0.1, split="random"), row("user_median", 0.01, -0.09, -0.1, split="random")]

    assert judge("runtime", runtime(row("xgboost", 0.3), row("user_median", 0.4, 0.1, 0.05), *random)).passed


@pytest.mark.parametrize("empty", [pl.DataFrame(), runtime(row("xgboost", 0.3)).clear()])
def test_an_empty_evaluation_is_refused(empty: pl.DataFrame) -> None:
    assert not judge("runtime", empty).passed


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
    ],
)
def test_usage_models_must_cover_what_they_say(rows: list[dict], passed: bool, said: str) -> None:
    verdict = judge("usage", pl.DataFrame(rows, schema_overrides={"coverage": pl.Float64}))

    assert verdict.passed is passed
    assert re.search(said, verdict.text)
