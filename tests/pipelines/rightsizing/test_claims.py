"""Right-sizing of groups by hand-computed frames: needs, targets, hours and reasons."""

from datetime import timedelta

import polars as pl
import pytest

from features.tables import Jobs, Usage
from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from pipelines.errors import LakeError
from pipelines.rightsizing.claims import measured_runs, sized_claims, submitted
from pipelines.rightsizing.rows import rightsized, summary
from pipelines.rightsizing.table import table_rows
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import Reason
from tests.pipelines.lake.canonical import T0
from tests.pipelines.rightsizing.runs import POLICY, Row, run, sized, tables, told


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
