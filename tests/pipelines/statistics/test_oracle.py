"""Statistics of random tiny lakes against plain Python: other code, the same numbers."""

import math
import statistics as plain
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.statistics.claims import over_claim, sizes
from pipelines.statistics.outcomes import gpu_hours_by_status, group_recurrence, status_counts, user_concentration
from pipelines.statistics.statistic import PERCENTS
from pipelines.statistics.times import arrivals_by_hour, run_time
from tests.examples import examples
from tests.pipelines.statistics.lakes import Rows, job, make_lake, used

seconds = st.one_of(st.none(), st.floats(0, 4e5).map(lambda s: round(s, 3)))
amounts = st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 8.0]))
jobs_of_a_lake = st.lists(
    st.fixed_dictionaries(
        {
            "run_s": seconds,
            "req_gpus": amounts,
            "req_cpu_cores": amounts,
            "instances": st.integers(1, 5),
            "user": st.one_of(st.none(), st.sampled_from("abc")),
            "group": st.one_of(st.none(), st.sampled_from("gh")),
            "status": st.one_of(st.none(), st.sampled_from(["completed", "failed", "running"])),
            "run_s_censored": st.booleans(),
        }
    ),
    min_size=1,
    max_size=12,
)
FEW = settings(max_examples=examples(25))


def quantile(values: Sequence[float], probability: float) -> float:
    """Return the continuous quantile, as numpy's default and SQL's `percentile_cont`."""
    ordered, at = sorted(values), probability * (len(values) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def near(value: float) -> object:
    return pytest.approx(value, rel=1e-7, abs=1e-7)


def check_spread(row: dict[str, float], values: Sequence[float], unit: str) -> None:
    assert row[f"mean_{unit}"] == near(plain.fmean(values))
    for percent in PERCENTS:
        assert row[f"p{percent}_{unit}"] == near(quantile(values, percent / 100))
    assert row[f"max_{unit}"] == max(values)


@pytest.mark.slow
@FEW
@given(jobs_of_a_lake)
def test_jobs_against_plain_python(drawn: Rows) -> None:
    jobs = [job(i * 5, **fields) for i, fields in enumerate(drawn)]
    with tempfile.TemporaryDirectory() as folder:
        lake = make_lake(Path(folder), {"jobs": jobs})
        check_run_times(run_time(lake, "toy").to_dicts(), drawn)
        check_sizes(sizes(lake, "toy").to_dicts(), drawn)
        counted = {row["status"]: row["jobs"] for row in status_counts(lake, "toy").to_dicts()}
        assert counted == dict(Counter(fields["status"] for fields in drawn))
        hours = {row["hour"]: row["jobs"] for row in arrivals_by_hour(lake, "toy").to_dicts() if row["jobs"]}
        assert hours == dict(Counter(i * 5 % 24 for i in range(len(drawn))))
        check_gpu_hours(gpu_hours_by_status(lake, "toy").to_dicts(), drawn)


def gpu_hours(fields: dict[str, object]) -> float | None:
    run_s, gpus, instances = fields["run_s"], fields["req_gpus"], fields["instances"]
    if not isinstance(run_s, float) or not isinstance(gpus, float) or not isinstance(instances, int):
        return None
    return run_s * gpus * instances / 3600


def check_run_times(rows: list[dict[str, float]], drawn: Rows) -> None:
    told = [(float(str(f["run_s"])), gpu_hours(f) or 0.0) for f in drawn if f["run_s"] is not None]
    if not told:
        assert rows == []
        return
    [row] = rows
    check_spread(row, [run_s for run_s, _ in told], "s")
    assert row["jobs"] == len(told)
    assert row["over_24h_share"] == near(sum(run_s > 86400 for run_s, _ in told) / len(told))
    held = sum(hours for _, hours in told)
    if held > 1e-6:
        assert row["gpu_hours_over_24h_share"] == near(sum(h for run_s, h in told if run_s > 86400) / held)


def check_sizes(rows: list[dict[str, float]], drawn: Rows) -> None:
    gpus = [float(str(f["req_gpus"])) * int(str(f["instances"])) for f in drawn if f["req_gpus"] is not None]
    asking = [each for each in gpus if each > 0]
    if not gpus:
        assert rows == []
        return
    [row] = rows
    assert (row["jobs"], row["gpu_jobs"], row["cpu_jobs"]) == (len(gpus), len(asking), len(gpus) - len(asking))
    if asking:
        check_spread(row, asking, "gpus")
        assert row["one_gpu_share"] == near(asking.count(1.0) / len(asking))


def check_gpu_hours(rows: list[dict[str, object]], drawn: Rows) -> None:
    held: dict[object, list[float]] = defaultdict(list)
    for fields in drawn:
        if fields["req_gpus"]:
            held[fields["status"]] += [hours] if (hours := gpu_hours(fields)) is not None else []
    assert {row["status"]: row["gpu_hours"] for row in rows} == {
        status: near(sum(hours)) if hours else None for status, hours in held.items()
    }


@pytest.mark.slow
@FEW
@given(jobs_of_a_lake)
def test_who_recurs_against_plain_python(drawn: Rows) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = make_lake(Path(folder), {"jobs": [job(i, **fields) for i, fields in enumerate(drawn)]})
        groups = list(Counter(f["group"] for f in drawn if f["group"]).values())
        users = sorted(Counter(f["user"] for f in drawn if f["user"]).values(), reverse=True)
        recurring, concentrated = group_recurrence(lake, "toy").to_dicts(), user_concentration(lake, "toy").to_dicts()
    assert len(recurring) == bool(groups)
    assert len(concentrated) == bool(users)
    for row in recurring:
        check_spread(row, groups, "jobs")
        assert row["recurring_jobs_share"] == near(sum(n for n in groups if n > 1) / sum(groups))
        assert row["again_share"] == near(1 - len(groups) / sum(groups))
    for row in concentrated:
        check_spread(row, users, "tasks")
        assert row["top_tasks_share"] == near(sum(users[: math.ceil(0.05 * len(users))]) / sum(users))


@pytest.mark.slow
@FEW
@given(jobs_of_a_lake, st.lists(st.one_of(st.none(), st.floats(0, 10)), min_size=12, max_size=12))
def test_over_claim_against_plain_python(drawn: Rows, cores: list[float | None]) -> None:
    jobs = [job(i, **fields) for i, fields in enumerate(drawn)]
    usage = [used(i, used_cpu_cores=cores[i]) for i in range(len(drawn))]
    with tempfile.TemporaryDirectory() as folder:
        rows = over_claim(make_lake(Path(folder), {"jobs": jobs, "usage": usage}), "toy").to_dicts()
    both = [
        (f, float(str(f["req_cpu_cores"])), use)
        for f, use in zip(drawn, cores, strict=False)
        if use is not None and f["req_cpu_cores"]
    ]
    assert len(rows) == bool(both)
    for row in rows:
        assert row["tasks"] == len(both)
        assert row["over_claim_share"] == near(sum(asked > use for _, asked, use in both) / len(both))
        hours = [
            (float(str(f["run_s"])) * int(str(f["instances"])) / 3600, a, u)
            for f, a, u in both
            if f["run_s"] is not None
        ]
        if hours:
            assert row["slack_h"] == near(sum(max(a - u, 0) * h for h, a, u in hours))
            assert row["beyond_h"] == near(sum(max(u - a, 0) * h for h, a, u in hours))
