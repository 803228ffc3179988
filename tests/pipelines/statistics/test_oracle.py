"""Statistics of random clusters of one lake against plain Python: other code, the same numbers."""

import math
import random
import statistics as plain
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest

from pipelines.lake.lake import Lake
from pipelines.statistics.claims import over_claim, sizes
from pipelines.statistics.outcomes import gpu_hours_by_status, group_recurrence, status_counts, user_concentration
from pipelines.statistics.statistic import PERCENTS, Statistic
from pipelines.statistics.times import arrivals_by_hour, run_time
from tests.pipelines.statistics.lakes import Rows, job, make_lake, used

AMOUNTS = (None, 0.0, 0.25, 0.5, 1.0, 2.0, 8.0)


def drawn_job(rng: random.Random) -> dict[str, object]:
    return {
        "run_s": rng.choice((None, 0.0, *(round(rng.uniform(0, 4e5), 3) for _ in range(4)))),
        "req_gpus": rng.choice(AMOUNTS),
        "req_cpu_cores": rng.choice(AMOUNTS),
        "instances": rng.randint(1, 5),
        "user": rng.choice((None, *"abc")),
        "group": rng.choice((None, *"gh")),
        "status": rng.choice((None, "completed", "failed", "running")),
        "run_s_censored": rng.random() < 0.5,
    }


@pytest.fixture(scope="module")
def clusters() -> dict[str, Rows]:
    rng = random.Random(11)
    return {f"c{n:02}": [drawn_job(rng) for _ in range(rng.randint(1, 12))] for n in range(60)}


@pytest.fixture(scope="module")
def cores(clusters: dict[str, Rows]) -> dict[str, list[float | None]]:
    rng = random.Random(12)
    return {name: [rng.choice((None, rng.uniform(0, 10))) for _ in rows] for name, rows in clusters.items()}


@pytest.fixture(scope="module")
def lake(
    clusters: dict[str, Rows], cores: dict[str, list[float | None]], tmp_path_factory: pytest.TempPathFactory
) -> Lake:
    tables = {
        "jobs": [job(i * 5, cluster=name, **row) for name, rows in clusters.items() for i, row in enumerate(rows)],
        "usage": [
            used(i * 5, cluster=name, used_cpu_cores=one)
            for name, all_of in cores.items()
            for i, one in enumerate(all_of)
        ],
    }
    return make_lake(tmp_path_factory.mktemp("oracle"), tables)


def by_cluster(statistic: Statistic, lake: Lake) -> dict[str, Rows]:
    found: dict[str, Rows] = defaultdict(list)
    for row in statistic(lake, "toy", by="cluster").to_dicts():
        found[str(row["cluster"])].append(row)
    return found


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


def test_jobs_against_plain_python(lake: Lake, clusters: dict[str, Rows]) -> None:
    asked = (run_time, sizes, status_counts, arrivals_by_hour, gpu_hours_by_status)
    found = {each.name: by_cluster(each, lake) for each in asked}
    for name, drawn in clusters.items():
        check_run_times(found["run_time"][name], drawn)
        check_sizes(found["sizes"][name], drawn)
        counted = {row["status"]: row["jobs"] for row in found["status_counts"][name]}
        assert counted == dict(Counter(fields["status"] for fields in drawn))
        hours = {row["hour"]: row["jobs"] for row in found["arrivals_by_hour"][name] if row["jobs"]}
        assert hours == dict(Counter(i * 5 % 24 for i in range(len(drawn))))
        check_gpu_hours(found["gpu_hours_by_status"][name], drawn)


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


def test_who_recurs_against_plain_python(lake: Lake, clusters: dict[str, Rows]) -> None:
    recurring, concentrated = by_cluster(group_recurrence, lake), by_cluster(user_concentration, lake)
    for name, drawn in clusters.items():
        groups = list(Counter(f["group"] for f in drawn if f["group"]).values())
        users = sorted(Counter(f["user"] for f in drawn if f["user"]).values(), reverse=True)
        assert (len(recurring[name]), len(concentrated[name])) == (bool(groups), bool(users))
        for row in recurring[name]:
            check_spread(row, groups, "jobs")
            assert row["recurring_jobs_share"] == near(sum(n for n in groups if n > 1) / sum(groups))
            assert row["again_share"] == near(1 - len(groups) / sum(groups))
        for row in concentrated[name]:
            check_spread(row, users, "tasks")
            assert row["top_tasks_share"] == near(sum(users[: math.ceil(0.05 * len(users))]) / sum(users))


def test_over_claim_against_plain_python(
    lake: Lake, clusters: dict[str, Rows], cores: dict[str, list[float | None]]
) -> None:
    found = by_cluster(over_claim, lake)
    for name, drawn in clusters.items():
        both = [
            (fields, float(str(fields["req_cpu_cores"])), use)
            for fields, use in zip(drawn, cores[name], strict=True)
            if use is not None and fields["req_cpu_cores"]
        ]
        assert len(found[name]) == bool(both)
        for row in found[name]:
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
