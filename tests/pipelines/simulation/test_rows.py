"""The sentence that ends a simulation: the arm, the interval over paired draws, and the harm."""

import pytest

from pipelines.simulation.rows import conclusion


def row(arm: str, seed: int, completed: float, truth: str = "contention", killed: float = 0.0) -> dict[str, object]:
    return {
        "arm": arm,
        "seed": seed,
        "truth": truth,
        "devices": "all",
        "completed": completed,
        "killed": killed,
        "stretched_share": 0.02 if arm == "shrunk" else 0.0,
    }


def test_the_sentence_is_about_the_most_cautious_model_with_an_interval_of_paired_draws() -> None:
    rows = [row("requested", seed, 100.0 + 10.0 * seed) for seed in range(3)]
    rows += [row("shrunk", seed, 110.0 + 10.0 * seed + seed, killed=1.0) for seed in range(3)]
    rows += [row("oracle", seed, 500.0) for seed in range(3)]
    rows += [row("requested", seed, 1.0, "unchanged") for seed in range(3)]
    # Differences 10, 11, 12: mean 11, half-width 4.303 * 1 / sqrt(3) = 2.48, of 110 jobs before.
    assert conclusion(rows) == (
        "Under contention, shrunk finishes 121 jobs instead of 110 (+10%; 95% interval +8% to +12%, 3 paired draws), "
        "1 killed, 2.0% run longer."
    )


@pytest.mark.parametrize("arms", [["requested"], ["requested", "oracle"]])
def test_without_an_arm_that_shrinks_nothing_changed(arms: list[str]) -> None:
    assert conclusion([row(arm, 0, 5.0) for arm in arms]).startswith("Nothing was changed")
