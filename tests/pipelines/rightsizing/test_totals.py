"""Right-sizing of users and types, which add their groups up; the order of rows; and what holds for any frames."""

import math
from datetime import datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.rightsizing.rows import By, rightsized
from pipelines.rightsizing.table import table_rows
from scheduler_core.types import RESOURCES
from tests.examples import examples
from tests.pipelines.rightsizing.runs import POLICY, Row, run, sized, tables, told

BYS: list[By] = ["group", "user", "type"]


def test_users_and_types_add_their_groups_up_each_sized_by_its_own() -> None:
    runs = [
        *(run(at, {"used_cpu_cores": 1.0}, group="a") for at in range(3)),
        *(run(at, {"used_cpu_cores": 8.0}, group="b", instances=6) for at in range(3, 6)),
        *(run(at, None, group="c", user="v", req_cpu_cores=20.0) for at in range(6, 8)),
    ]
    user, other = sized(*runs, by="user")
    assert (user["user"], other["user"]) == ("u", "v")
    assert user["cpu_cores"] == 6.0
    assert user["cpu_cores_peak"] == user["cpu_cores_target"] == pytest.approx((1.0 * 6 + 8.0 * 18) / 24)
    assert (user["cpu_cores_reclaimable_h"], user["cpu_cores_missing_h"]) == pytest.approx((5.0 * 6, 2.0 * 18))
    assert user["cpu_cores_reason"] == "too_little", "one group lacks more than the other releases"
    assert (other["cpu_cores"], other["cpu_cores_target"], other["cpu_cores_reason"]) == (20.0, 20.0, "cold_start")
    [kind] = sized(*runs, by="type")
    assert (kind["task_type"], kind["user"], kind["runs"], kind["requests"]) == ("ctr", None, 8, 3)
    assert kind["cpu_cores"] == 6.0  # the mean of what was measured often enough
    assert kind["cpu_cores_reclaimable_h"] == user["cpu_cores_reclaimable_h"] == pytest.approx(30.0)
    assert kind["cpu_cores_requested_h"] == pytest.approx(6.0 * 24 + 20.0 * 4)


def test_the_worst_come_first_and_severity_is_by_what_they_hold_together() -> None:
    # Of what can be reclaimed, the groups hold 60, 32, 6 and 2 of a hundred.
    runs = [
        run(at, {}, group=name, instances=instances)
        for at, (name, instances) in enumerate(each for each in zip("dcba", (1, 3, 16, 30), strict=True) for _ in "123")
    ]
    rows = sized(*runs)
    assert [(row["group"], row["severity"]) for row in rows] == [
        ("a", "high"), ("b", "medium"), ("c", "low"), ("d", "low"),
    ]  # fmt: skip
    assert sum(row["share"] for row in rows) == pytest.approx(5 / 6)  # of six cores


def test_a_group_that_ran_too_rarely_comes_after_those_that_recur_however_much_it_holds() -> None:
    rows = sized(
        *(run(at, {}, group="recurs") for at in range(3)),
        run(3, {}, group="twice", instances=500),
        run(4, {}, group="twice", instances=500),
        run(5, {}, group="once", instances=900),
    )
    assert [(row["group"], row["recurring"], row["severity"], row["evidence"]) for row in rows] == [
        ("recurs", True, "high", "group"), ("twice", False, "low", "user"), ("once", False, "low", "user"),
    ]  # fmt: skip
    assert rows[1]["share"] > rows[0]["share"]
    lines = table_rows(pl.DataFrame(rows), "group")
    assert [line["rests_on"] for line in lines[::3]] == ["group 3", "user 6", "user 6"]


def test_users_and_types_say_whose_runs_their_targets_rest_on() -> None:
    runs = [
        *(run(at, {}, group="often") for at in range(3)),
        run(3, {}, group="rare"),
        run(4, {}, group="alone", user="v"),
        run(5, None, group="often"),
    ]
    [kind] = sized(*runs, by="type")
    user, other = sized(*runs, by="user")
    assert (kind["evidence"], kind["evidence_runs"], kind["measured_runs"], kind["runs"]) == ("group+user", 4, 5, 6)
    assert (user["evidence"], user["evidence_runs"]) == ("group+user", 4)
    assert (other["evidence"], other["evidence_runs"]) == (None, 1)
    lines = table_rows(pl.DataFrame([user, other]), "user")
    assert [line["rests_on"] for line in lines[::3]] == ["group+user 4", "too few 1"]


def test_a_type_that_was_measured_too_rarely_tells_its_need_and_stands() -> None:
    [row] = sized(run(0, {}, group="a"), run(1, {"used_cpu_cores": 3.0}, group="b", user="v"), by="type")
    assert told(row, "_reason") == ["cold_start"] * 3
    assert told(row, "_peak") == [2.0, 10.0, 0.25], "the mean over the instance-hours of both"
    assert told(row, "_target") == told(row, "")


