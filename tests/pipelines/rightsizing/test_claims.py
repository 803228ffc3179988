"""Right-sizing by hand-computed frames: needs, targets, hours and reasons; and what holds for any frames."""

import math
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.tables import Jobs, Usage
from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.errors import LakeError
from pipelines.rightsizing.claims import measured_runs, sized_claims, submitted
from pipelines.rightsizing.rows import By, rightsized, summary
from pipelines.rightsizing.table import table_rows
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import RESOURCES, Reason
from tests.examples import examples
from tests.pipelines.lake.canonical import T0, canonical, job_row

Row = dict[str, Any]  # a row mixes texts, numbers and times

POLICY = ShrinkPolicy(device_mem_gib=GPU_MEM_GIB_OF_TYPE)
BYS: list[By] = ["group", "user", "type"]


def run(at: int, used: Row | None = None, **fields: object) -> tuple[Row, Row | None]:
    """Return one hour of two instances that ask for 6 cores, 30 GiB and a whole T4, and what they used."""
    usual = {
        "group": "g",
        "user": "u",
        "role": "worker",
        "task_type": "ctr",
        "gpu_type": "T4",
        "instances": 2,
        "run_s": 3600.0,
        "req_cpu_cores": 6.0,
        "req_mem_gib": 30.0,
        "req_gpus": 1.0,
    }
    job = job_row(at, **{**usual, **fields})
    if used is None:
        return job, None
    key = {name: job[name] for name in ("trace", "cluster", "job_id", "role")}
    measured = {"used_cpu_cores": 1.0, "mem_max_gib": 10.0, "used_gpus": 0.2, "gpu_mem_max_gib": 4.0}
    return job, {**key, **measured, "instances_measured": 1, **used}


def tables(*runs: tuple[Row, Row | None]) -> tuple[pl.DataFrame, pl.DataFrame]:
    usage = [used for _, used in runs if used is not None]
    return canonical([job for job, _ in runs], Jobs), canonical(usage, Usage) if usage else Usage.create_empty()


def sized(*runs: tuple[Row, Row | None], by: By = "group", policy: ShrinkPolicy = POLICY) -> list[Row]:
    return rightsized(*tables(*runs), by, policy).to_dicts()


def told(row: Row, of: str) -> list[Any]:
    return [row[f"{name}{of}"] for name in RESOURCES]


def test_a_group_is_sized_by_its_peaks_and_told_with_its_evidence() -> None:
    [row] = sized(
        run(0, {"used_cpu_cores": 1.0, "mem_max_gib": 10.0, "used_gpus": 0.1, "gpu_mem_max_gib": 4.0}),
        run(1, {"used_cpu_cores": 2.0, "mem_max_gib": 12.0, "used_gpus": 0.3, "gpu_mem_max_gib": 6.0}),
        run(2, {"used_cpu_cores": 3.0, "mem_max_gib": 11.0, "used_gpus": 0.2, "gpu_mem_max_gib": 5.0}),
    )
    assert told(row, "") == [6.0, 30.0, 1.0]
    assert told(row, "_p95") == pytest.approx([2.9, 11.9, 5.9 / 16.0])
    assert told(row, "_peak") == [3.0, 12.0, 6.0 / 16.0]  # the memory of a GPU counts as a share of it
    assert told(row, "_target") == [3.0, 13.8, 0.45]  # 12 GiB x 1.15; 0.375 x 1.15 on the grid of 0.05
    assert told(row, "_reason") == ["shrunk"] * 3
    assert told(row, "_requested_h") == [36.0, 180.0, 6.0]  # three runs of an hour, two instances each
    assert told(row, "_reclaimable_h") == pytest.approx([18.0, 97.2, 3.3])
    assert told(row, "_reclaimable_frac") == pytest.approx([0.5, 0.54, 0.55])
    assert (row["dominant"], row["share"]) == ("gpus", pytest.approx(0.55))
    assert (row["runs"], row["measured_runs"], row["requests"], row["instances"]) == (3, 3, 1, 2.0)
    assert (row["evidence"], row["evidence_runs"], row["severity"]) == ("group", 3, "high")
    assert (row["group"], row["user"], row["task_type"], row["role"]) == ("g", "u", "ctr", "worker")
    assert (row["last_seen"], row["age_days"]) == (T0 + timedelta(minutes=12), 0.0)


