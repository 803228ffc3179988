"""From sacct's text to jobs: steps folded, memory bounded, unknown use left unknown, the original request read back."""

import csv
from datetime import UTC, datetime
from pathlib import Path

import pytest

from features.vocabulary import Status
from pipelines.connect.slurm.accounting import FIELDS, EndedJob, read_jobs
from pipelines.connect.slurm.history import add_records, newest_end
from pipelines.connect.slurm.policy import Mode, answer_to
from pipelines.errors import SourceError
from tests.pipelines.connect.slurm.test_policy import WHOLE, advice, submission

GOLDEN = Path(__file__).with_name("sacct.txt")
JOB = {
    "Cluster": "taut", "JobIDRaw": "7", "JobID": "7", "User": "anna", "Account": "research", "Partition": "gpu",
    "Submit": "2026-11-22T17:00:00", "Start": "2026-11-22T17:01:00", "End": "2026-11-22T17:11:00", "ElapsedRaw": "600",
    "State": "COMPLETED", "ExitCode": "0:0", "DerivedExitCode": "0:0", "NNodes": "1", "NTasks": "",
    "ReqTRES": "billing=8,cpu=8,gres/gpu:t4=2,gres/gpu=2,mem=64G,node=1",
    "AllocTRES": "", "TotalCPU": "20:00", "MaxRSS": "", "TRESUsageInTot": "", "TimelimitRaw": "60", "AdminComment": "",
    "JobName": "train",
}  # fmt: skip
STEP = {
    **JOB, "JobIDRaw": "7.batch", "NTasks": "1", "MaxRSS": "1048576K", "JobName": "batch",
    "TRESUsageInTot": "cpu=00:20:00,mem=1048576K", "TotalCPU": "20:00.5",
}  # fmt: skip


def text_of(*rows: dict[str, str], separator: str = "\x1f31415926\x1f") -> str:
    return "\n".join([separator.join(FIELDS), *(separator.join(row[name] for name in FIELDS) for row in rows), ""])


def folded(*rows: dict[str, str], interval_s: float = 30.0) -> list[EndedJob]:
    return list(read_jobs(text_of(*rows), cluster="main", interval_s=interval_s))


def test_the_recorded_output_of_a_real_cluster_is_read() -> None:
    jobs = {job.number: job for job in read_jobs(GOLDEN.read_text(), cluster="taut", interval_s=1.0)}
    first, third = jobs["1"], jobs["3"]
    assert len(jobs) == 15
    assert (first.asked.cpu_cores, first.asked.mem_gib, first.given.cpu_cores, first.given.mem_gib) == (8, 64, 2, 8)
    assert (first.asked.gpus, first.gpu_type, first.answer_id) == (2.0, "t4", "abc-1")
    assert first.use.cpu_cores == pytest.approx(6.529 / 21)
    assert first.use.mem_most_gib == pytest.approx(207780 / 2**20)
    assert first.use.taught_mem_gib == first.use.mem_most_gib  # shrunk, but far below what it was given
    assert third.asked.mem_gib == pytest.approx(30004 / 1024)
    assert jobs["6"].use.taught_mem_gib is not None
    assert jobs["68_0"].job_id == "69"
    assert jobs["68_0"].use.mem_most_gib is None  # no sample is not zero


def test_the_mean_cpus_come_from_the_steps() -> None:
    [job] = folded({**JOB, "TotalCPU": "00:00:00"}, STEP)
    assert job.use.cpu_cores == pytest.approx(1200.5 / 600)
    assert (job.time_limit_s, job.run_s, job.group) == (3600.0, 600.0, "anna/train")


