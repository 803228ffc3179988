"""What runs come to: savings and their parts, deviations, energy at equal tardiness, verdicts."""

import polars as pl
import pytest

from pipelines.studies.cost.arms import AHEAD, GREEDY, STRONGEST, as_asked, first_principle, preemptive
from pipelines.studies.cost.settings import AT_LOADS, BOUND, EXACT, OFF, PREEMPTING, WEIGHTS, settings
from pipelines.studies.cost.tables import DECISIONS, PLAN, as_asked_note, claims, deviations, savings, sensitivity

LOADS = (0.5,)


def row(study: str, arm: str, seed: int, tardiness: float, energy: float, **more: float) -> dict[str, object]:
    usual = {
        "zone": "Z",
        "load": 0.5,
        "value": 1.0,
        "energy_kwh": 10.0 * energy,
        "kept_on_usd": energy,
        "foreseen_usd": 0.99 * (tardiness + energy),
        "late_share": 0.5,
        "gpu_hours": 3.0,
        "restarts": 1,
        "infeasible_share": 0.7 if as_asked(arm) else 0.0,
        "unavoidable_usd": 15.5 if as_asked(arm) else 0.0,
    }
    total = {"tardiness_usd": tardiness, "energy_usd": energy, "total_usd": tardiness + energy}
    return {"study": study, "arm": arm, "seed": seed, **total, **usual, **more}


def runs(ahead: float = 10.0) -> pl.DataFrame:
    """Return two seeds: looking ahead at `ahead` and the others at 60 USD of tardiness; energy 10, others 20."""
    rows = []
    for seed in (0, 1):
        rows.append(row(EXACT, AHEAD, seed, ahead + seed, 10.0))
        rows.append(row(EXACT, BOUND, seed, 0.5 * ahead, 10.0))
        rows += [row(EXACT, arm, seed, 60.0 + seed, 20.0) for arm in (GREEDY, *first_principle())]
        rows.append(row(OFF, AHEAD, seed, 1.1 * (ahead + seed) + 1.0, 10.0))
        rows.append(row(WEIGHTS, AHEAD, seed, 100.0, 6.0, value=0.01))
        rows += [row(PREEMPTING, arm, seed, ahead + seed + 20.0, 10.0) for arm in preemptive()]
        rows.append(row(PREEMPTING, "edf, fixed, preemptive", seed, 1000.0, 10.0, load=0.9))
    return pl.DataFrame(rows)


def test_savings_split_into_tardiness_and_energy() -> None:
    (first,) = [each for each in savings(runs()) if each["against"] == "fifo, fixed"]

    assert first["saving_pct"] == pytest.approx(100 * 60.0 / 80.5)
    assert first["tardiness_part_pct"] == pytest.approx(100 * 50.0 / 80.5)
    assert first["energy_part_pct"] == pytest.approx(100 * 10.0 / 80.5)
    assert first["energy_saving_pct"] == pytest.approx(50.0)
    assert first["net_pct"] == pytest.approx(100 * (1.0 - 20.5 / 65.0))
    assert first["unavoidable_usd"] == pytest.approx(15.5)
    assert first["kept_on_pct"] == pytest.approx(100 * 80.0 / 100.5)


def test_deviations_are_of_the_realised_cost() -> None:
    plan, decisions = (deviations(runs(), name)[0.5].tolist() for name in (PLAN, DECISIONS))

    assert plan == pytest.approx([100 * 2.0 / 22.0, 100 * 2.1 / 23.1])
    assert decisions == pytest.approx([1.0, 1.0])


def test_parameters_are_held_against_the_same_policy_or_looking_ahead() -> None:
    found = {str(each["study"]): each for each in sensitivity(runs(), 0.5, "Z")}

    assert found[WEIGHTS]["than"] == AHEAD
    assert found[WEIGHTS]["more_than_usual_pct"] == pytest.approx(100 * (106.0 / 20.5 - 1.0))
    assert found[PREEMPTING]["than"] == AHEAD
    assert found[PREEMPTING]["more_than_usual_pct"] == pytest.approx(100 * 20.0 / 20.5)


@pytest.mark.parametrize(("ahead", "verdict"), [(10.0, "met"), (58.0, "missed")])
def test_the_bar_is_thirty_percent_for_each_method(ahead: float, verdict: str) -> None:
    told = f"{AHEAD}: mean cost below"
    found = [
        each
        for each in claims(runs(ahead), LOADS)
        if str(each["claim"]).startswith(told) and "preemptive" not in str(each["claim"])
    ]

    assert len(found) == len(first_principle()) + 1
    assert {each["verdict"] for each in found if "greedy" not in str(each["claim"])} == {verdict}


@pytest.mark.parametrize(("ahead", "verdict"), [(10.0, "met"), (40.0, "missed")])
def test_methods_with_leave_to_preempt_are_bars_of_their_own(ahead: float, verdict: str) -> None:
    found = [each for each in claims(runs(ahead), LOADS) if "preemptive" in str(each["claim"])]
    ours = [each for each in found if str(each["claim"]).startswith((f"{AHEAD}: mean", f"{AHEAD}: least"))]

    assert len(ours) == len(preemptive()) + 1
    assert ours[0]["measured"] == pytest.approx(100 * 20.0 / (ahead + 30.5))
    assert {each["verdict"] for each in ours} == {verdict}


def test_methods_with_leave_to_preempt_are_run_at_every_load_of_the_bars() -> None:
    found = settings(AT_LOADS, AT_LOADS, ["Z"])

    assert tuple(each.load for each in found if each.study == PREEMPTING) == AT_LOADS


def test_what_cannot_be_avoided_as_asked_is_told_and_taken_off() -> None:
    found = [each for each in claims(runs(), LOADS) if "net of" in str(each["claim"])]

    assert len(found) == sum(map(as_asked, (*first_principle(), *preemptive()))) == 6
    assert all("fixed" in str(each["claim"]) for each in found)
    assert found[0]["measured"] == pytest.approx(100 * (1.0 - 20.5 / 65.0))
    assert {each["verdict"] for each in found if "preemptive" in str(each["claim"])} == {"missed"}
    assert as_asked_note(runs(), LOADS).startswith("70% of the jobs")


@pytest.mark.parametrize(("ahead", "verdict"), [(10.0, "met"), (80.0, "missed")])
def test_what_costs_more_than_the_greedy_is_a_missed_bar(ahead: float, verdict: str) -> None:
    by_claim = {str(each["claim"]): each["verdict"] for each in claims(runs(ahead), LOADS)}

    assert by_claim[f"{AHEAD}: mean cost below the greedy's, %"] == verdict


@pytest.mark.parametrize(("least", "verdict"), [(5.0, "not excluded"), (25.0, "out of reach")])
def test_the_bound_says_what_no_schedule_can_save(least: float, verdict: str) -> None:
    known = runs().with_columns(total_usd=pl.when(pl.col("arm") == BOUND).then(least + 10.0).otherwise("total_usd"))

    first, *_ = [each for each in claims(known, LOADS) if str(each["claim"]).startswith("any schedule")]

    assert STRONGEST in str(first["claim"])
    assert first["measured"] == pytest.approx(100 * (1.0 - (least + 10.0) / 40.5))
    assert first["verdict"] == verdict


def test_a_worst_run_is_judged_beside_the_mean() -> None:
    told = [each for each in claims(runs(), LOADS) if "off" in str(each["claim"])]

    assert [str(each["claim"]).rsplit(", ", 1)[1] for each in told] == ["mean", "worst run"] * 2
    assert all(each["verdict"] == "met" for each in told)