def test_every_reason_is_told() -> None:
    used = {"used_cpu_cores": 5.8, "mem_max_gib": 29.0, "used_gpus": 0.0, "gpu_mem_max_gib": 0.0}
    [row] = sized(*(run(at, used) for at in range(3)))
    assert told(row, "_reason") == ["below_threshold", "floor", "shrunk"]
    assert told(row, "_target") == [6.0, 30.0, 0.05]  # of a GPU a step is kept


def test_a_request_below_its_measured_use_is_raised_and_counted_as_missing() -> None:
    used = {"used_cpu_cores": 7.0, "mem_max_gib": 40.0, "used_gpus": 0.3, "gpu_mem_max_gib": 6.4}
    rows = sized(
        *(run(at, used, req_gpus=0.25) for at in range(3)),
        *(run(at, {"used_cpu_cores": 6.2, "mem_max_gib": 29.0}, group="close") for at in range(3, 6)),
    )
    raised, close = sorted(rows, key=lambda row: row["group"], reverse=True)
    assert told(raised, "_reason") == ["too_little"] * 3
    assert told(raised, "_target") == [7.0, 46.0, 0.5]  # 40 GiB x 1.15; 0.4 x 1.15 on the grid of 0.05
    assert told(raised, "_missing_h") == pytest.approx([6.0, 96.0, 1.5])
    assert told(raised, "_reclaimable_h") == [0.0] * 3
    assert (raised["dominant"], raised["severity"]) == ("mem_gib", "medium")
    assert told(close, "_reason") == ["floor", "floor", "shrunk"], "within 5 %; only the margin exceeds it"
    assert told(close, "_target")[:2] == [6.0, 30.0]
    line = table_rows(pl.DataFrame([raised]), "group")[1]
    assert (line["slack_h"], line["slack"]) == ("    -96", " -53%")
    assert "missing: 8.3% of 72 core-hours" in summary(pl.DataFrame(rows))[2]


def test_a_job_killed_for_memory_used_at_least_its_request() -> None:
    runs = [run(at, {}) for at in range(3)]
    [shrunk] = sized(*runs)
    [kept] = sized(*runs, run(3, {"mem_max_gib": 20.0}, status="oom"))
    [raised] = sized(*runs, run(3, {"mem_max_gib": 40.0}, status="oom"))
    [unmeasured] = sized(*runs, run(3, status="oom"))

    assert (shrunk["mem_gib_reason"], shrunk["mem_gib_target"]) == ("shrunk", 11.5)
    assert (kept["mem_gib_reason"], kept["mem_gib_target"], kept["mem_gib_peak"]) == ("floor", 30.0, 30.0)
    assert (raised["mem_gib_reason"], raised["mem_gib_peak"]) == ("too_little", 40.0)
    assert unmeasured["mem_gib_target"] == 30.0


def test_missing_measurements_of_gpu_memory_are_told_apart_from_too_few_runs() -> None:
    [row] = sized(*(run(at, {"gpu_mem_max_gib": None}) for at in range(3)))
    assert told(row, "_reason") == ["shrunk", "shrunk", "not_measured"]
    assert (row["gpus_target"], row["gpus_peak"]) == (1.0, None)
    [kind] = sized(*(run(at, {"gpu_mem_max_gib": 4.0 if at == 0 else None}) for at in range(3)), by="type")
    assert kind["gpus_reason"] == "not_measured", "one measurement of three is too few"


def test_a_request_of_nothing_and_one_that_is_not_told_stand() -> None:
    [row] = sized(*(run(at, {}, req_cpu_cores=0.0, req_gpus=None) for at in range(3)))
    assert told(row, "_reason") == ["below_threshold", "shrunk", None]
    assert told(row, "_target") == [0.0, 11.5, None]
    assert told(row, "_reclaimable_h") == pytest.approx([0.0, 111.0, 0.0])
    assert row["gpus_reclaimable_frac"] is None


def test_too_few_runs_leave_the_request_standing() -> None:
    [row] = sized(run(0, {}), run(1, {}), run(2))
    assert told(row, "_reason") == ["cold_start"] * 3
    assert told(row, "_target") == told(row, "")
    assert told(row, "_peak") == told(row, "_p95") == [1.0, 10.0, 0.25], "what was measured is told all the same"
    assert (row["evidence"], row["evidence_runs"], row["measured_runs"], row["runs"]) == (None, 2, 2, 3)
    assert (row["severity"], row["dominant"], row["share"]) == (None, None, 0.0)