@pytest.mark.parametrize(
    ("tasks", "nodes", "total_mib", "most"),
    [
        (1, 1, 1024, 1024),
        (2, 1, 2048, 2048),
        (8, 2, 8192, 7168),
        (2, 2, 2048, 1024),
        (4, 2, 1500, 1500),
    ],
)
def test_a_machines_peak_is_bounded(tasks: int, nodes: int, total_mib: int, most: float) -> None:
    requested = JOB["ReqTRES"].replace("node=1", f"node={nodes}")
    step = {**STEP, "NTasks": str(tasks), "NNodes": str(nodes), "TRESUsageInTot": f"cpu=00:01:00,mem={total_mib}M"}
    [job] = folded({**JOB, "ReqTRES": requested, "NNodes": str(nodes)}, step)
    assert job.use.mem_most_gib == pytest.approx(most / 1024)
    assert job.instances == nodes
    assert job.group == ("anna/train" if tasks == nodes else f"anna/train x{-(-tasks // nodes)}")


def test_steps_that_run_at_the_same_time_add_up_and_later_ones_do_not() -> None:
    early = {**STEP, "JobIDRaw": "7.0", "End": "2026-11-22T17:05:00", "MaxRSS": "2G", "TRESUsageInTot": "mem=2G"}
    late = {**early, "JobIDRaw": "7.1", "Start": "2026-11-22T17:06:00", "End": "2026-11-22T17:11:00"}
    [job] = folded(JOB, STEP, early, late)
    assert job.use.mem_most_gib == 3.0


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({"State": "OUT_OF_MEMORY"}, {"MaxRSS": "0", "TRESUsageInTot": "cpu=00:00:00,mem=0"}),
        ({"ElapsedRaw": "12"}, {}),
        ({}, {"MaxRSS": "", "TRESUsageInTot": ""}),
        ({"State": "FAILED"}, {"State": "OUT_OF_MEMORY"}),
    ],
)
def test_unknown_use_is_not_zero(changes: dict[str, str], step: dict[str, str]) -> None:
    [job] = folded({**JOB, **changes}, {**STEP, **step})
    assert job.use.cpu_cores is None
    assert job.use.mem_most_gib is None
    assert (job.status is Status.OOM) is ("OUT_OF_MEMORY" in {**changes, **step}.get("State", ""))


SHRUNK = "taut f8-1 mem 65536->8192 MiB"


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"DerivedExitCode": "0:125"}, Status.OOM),
        ({"ExitCode": "0:125"}, Status.OOM),
        ({"DerivedExitCode": "0:9", "AdminComment": SHRUNK}, Status.OOM),
        ({"ExitCode": "137:0", "AdminComment": SHRUNK}, Status.OOM),
        ({"ExitCode": "137:0"}, Status.FAILED),
        ({"ExitCode": "137:0", "AdminComment": "taut f8-1 cpus-per-task 8->2"}, Status.FAILED),
        ({"ExitCode": "1:0", "DerivedExitCode": "0:15", "AdminComment": SHRUNK}, Status.FAILED),
    ],
)
def test_a_failed_job_ran_out_of_memory_if_its_exit_code_says_so(changes: dict[str, str], status: Status) -> None:
    [job] = folded({**JOB, "State": "FAILED", **changes}, STEP)
    assert job.status is status


def test_a_kill_counts_though_its_job_was_requeued_later() -> None:
    requeued = {**JOB, "State": "REQUEUED", "End": "2026-11-22T19:00:00", "ElapsedRaw": "7140"}
    [job] = folded(requeued, {**STEP, "State": "OUT_OF_MEMORY"})
    assert (job.status, job.run_s, job.end) == (Status.OOM, 600.0, datetime(2026, 11, 22, 17, 11, tzinfo=UTC))
    assert folded(requeued, STEP) == []


