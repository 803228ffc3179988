"""The cost study: savings, deviations and verdicts by hand, and invalid options."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import BadUsage
from pipelines.studies.cost import study
from pipelines.studies.cost.simulation import AHEAD, BASELINES, GREEDY, STRONGEST
from pipelines.studies.cost.study import BOUND, EXACT, OFF, Config, arms, claims, run
from pipelines.studies.study import Context

LOADS = (0.5,)


def row(study: str, arm: str, seed: int, tardiness: float, energy: float, **more: float) -> dict[str, object]:
    total = {"tardiness_usd": tardiness, "energy_usd": energy, "total_usd": tardiness + energy}
    return {"study": study, "arm": arm, "seed": seed, "load": 0.5, **total, **more}


def runs(ahead: float = 10.0) -> pl.DataFrame:
    """Return two seeds: looking ahead at `ahead` and the others at 60 USD of tardiness; energy 10, others 20."""
    rows = []
    for seed in (0, 1):
        rows.append(row(EXACT, AHEAD, seed, ahead + seed, 10.0))
        rows += [row(EXACT, arm, seed, 60.0 + seed, 20.0) for arm in (GREEDY, *BASELINES)]
        rows.append({"study": EXACT, "arm": BOUND, "seed": seed, "load": 0.5, "total_usd": 0.5 * ahead})
        rows.append(row(OFF, AHEAD, seed, 1.1 * (ahead + seed) + 1.0, 10.0))
        rows.append(row(EXACT, STRONGEST, seed, ahead + seed + 20.0, 10.0))
        rows.append(row(EXACT, STRONGEST, seed, 1000.0, 10.0, load=0.9))
    return pl.DataFrame(rows)


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
    assert len(verdicts) == len(BASELINES) + 2
    first = found[f"{AHEAD}: mean cost below {STRONGEST}, % (loads 0.5)"]
    assert first["measured"] == pytest.approx(100 * 20.0 / (ahead + 30.5))


def test_a_worst_run_is_judged_beside_the_mean() -> None:
    off = [each for each in claims(runs(), LOADS) if "realised" in str(each["claim"])]

    assert [str(each["claim"]).rsplit(", ", 1)[1] for each in off] == ["mean", "worst run"]
    assert all(each["verdict"] == "met" for each in off)
    deviations = 100 * 2.0 / 22.0, 100 * 2.1 / 23.1
    assert [each["measured"] for each in off] == pytest.approx([sum(deviations) / 2, max(deviations)])


def test_policies_that_preempt_or_meet_wrong_run_times_run_at_the_loads_of_the_bars() -> None:
    found = arms((0.3, 0.7), (0.7,), 1).values()

    few = [each for each in found if each.study == OFF or each.name in (STRONGEST, BOUND)]
    assert {each.load for each in few} == {0.7}
    assert {each.load for each in found if each not in few} == {0.3, 0.7}


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
    ],
)
def test_invalid_options_are_refused_before_any_run(
    energy: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], said: str
) -> None:
    monkeypatch.setattr(study, "compare", lambda *_: pytest.fail("simulated"))

    with pytest.raises(BadUsage, match=said):
        run(replace(config(energy), **options), Context())
