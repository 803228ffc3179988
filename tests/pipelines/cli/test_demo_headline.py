"""The table that the demo ends with: means of the right rows, a picture of them, and what they mean."""

import pytest

from pipelines.cli.demo_tables import headline_rows, sentence


def rows(**completed: float) -> list[dict[str, object]]:
    """Return result rows of two seeds; jobs on devices of known memory are in rows of their own."""
    return [
        {
            "trace": "made",
            "arm": arm,
            "truth": "shared",
            "devices": devices,
            "seed": seed,
            "completed": value + seed if devices == "all" else 0.0,
            "gpu_used_frac": 0.25 + 0.5 * seed,
            "stretched_share": 0.015,
            "killed": seed,
        }
        for devices in ("all", "known")
        for arm, value in completed.items()
        for seed in (0, 1)
    ]


def test_rows_are_means_over_seeds_of_all_jobs() -> None:
    table = headline_rows(rows(oracle=199.5, requested=99.5, reclaim=149.5), gpus=32)

    assert [(row["requests"], row["jobs finished"]) for row in table] == [
        ("requested", 100.0),
        ("taut", 150.0),
        ("possible", 200.0),
    ]
    assert table[0] == {
        "requests": "requested",
        "jobs finished": 100.0,
        "GPUs truly used": "16.0 of 32",
        "jobs slowed": "1.5%",
        "jobs killed": 0.5,
    }


@pytest.mark.parametrize(
    ("finished", "expected"),
    [
        (
            {"requested": 99.5, "reclaim": 149.5, "oracle": 199.5},
            "150 jobs finish on the same machines instead of 100 (+50%), 50% of what sizing each job by its true mean "
            "use would add; 1.5% of the jobs are slowed",
        ),
        ({"requested": 99.5, "reclaim": 89.5, "oracle": 99.5}, "instead of 100 (-10%); 1.5% of the jobs are slowed"),
        (
            {"requested": -0.5, "reclaim": -0.5, "oracle": -0.5},
            "instead of 0; 1.5% of the jobs are slowed, 0.5 are killed",
        ),
    ],
)
def test_the_sentence_says_what_the_table_means(finished: dict[str, float], expected: str) -> None:
    assert expected in sentence(headline_rows(rows(**finished), gpus=32))