def test_a_rare_group_is_sized_by_its_users_runs_of_that_type_and_role() -> None:
    others = [run(at, {"used_cpu_cores": 2.0}, group="often") for at in range(3)]
    rows = sized(
        *others,
        run(3, {"used_cpu_cores": 4.0}, group="rare"),
        run(5, {}, group="rare", role="evaluator"),
        run(6, {}, group="elsewhere", task_type="nlp"),
    )
    found = {(row["group"], row["role"]): row for row in rows}
    assert found["often", "worker"]["cpu_cores_target"] == 2.0  # not its user's peak
    rare = found["rare", "worker"]
    assert (rare["cpu_cores_target"], rare["evidence"], rare["evidence_runs"]) == (4.0, "user", 4)
    assert found["rare", "evaluator"]["cpu_cores_reason"] == "cold_start"
    assert found["elsewhere", "worker"]["cpu_cores_reason"] == "cold_start"


def test_jobs_without_a_group_are_taken_by_user_and_those_without_either_have_no_evidence() -> None:
    rows = sized(
        *(run(at, {}, group=None) for at in range(3)),
        *(run(at, {}, group=None, user="v") for at in range(3, 6)),
        *(run(at, {}, group=None, user=None) for at in range(6, 9)),
    )
    assert [(row["user"], row["evidence"]) for row in rows] == [("u", "user"), ("v", "user"), (None, None)]
    assert rows[2]["cpu_cores_reason"] == "cold_start"
    assert [line["group"] for line in table_rows(pl.DataFrame(rows), "group")[::3]] == ["@u", "@v", "-"]


def test_parameter_servers_and_running_jobs_are_no_evidence() -> None:
    still = {"status": "running", "end_ts": None, "run_s_censored": True}
    servers = [run(at, {}, role="ps") for at in range(3)]
    running = [run(at, {}, group="h", user="v", **still) for at in range(3, 7)]
    _, *rows = sized(*servers, *running, *(run(at, {}) for at in range(7, 10)))
    assert [(row["role"], row["runs"], row["measured_runs"]) for row in rows] == [("worker", 4, 0), ("ps", 3, 0)]
    assert {row["mem_gib_reason"] for row in rows} == {"cold_start"}


def test_hours_are_those_of_all_instances_and_amounts_of_one() -> None:
    small = sized(*(run(at, {}, instances=1) for at in range(3)))[0]
    large = sized(*(run(at, {}, instances=100) for at in range(3)))[0]
    assert told(large, "_target") == told(small, "_target")
    assert told(large, "_reclaimable_h") == pytest.approx([100.0 * each for each in told(small, "_reclaimable_h")])


def test_a_group_with_several_requests_shows_the_usual_one_and_counts_the_hours_of_all() -> None:
    [row] = sized(
        run(0, {}, req_cpu_cores=2.0),
        *(run(at, {}, req_cpu_cores=8.0) for at in range(1, 4)),
    )
    assert (row["cpu_cores"], row["cpu_cores_target"], row["requests"]) == (8.0, 1.0, 2)
    assert row["cpu_cores_reclaimable_h"] == pytest.approx(3 * 2 * 7.0 + 2 * 1.0)


def test_runs_with_larger_requests_raise_no_smaller_one() -> None:
    sizes = {1.0: 0.6, 2.0: 1.2, 4.0: 2.4}
    often = [
        run(3 * at + n, {"used_gpus": used}, req_gpus=gpus)
        for at, (gpus, used) in enumerate(sizes.items())
        for n in range(3)
    ]
    once = run(9, {"used_gpus": 0.3}, req_gpus=0.5)
    rows = rightsized(*tables(*often, once), "group", POLICY).to_dicts()
    assert [(row["gpus_missing_h"], row["requests"]) for row in rows] == [(0.0, 4)]
    sizes_of = sized_claims(measured_runs(*tables(*often, once)), POLICY).sort("req_gpus")
    assert sizes_of["gpus_target"].to_list() == [0.5, 0.6, 2.0, 3.0]  # above one GPU, whole ones
    assert sizes_of["gpus_reason"].to_list() == ["floor", "shrunk", "floor", "shrunk"]
    assert sizes_of["evidence_runs"].to_list() == [10, 3, 3, 3], "one run is too few: those of all requests count"