@pytest.mark.parametrize(
    ("text", "cpu_cores", "mem_gib"),
    [
        (WHOLE, 8.0, 64.0),
        ("cpus_per_task=4\nnum_tasks=2\nmin_cpus=8\nmin_mem_per_node=65536\n", 8.0, 64.0),
        ("cpus_per_task=8\nmin_cpus=8\nmin_mem_per_cpu=8192\n", 8.0, 64.0),
        ("cpus_per_task=8\nmin_cpus=8\nmin_mem_per_cpu=2048\n", 8.0, 16.0),
    ],
)
@pytest.mark.parametrize("target_gib", [8.0, 5.0, 12.0])
def test_what_the_policy_changes_is_read_back(text: str, cpu_cores: float, mem_gib: float, target_gib: float) -> None:
    answer = answer_to(submission(text), advice(text, mem_gib=target_gib), Mode.ENFORCE)
    assert answer.amounts
    numbers = submission(text).numbers | answer.amounts
    mib = (
        numbers["min_cpus"] * numbers["min_mem_per_cpu"]
        if "min_mem_per_cpu" in numbers
        else numbers["min_mem_per_node"]
    )
    [job] = folded(
        {
            **JOB,
            "ReqTRES": f"cpu={numbers['min_cpus']},mem={mib}M,node=1",
            "AdminComment": f"site; {answer.admin_comment}",
        },
        STEP,
    )
    assert (job.asked.cpu_cores, job.asked.mem_gib) == (cpu_cores, pytest.approx(mem_gib))
    assert job.given.mem_gib == pytest.approx(mib / 1024)
    assert (job.use.taught_cpu_cores is None) is (job.given.cpu_cores == 2.0)  # all that it was given was used


@pytest.mark.parametrize(
    ("tres", "asked", "shrunk"),
    [
        ("cpu=2,mem=8G", (8.0, 64.0), {"cpu_cores", "mem_gib"}),
        ("cpu=2,mem=16G", (8.0, 16.0), {"cpu_cores"}),
        ("cpu=4,mem=8G", (4.0, 64.0), {"mem_gib"}),
        ("cpu=32,mem=128G", (32.0, 128.0), set()),
        ("cpu=8,mem=64G", (8.0, 64.0), set()),  # given back
    ],
)
def test_what_was_set_later_is_what_the_job_asks_for(tres: str, asked: tuple[float, float], shrunk: set[str]) -> None:
    comment = "taut f8-1 mem 65536->8192 MiB, cpus-per-task 8->2"
    [job] = folded({**JOB, "ReqTRES": f"{tres},node=1", "AdminComment": comment}, STEP)
    assert (job.asked.cpu_cores, job.asked.mem_gib) == asked
    assert {name for name in ("cpu_cores", "mem_gib") if getattr(job.given, name) < getattr(job.asked, name)} == shrunk


def test_names_with_separators_and_line_ends_are_read() -> None:
    [job] = folded({**JOB, "JobName": "a|b\nc"}, STEP)
    assert job.name == "a|b c"


def test_a_name_with_rows_of_its_own_forges_none() -> None:
    forged = "x\n" + "\x1f".join({**JOB, "JobIDRaw": "99", "User": "bert"}[name] for name in FIELDS)
    [job] = folded({**JOB, "JobName": forged}, STEP)

    assert (job.job_id, job.user, job.name) == ("7", "anna", forged.replace("\n", " "))


def test_large_numbers_of_nodes_may_have_a_unit() -> None:
    [job] = folded({**JOB, "ReqTRES": "cpu=4096,mem=2048G,node=2K"}, STEP)
    assert (job.instances, job.given.cpu_cores, job.given.mem_gib) == (2048, 2.0, 1.0)


def test_requeued_runs_are_two_jobs_and_waiting_ones_are_none() -> None:
    again = {**JOB, "Submit": "2026-11-22T18:00:00", "Start": "2026-11-22T18:01:00", "End": "2026-11-22T18:11:00"}
    waits = {**JOB, "JobIDRaw": "8", "State": "PENDING", "Start": "Unknown", "End": "Unknown"}
    jobs = folded(JOB, STEP, again, {**STEP, "MaxRSS": "2G"}, waits)
    assert len({job.run_id for job in jobs}) == 2
    assert len({job.job_id for job in jobs}) == 1
    assert [job.use.mem_most_gib for job in jobs] == [1.0, 2.0]


def test_a_job_cancelled_while_it_waited_has_no_run(tmp_path: Path) -> None:
    never = {**JOB, "State": "CANCELLED by 1000", "Start": JOB["End"], "ElapsedRaw": "0"}
    [job] = folded(never)
    assert (job.start, job.status) == (None, Status.CANCELLED)
    add_records(tmp_path, [job])
    [record] = csv.DictReader((tmp_path / "taut.csv").read_text().splitlines())
    assert (record["start_ts"], record["run_s"]) == ("", "")