def test_what_shrinks_by_less_than_the_minimum_in_sum_is_not_said_to() -> None:
    full = {"used_cpu_cores": 6.0, "mem_max_gib": 29.9, "used_gpus": 1.0}
    [row] = sized(
        *(run(at, full, group="full", instances=900) for at in range(3)),
        *(run(at, {}, group="slack", instances=1) for at in range(3, 6)),
        by="type",
    )
    assert 0.0 < row["cpu_cores_reclaimable_frac"] < POLICY.minimum_change
    assert told(row, "_reason") == ["floor"] * 3


def test_a_mean_of_equal_requests_is_that_request() -> None:
    hours = (0.1, 0.7, 0.3, 1.1, 0.9, 1.3, 0.013)
    runs = [run(at, {}, group=str(at), user=str(at), run_s=3600.0 * each) for at, each in enumerate(hours)]
    [row] = sized(*runs, by="type")
    assert (row["cpu_cores"], row["cpu_cores_target"]) == (6.0, 6.0)
    assert (row["mem_gib"], row["mem_gib_target"], row["mem_gib_peak"]) == (30.0, 30.0, 10.0)


AMOUNT = st.none() | st.sampled_from([0.0, 0.01, 0.5, 1.0, 4.0, 7.9, 30.0, 512.0])
RUNS = st.lists(
    st.fixed_dictionaries(
        {
            "fields": st.fixed_dictionaries(
                {
                    "group": st.sampled_from(["g", "h", None]),
                    "user": st.sampled_from(["u", "v", None]),
                    "task_type": st.sampled_from(["ctr", "nlp"]),
                    "role": st.sampled_from(["worker", "worker", "ps"]),
                    "gpu_type": st.sampled_from(["T4", "V100M32", None]),
                    "instances": st.integers(1, 9),
                    "run_s": st.sampled_from([None, 0.0, 60.0, 86_400.0]),
                    **{f"req_{name}": AMOUNT for name in RESOURCES},
                }
            ),
            "used": st.none()
            | st.fixed_dictionaries(
                dict.fromkeys(("used_cpu_cores", "mem_max_gib", "used_gpus", "gpu_mem_max_gib"), AMOUNT)
            ),
        }
    ),
    max_size=14,
)


@given(drawn=RUNS, by=st.sampled_from(BYS), order=st.randoms(use_true_random=False))
@settings(max_examples=examples(60))
def test_targets_stay_between_need_and_request_and_hours_add_up(drawn: list[Row], by: By, order: Any) -> None:
    runs = [run(at, each["used"], **each["fields"]) for at, each in enumerate(drawn)]
    sure = [run(100 + i, {}, group="sure", user="w") for i in range(3)]
    jobs, usage = tables(*runs, *sure)
    rows = rightsized(jobs, usage, by, POLICY)

    assert rows["runs"].sum() == jobs.filter(pl.col("run_s") > 0.0).height
    shuffled = list(range(jobs.height))
    order.shuffle(shuffled)
    assert rightsized(jobs[shuffled], usage[::-1], by, POLICY).equals(rows)
    for row in rows.to_dicts():
        check_row(row)
    assert rows["share"].to_list() == sorted(rows["share"], reverse=True)


def check_row(row: Row) -> None:
    """Check what holds for every row."""
    for name in RESOURCES:
        request, target, p95, peak, reason = (row[f"{name}{of}"] for of in ("", "_target", "_p95", "_peak", "_reason"))
        assert (request is None) == (target is None)
        assert 0.0 <= row[f"{name}_reclaimable_h"] <= row[f"{name}_requested_h"] + 1e-6
        if request is None:
            continue
        missing_h = row[f"{name}_missing_h"]
        assert missing_h >= 0.0
        assert target >= 0.0
        assert missing_h > 0.0 or target <= request + 1e-9
        assert reason is not None
        assert (p95 is None) == (peak is None)
        if peak is not None:
            assert p95 <= peak + 1e-9
        if reason in ("cold_start", "not_measured") and not missing_h and not row[f"{name}_reclaimable_h"]:
            assert target == pytest.approx(request)
        if reason == "too_little":
            assert missing_h > row[f"{name}_reclaimable_h"]
        if reason == "shrunk" and peak is not None and name != "gpus":
            assert peak <= target + 1e-9
    assert (row["severity"] is None) == (row["share"] == 0.0)
    assert isinstance(row["last_seen"], datetime)
    assert not any(isinstance(value, float) and math.isnan(value) for value in row.values())
