"""The cost study: savings, deviations and verdicts by hand, unavoidable tardiness, and the command's tables."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.studies.cost import study
from pipelines.studies.cost.simulation import (
    AHEAD,
    BASELINES,
    GREEDY,
    PREEMPTING,
    STRONGEST,
    Site,
    SubmittedJobs,
    as_asked,
    simulate,
)
from pipelines.studies.cost.study import (
    BOUND,
    EXACT,
    OFF,
    PREEMPT,
    Config,
    arms,
    claims,
    run,
    savings,
    unavoidable,
)
from pipelines.studies.cost.workload import cluster
from pipelines.studies.study import Context
from scheduler_core.planning.hourly import HourlySeries

HOUR = 3600.0
LOADS = (0.5,)


def row(study: str, arm: str, seed: int, tardiness: float, energy: float, **more: float) -> dict[str, object]:
    usual = {
        "load": 0.5,
        "unavoidable_usd": 15.5 if as_asked(arm) else 0.0,
    }
    total = {"tardiness_usd": tardiness, "energy_usd": energy, "total_usd": tardiness + energy}
    return {"study": study, "arm": arm, "seed": seed, **total, **usual, **more}


def runs(ahead: float = 10.0) -> pl.DataFrame:
    """Return two seeds: looking ahead at `ahead` and the others at 60 USD of tardiness; energy 10, others 20."""
    rows = []
    for seed in (0, 1):
        rows.append(row(EXACT, AHEAD, seed, ahead + seed, 10.0))
        rows += [row(EXACT, arm, seed, 60.0 + seed, 20.0) for arm in (GREEDY, *BASELINES)]
        rows.append({"study": EXACT, "arm": BOUND, "seed": seed, "load": 0.5, "total_usd": 0.5 * ahead})
        rows.append(row(OFF, AHEAD, seed, 1.1 * (ahead + seed) + 1.0, 10.0))
        rows += [row(PREEMPT, arm, seed, ahead + seed + 20.0, 10.0) for arm in PREEMPTING]
        rows.append(row(PREEMPT, "edf, fixed, preemptive", seed, 1000.0, 10.0, load=0.9))
    return pl.DataFrame(rows)


def test_savings_split_into_tardiness_and_energy() -> None:
    (first,) = [each for each in savings(runs()) if each["against"] == "fifo, fixed"]

    assert first["saving_pct"] == pytest.approx(100 * 60.0 / 80.5)
    assert first["tardiness_part_pct"] == pytest.approx(100 * 50.0 / 80.5)
    assert first["energy_part_pct"] == pytest.approx(100 * 10.0 / 80.5)
    assert first["net_pct"] == pytest.approx(100 * (1.0 - 20.5 / 65.0))
    assert first["unavoidable_usd"] == pytest.approx(15.5)


@pytest.mark.parametrize(
    ("ahead", "of_baselines", "of_preemptive", "of_greedy"),
    [
        (10.0, "met", "met", "met"),
        (40.0, "met", "missed", "met"),
        (58.0, "missed", "missed", "met"),
        (80.0, "missed", "missed", "missed"),
    ],
)
def test_the_bar_is_thirty_percent_for_each_method_and_above_zero_for_the_greedy(
    ahead: float, of_baselines: str, of_preemptive: str, of_greedy: str
) -> None:
    found = {str(each["claim"]): each for each in claims(runs(ahead), LOADS)}
    verdicts = {
        claim: each["verdict"] for claim, each in found.items() if ": mean cost below" in claim or "least" in claim
    }

    assert verdicts.pop(f"{AHEAD}: mean cost below the greedy's, %") == of_greedy
    assert {each for claim, each in verdicts.items() if "preemptive" not in claim} == {of_baselines}
    assert {each for claim, each in verdicts.items() if "preemptive" in claim} == {of_preemptive}
    assert len(verdicts) == len(BASELINES) + len(PREEMPTING) + 2
    first = found[f"{AHEAD}: mean cost below {STRONGEST}, % (loads 0.5)"]
    assert first["measured"] == pytest.approx(100 * 20.0 / (ahead + 30.5))


def test_what_cannot_be_avoided_as_asked_is_taken_off_and_a_worst_run_is_judged_beside_the_mean() -> None:
    found = [each for each in claims(runs(), LOADS) if "net of" in str(each["claim"])]
    off = [each for each in claims(runs(), LOADS) if "realised" in str(each["claim"])]

    assert len(found) == sum(map(as_asked, (*BASELINES, *PREEMPTING))) == 6
    assert found[0]["measured"] == pytest.approx(100 * (1.0 - 20.5 / 65.0))
    assert {each["verdict"] for each in found if "preemptive" in str(each["claim"])} == {"missed"}
    assert [str(each["claim"]).rsplit(", ", 1)[1] for each in off] == ["mean", "worst run"]
    assert all(each["verdict"] == "met" for each in off)
    deviations = 100 * 2.0 / 22.0, 100 * 2.1 / 23.1
    assert [each["measured"] for each in off] == pytest.approx([sum(deviations) / 2, max(deviations)])


def test_policies_that_preempt_or_meet_wrong_run_times_run_at_the_loads_of_the_bars() -> None:
    found = arms((0.3, 0.7), (0.7,), 1).values()

    assert {each.load for each in found if each.study != EXACT} == {0.7}
    assert {each.load for each in found if each.study == EXACT} == {0.3, 0.7}


def three() -> SubmittedJobs:
    """Return jobs of 4 and 2 hours with one GPU of either type, half as long with two, due 1, 1.5 and 9 h later."""
    run_s = np.full((3, 2, 9), np.nan)
    run_s[:, :, 1] = np.array([4.0, 2.0]) * HOUR
    run_s[:, :, 2] = np.array([2.0, 1.0]) * HOUR
    submit_s = np.array([0.0, 1.0, 1.0]) * HOUR
    return SubmittedJobs(
        submit_s=submit_s,
        due_s=submit_s + np.array([1.0, 1.5, 9.0]) * HOUR,
        weight_usd_per_s=np.array([1.0, 2.0, 4.0]) / HOUR,
        run_s=run_s,
        asked_gpus=np.array([2, 1, 1]),
        off_by=np.ones(3),
    )


def test_unavoidable_tardiness_by_hand() -> None:
    slow = replace(three(), off_by=np.full(3, 1.1))

    # 0: two GPUs, 1 h, due in 1 h; 1: one GPU, 2 h, due in 1.5 h at 2 USD an hour; 2: due late
    assert unavoidable(three(), asked=True) == pytest.approx((1 / 3, 1.0))
    assert unavoidable(three(), asked=False) == (0.0, 0.0)
    assert unavoidable(slow, asked=False) == pytest.approx((1 / 3, 0.1))


@pytest.mark.parametrize("name", [name for name in BASELINES if as_asked(name)])
def test_a_method_on_an_empty_cluster_is_as_late_as_could_not_be_avoided(name: str) -> None:
    price = HourlySeries(start_s=0.0, values=np.full(24, 0.1), unit="USD/kWh", wrap=True)
    site = Site(nodes=cluster(3), price=price, start_ts=0.0)

    outcome = simulate(three(), site, BASELINES[name], np.random.default_rng(0))

    assert outcome.tardiness_usd == pytest.approx(unavoidable(three(), asked=True)[1])


@pytest.fixture
def energy(tmp_path: Path) -> Path:
    """Return a folder with one application's speeds and a day of prices."""
    alone = {
        kind: {str(("toy (batch size 8)", gpus)).replace('"', "'"): {"null": speed * gpus} for gpus in (1, 2, 4, 8)}
        for kind, speed in (("p100", 1.0), ("v100", 1.5), ("p100_unconsolidated", 0.9), ("v100_unconsolidated", 1.2))
    }
    (tmp_path / "throughput").mkdir()
    (tmp_path / "throughput" / "gavel_throughputs.json").write_text(json.dumps(alone))
    begin = datetime(2023, 1, 1, tzinfo=UTC)
    (tmp_path / "grid" / "AA").mkdir(parents=True)
    lines = [f"{begin + timedelta(hours=hour)},{50.0 + hour}" for hour in range(24)]
    (tmp_path / "grid" / "AA" / "price_2023.csv").write_text(
        "\n".join(["Datetime (UTC),Price (USD/MWh)", *lines]) + "\n"
    )
    return tmp_path


def config(energy: Path) -> Config:
    return Config(energy=energy, seeds=2, zone="AA", loads=(0.6,), nodes=1, jobs=3, iterations=1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loads": (0.3,)}, r"found none of 0\.5 to 0\.9"),
        ({"zone": "CC"}, "expected one of them"),
        ({"year": 2022}, r"price from 2023-01-01 to 2023-01-02, expected all of the year 2022; choose --year"),
        ({"months": (2,)}, "expected all of the months 2 of 2023"),
    ],
)
def test_invalid_options_are_refused_before_any_run(
    energy: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], said: str
) -> None:
    monkeypatch.setattr(study, "compare", lambda *_: pytest.fail("simulated"))

    with pytest.raises(BadUsage, match=said):
        run(replace(config(energy), **options), Context())