def test_one_run_with_a_request_does_not_raise_it_to_what_larger_requests_of_its_group_used() -> None:
    large = [run(at, {"used_gpus": 2.4}, req_gpus=4.0) for at in range(3)]
    once = run(3, {"used_gpus": 1.2}, req_gpus=1.0)
    small, _ = sized_claims(measured_runs(*tables(*large, once)), POLICY).sort("req_gpus").to_dicts()
    assert (small["gpus_target"], small["gpus_reason"]) == (1.0, "floor")


def test_a_part_of_a_gpu_is_raised_to_one_whole_gpu_at_most() -> None:
    full = {"used_gpus": 0.9, "gpu_mem_max_gib": 15.7}  # of 16; x 1.15 is more than one GPU
    [row] = sized(*(run(at, full, req_gpus=0.1) for at in range(3)))
    assert (row["gpus_target"], row["gpus_reason"]) == (1.0, "too_little")
    [two] = sized(*(run(at, full, req_gpus=2.0) for at in range(3)))
    assert (two["gpus_target"], two["gpus_reason"]) == (2.0, "floor"), "of two GPUs the margin counts"


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


def test_the_device_of_the_request_gives_the_share_of_its_memory() -> None:
    used = {"gpu_mem_max_gib": 8.0, "used_gpus": 0.0}
    [t4] = sized(*(run(at, used) for at in range(3)))
    [v100] = sized(*(run(at, used, gpu_type="V100M32") for at in range(3)))
    [unknown] = sized(*(run(at, used, gpu_type=None) for at in range(3)))
    assert [row["gpus_target"] for row in (t4, v100, unknown)] == [0.6, 0.3, 0.6]
    large = {"gpu_mem_max_gib": 29.0, "used_gpus": 0.2}
    [a100] = sized(*(run(at, large, gpu_type="NVIDIA-A100-SXM4-80GB") for at in range(3)))
    [unsure] = sized(*(run(at, large, gpu_type="A100") for at in range(3)))
    assert (a100["gpus_target"], a100["gpus_reason"]) == (0.45, Reason.SHRUNK)
    assert (unsure["gpus_target"], unsure["gpus_reason"], unsure["gpus_missing_h"]) == (1.0, Reason.FLOOR, 0.0)


def test_margins_move_the_targets() -> None:
    policy = ShrinkPolicy(cpu_margin=1.0, mem_margin=0.5, gpu_mem_margin=0.0, device_mem_gib=GPU_MEM_GIB_OF_TYPE)
    [row] = sized(*(run(at, {}) for at in range(3)), policy=policy)
    assert told(row, "_target") == [2.0, 15.0, 0.25]


def test_the_window_is_half_open() -> None:
    jobs, _ = tables(run(0), run(1), run(2))
    kept = submitted(jobs, since=T0 + timedelta(minutes=1), until=T0 + timedelta(minutes=2))
    assert kept["job_id"].to_list() == ["j001"]
    assert submitted(jobs, since=None, until=None).height == 3


@pytest.mark.parametrize("runs", [[], [run(0)], [run(0, {}, run_s=None)], [run(0, {}, role="ps")]])
def test_without_a_measured_run_what_is_needed_is_said(runs: list[tuple[Row, Row | None]]) -> None:
    jobs, usage = tables(*runs) if runs else (Jobs.create_empty(), Usage.create_empty())
    with pytest.raises(LakeError, match=r"no measured run among . runs of . jobs; expected a trace whose usage table"):
        rightsized(jobs, usage, "group", POLICY)


def test_a_table_has_a_line_for_each_resource_asked_for() -> None:
    name = "d9c8b7a6" * 4
    rows = rightsized(*tables(*(run(at, {}, group=name, req_gpus=None) for at in range(3))), "group", POLICY)
    lines = table_rows(rows, "group")
    assert [line["resource"] for line in lines] == ["cpu_cores", "mem_gib"]
    assert lines[1] == {
        "severity": "high", "group": "d9c8b7a6", "role": "worker", "runs": 3, "resource": "mem_gib",
        "request": "     30", "p95": "  10", "peak": "  10", "target": "  11.5", "slack_h": "    111",
        "slack": "  62%", "reason": "shrunk", "rests_on": "group 3",
    }  # fmt: skip
    assert summary(rows)[0] == "reclaimable: 83.3% of 36 core-hours, 61.7% of 180 GiB-hours"


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
