"""The gate: which answer of a run-time model serves, and which models are refused."""

import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelserve.bundle.card import COMBINABLE
from pipelines.models.evaluate import empty_table
from pipelines.models.judging import COMBINED, COVERAGE_TOLERANCE, LEAST_ROWS, judge
from tests.examples import examples

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
    assert (
        verdict.text
        == "pinball 0.3000 on 400 later rows against 0.4000 of user_median, lead +0.1000 [+0.0500, +0.1500]"
    )


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
        empty_table(),
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


def test_an_evaluation_without_columns_is_refused() -> None:
    assert not judge("runtime", pl.DataFrame()).passed
    assert not judge("usage", pl.DataFrame()).passed


def test_rows_of_other_splits_do_not_count() -> None:
    random = [row(COMBINED, 0.1, split="random"), row("forest", 0.01, -0.09, 0.01, split="random")]

    verdict = judge("runtime", runtime(row(COMBINED, 0.3), row("user_median", 0.4, 0.1), *random))

    assert (verdict.passed, verdict.answer) == (True, COMBINED)
    assert verdict.text.startswith("pinball 0.3000 on 400 later rows against 0.4000 of user_median")


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
