"""Every statistic answers an empty lake, null columns and each of its splits, or says why it cannot."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from pipelines.lake.ingest import ingest
from pipelines.lake.lake import Lake
from pipelines.statistics import STATISTICS, Statistic
from pipelines.synth.pai import synthesise
from tests.pipelines.statistics.lakes import job, make_lake, ran, used

ALL = pytest.mark.parametrize("statistic", STATISTICS.values(), ids=STATISTICS)
ANSWERED_BY_ANY_JOB = {
    *("period", "arrivals_by_hour", "arrivals_by_weekday", "status_counts", "resources_told", "files"),
}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Yield a synthetic trace with every table but capacity."""
    folder = tmp_path_factory.mktemp("statistics")
    synthesise(folder / "raw", tasks=1000, seed=3, tagged_share=0.9)
    ingest("pai", folder / "raw", folder / "lake", as_name="pai-synth")
    with Lake(folder / "lake") as lake:
        yield lake


@pytest.fixture(scope="module")
def hollow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Yield a lake of a trace without rows."""
    with make_lake(tmp_path_factory.mktemp("hollow"), {}) as lake:
        yield lake


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Yield a lake of two jobs and one use; all that may be null is."""
    with make_lake(tmp_path_factory.mktemp("bare"), {"jobs": [job(0), job(1)], "usage": [used(0)]}) as lake:
        yield lake


@ALL
def test_a_lake_without_rows_has_an_empty_frame_and_a_reason(hollow: Lake, statistic: Statistic) -> None:
    answer = statistic.answer(hollow, "toy")
    if statistic.name == "files":
        assert answer.rows.height == 1
        return
    assert answer.rows.is_empty()
    assert answer.rows.width > 2
    assert answer.reason is not None
    assert answer.reason.startswith("toy has no rows in ")


@ALL
def test_null_columns_are_no_answer_and_said(bare: Lake, statistic: Statistic) -> None:
    answer = statistic.answer(bare, "toy")
    if statistic.name in ANSWERED_BY_ANY_JOB:
        assert answer.reason is None
        assert answer.rows.height
        return
    assert answer.rows.is_empty()
    assert answer.reason is not None
    reason = answer.reason
    assert " is null in all 2 rows of toy" in reason or " has no rows in " in reason or "no row of toy has" in reason


@ALL
def test_an_empty_answer_has_the_columns_of_a_full_one(hollow: Lake, full: Lake, statistic: Statistic) -> None:
    empty = statistic(hollow, "toy", None, None)
    there = statistic(full, "pai-synth", None, None)
    assert there.schema == empty.schema
    assert not any(isinstance(dtype, pl.Decimal | pl.List | pl.Struct | pl.Enum) for dtype in there.dtypes)


@pytest.mark.slow
@ALL
def test_every_split_it_names_works_and_loses_nothing(full: Lake, statistic: Statistic) -> None:
    whole = statistic(full, "pai-synth", None, None)
    counted = next((name for name in ("jobs", "gpu_jobs", "tasks", "samples", "machines") if name in whole), None)
    for name in statistic.by:
        rows = statistic(full, "pai-synth", name, None)
        assert rows.columns == [name, *whole.columns]
        if counted is not None and statistic.name not in {"group_recurrence", "period", "utilisation_by_hour"}:
            assert rows[counted].sum() == whole[counted].sum(), name
    if len(statistic.by) > 1:
        pair = statistic(full, "pai-synth", statistic.by[:2], None)
        assert pair.columns == [*statistic.by[:2], *whole.columns]


@ALL
def test_it_says_what_it_is(statistic: Statistic) -> None:
    assert statistic.definition.startswith("Return ")
    assert "References" not in statistic.definition
    assert statistic.title
    assert statistic.unit


@pytest.mark.slow
def test_the_same_lake_gives_the_same_bytes(full: Lake) -> None:
    for statistic in STATISTICS.values():
        once, again = (statistic(full, "pai-synth", None, None) for _ in range(2))
        assert once.equals(again), statistic.name


@pytest.mark.slow
def test_the_order_of_rows_changes_nothing(tmp_path: Path) -> None:
    jobs = [ran(i, 1 / (3 + i), req_gpus=0.1 * i, user=f"u{i % 7}", group=f"g{i % 5}") for i in range(200)]
    lakes = [make_lake(tmp_path / name, {"jobs": rows}) for name, rows in (("a", jobs), ("b", jobs[::-1]))]
    for statistic in STATISTICS.values():
        if statistic.name != "files":
            one, other = (statistic(lake, "toy", None, None) for lake in lakes)
            assert one.equals(other), statistic.name
