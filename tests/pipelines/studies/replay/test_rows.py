"""Figures of replays worked by hand: ratios against FIFO, gain kept, tails by class of gang."""

import numpy as np
import pytest

from pipelines.studies.replay.capacity import Pool, Reading
from pipelines.studies.replay.replay import Outcome
from pipelines.studies.replay.rows import CLASSES, Row, rows_of
from scheduler_core.cluster import Machine


def outcome(
    order: str,
    sizes: str,
    jct_s: list[float],
    *,
    vc: str | None = None,
    gpus: list[float] | None = None,
    day: list[int] | None = None,
) -> Outcome:
    machines = (Machine(name="m", cpu_cores=0.0, mem_gib=0.0, gpus=8),)
    return Outcome(
        reading=Reading(name="r", basis="inferred", pools=(), note=""),
        pool=Pool(vc=vc, machines=machines),
        order=order,
        sizes=sizes,
        day=np.array(day or [17_500] * len(jct_s)),
        gpus=np.array(gpus or [1.0] * len(jct_s)),
        run_s=np.full(len(jct_s), 100.0),
        jct_s=np.array(jct_s),
        stops=np.arange(len(jct_s)),
        offered_gpus=6.0,
    )


def row(rows: list[Row], **wanted: object) -> Row:
    (found,) = [r for r in rows if all(r[name] == value for name, value in wanted.items())]
    return found


INTERVALS = (
    "jct_mean_s",
    "delay_mean_s",
    "fifo_jct_ratio",
    "oracle_jct_ratio",
    "predicted_jct_ratio",
    "gain_kept",
)

THREE = [
    outcome("fifo", "none", [100.0, 500.0]),
    outcome("sjf", "predicted", [100.0, 300.0]),
    outcome("sjf", "oracle", [100.0, 200.0]),
]


def test_gain_kept_is_the_share_of_what_the_oracle_gains_in_the_same_order() -> None:
    rows = rows_of(THREE)

    assert row(rows, sizes="predicted")["gain_kept"] == pytest.approx(100.0 / 150.0)
    assert row(rows, sizes="predicted")["fifo_jct_ratio"] == pytest.approx(1.5)
    assert row(rows, sizes="predicted")["oracle_jct_ratio"] == pytest.approx(200.0 / 150.0)
    assert row(rows, sizes="oracle")["gain_kept"] == 1.0
    assert row(rows, order="fifo")["gain_kept"] is None


def test_differences_are_of_the_same_jobs_and_null_without_the_other_order() -> None:
    """LAS is always 50 s a job faster than SJF: whatever weeks are drawn, the difference is the same."""
    days = list(range(28))
    jct_s = np.random.default_rng(3).uniform(100.0, 900.0, len(days))
    both = [
        outcome("fifo", "none", jct_s + 90.0, day=days),
        outcome("las", "none", jct_s, day=days),
        outcome("sjf", "predicted", jct_s + 50.0, day=days),
    ]

    found = row(rows_of(both), order="sjf")

    assert [found[f"less_las_s{end}"] for end in ("", "_low", "_high")] == pytest.approx([50.0] * 3)
    assert row(rows_of(both), order="las")["less_sjf_s"] == pytest.approx(-50.0)
    assert [found[f"less_srtf_s{end}"] for end in ("", "_low", "_high")] == [None] * 3


def test_gain_kept_is_null_where_the_oracle_gains_nothing() -> None:
    worse = [*THREE[:2], outcome("sjf", "oracle", [100.0, 500.0])]

    assert row(rows_of(worse), sizes="predicted")["gain_kept"] is None


def test_figures_of_one_run() -> None:
    figures = row(rows_of(THREE), order="fifo")

    assert (figures["jobs"], figures["never_fits"], figures["preemptions"]) == (2, 0, 1)
    assert (figures["jct_mean_s"], figures["delay_mean_s"]) == (300.0, 200.0)
    assert (figures["capacity_gpus"], figures["capacity_basis"], figures["offered_load"]) == (8, "inferred", 0.75)


def test_what_never_fits_is_counted_and_in_no_mean() -> None:
    figures = row(rows_of([outcome("fifo", "none", [100.0, np.nan])]))

    assert (figures["jobs"], figures["never_fits"], figures["jct_mean_s"]) == (1, 1, 100.0)


def test_classes_part_the_jobs() -> None:
    gpus = [0.5, 1.0, 2.0, 7.0, 8.0, 9.0, 200.0]
    rows = rows_of([outcome("fifo", "none", [100.0] * 7, gpus=gpus)], detail=True)

    assert [row(rows, gang_gpus=name)["jobs"] for name in CLASSES] == [7, 2, 2, 1, 2]


def test_orders_are_compared_over_the_same_weeks() -> None:
    jct_s, day = list(np.random.default_rng(0).uniform(100.0, 900.0, 60)), list(range(17_500, 17_560))
    half = [each / 2.0 for each in jct_s]
    runs = [
        outcome("fifo", "none", jct_s, day=day),
        outcome("sjf", "predicted", half, day=day),
        outcome("sjf", "oracle", [each / 4.0 for each in jct_s], day=day),
    ]

    rows = rows_of(runs)

    found = row(rows, sizes="predicted")
    for name, ratio in (("fifo_jct_ratio", 2.0), ("oracle_jct_ratio", 2.0), ("gain_kept", 2.0 / 3.0)):
        assert [found[f"{name}_{end}"] for end in ("low", "high")] == pytest.approx([ratio, ratio])
    assert found["jct_mean_s_low"] < np.mean(half) < found["jct_mean_s_high"]  # type: ignore[operator]  # a number
    assert row(rows, sizes="oracle")["predicted_jct_ratio"] == pytest.approx(0.5)


def test_pools_share_their_weeks_and_a_class_has_an_interval_of_its_own() -> None:
    day = list(range(17_500, 17_530))
    short, long = [200.0] * 30, [1000.0] * 30
    runs = [
        outcome("fifo", "none", short, vc="v", day=day),
        outcome("fifo", "none", long, vc="w", day=day, gpus=[16.0] * 30),
    ]

    rows = rows_of(runs, detail=True)

    whole = row(rows, gang_gpus="all")
    assert (whole["delay_mean_s_low"], whole["delay_mean_s_high"]) == (500.0, 500.0)
    large = row(rows, gang_gpus=">8")
    assert (large["delay_mean_s_low"], large["delay_mean_s_high"]) == (900.0, 900.0)


def test_no_interval_of_a_gain_that_may_be_none() -> None:
    day = list(range(17_500, 17_530))
    fifo = [100.0 + each % 7 for each in range(30)]
    runs = [
        outcome("fifo", "none", fifo, day=day),
        outcome("sjf", "predicted", [each + 5.0 for each in fifo], day=day),
        outcome("sjf", "oracle", [90.0, *fifo[1:]], day=day),
    ]

    found = row(rows_of(runs), sizes="predicted")

    assert found["gain_kept"] == pytest.approx(-15.0)
    assert (found["gain_kept_low"], found["gain_kept_high"]) == (None, None)