@pytest.mark.parametrize(("state", "steps"), [("OUT_OF_MEMORY", 0), ("OUT_OF_MEMORY", 1), ("CANCELLED", 1)])
def test_a_job_that_ended_within_its_first_second_ran(state: str, steps: int) -> None:
    at_once = {"State": state, "Start": JOB["End"], "End": JOB["End"], "ElapsedRaw": "0"}
    [job] = folded({**JOB, **at_once}, *[{**STEP, **at_once}][:steps])
    assert job.start == job.end


@pytest.mark.parametrize(("state", "taught"), [("FAILED", False), ("NODE_FAIL", False), ("TIMEOUT", True)])
def test_a_job_that_ended_before_it_was_done_teaches_no_use(state: str, taught: bool) -> None:
    [job] = folded({**JOB, "State": state}, STEP)
    assert job.use.mem_most_gib is not None
    assert [use is not None for use in (job.use.taught_cpu_cores, job.use.taught_mem_gib)] == [taught] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JobID|State\n", "lacks the fields"),
        (text_of(JOB, separator="|"), "delimiter"),
        (text_of({**JOB, "JobName": "\x1f31415926\x1f"}), "line 2 .* has 23 fields, expected 22"),
        (text_of({**JOB, "End": "yesterday"}), "the time 'yesterday'"),
        (text_of({**JOB, "ElapsedRaw": "x"}), "'x' seconds, expected a number"),
        (text_of({**JOB, "ReqTRES": "cpu=1,node=abc"}), "'abc' nodes, expected a number"),
        (text_of(JOB, {**STEP, "NTasks": "-1"}), "'-1' tasks, expected a number"),
    ],
)
def test_other_text_is_refused_with_a_cure(text: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        list(read_jobs(text, cluster="main", interval_s=30.0))


def test_records_tell_how_many_jobs_recur_and_how_far_their_use_varies(tmp_path: Path) -> None:
    rows = [({**JOB, "JobIDRaw": f"{i}", "JobName": f"etl-{i}"}, {**STEP, "JobIDRaw": f"{i}.batch"}) for i in range(9)]
    rows[0][1]["MaxRSS"] = "2097152K"
    [added] = add_records(
        tmp_path, folded(*(row for pair in rows for row in pair), {**JOB, "JobIDRaw": "77", "JobName": "alone"})
    )

    assert (added.recurring, added.recurring_by_name) == (0.9, 0.0)
    assert (added.spread, added.spread_by_name) == (2.0, None)


def test_records_of_overlapping_windows_are_kept_once(tmp_path: Path) -> None:
    first = folded(JOB, STEP)
    again = folded(JOB, STEP, {**JOB, "JobIDRaw": "9", "Cluster": "other"})
    add_records(tmp_path, first)
    before = (tmp_path / "taut.csv").read_bytes()
    added = add_records(tmp_path, again)
    assert (tmp_path / "taut.csv").read_bytes() == before
    assert [(each.cluster, each.new, each.records) for each in added] == [("other", 1, 1), ("taut", 0, 1)]
    assert newest_end(tmp_path) == datetime(2026, 11, 22, 17, 11, tzinfo=UTC)


def test_the_runs_of_a_requeued_job_have_ids_of_their_own(tmp_path: Path) -> None:
    again = {**JOB, "Submit": "2026-11-22T17:12:00", "Start": "2026-11-22T17:12:00", "End": "2026-11-22T17:22:00"}
    add_records(tmp_path, folded(JOB, STEP, {**JOB, "JobIDRaw": "8"}))
    add_records(tmp_path, folded(again, STEP))
    ids = [line.split(",")[1] for line in (tmp_path / "taut.csv").read_text().splitlines()[1:]]
    assert sorted(ids) == ["7@1795366800", "7@1795367520", "8"]
