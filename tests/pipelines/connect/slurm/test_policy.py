"""What the agent makes of a submission and the service's advice: amounts that only fall, texts and modes."""

import math
from pathlib import Path

import pytest

from modelserve.client import Advice
from pipelines.connect.slurm.policy import Mode, SlurmSettings, answer_to, read_settings
from pipelines.connect.slurm.submission import Submission, gpus_of, read_submission
from pipelines.errors import BadUsage
from scheduler_core.types import Reason, Request

BASE = "user_name=anna\nname=train\npartition=gpu\naccount=research\nbatch=1\n"
WHOLE = "cpus_per_task=8\nnum_tasks=1\nmin_cpus=8\npn_min_cpus=8\nmin_mem_per_node=65536\n"


def advice(
    text: str, *, cpu_cores: float = 2.0, mem_gib: float = 8.0, mode: str = "enforce", answer_id: str = "f8-1",
    runs: int = 300,
) -> Advice:  # fmt: skip
    """Return advice about the submission in `text`: these targets, where it asks for the resource at all."""
    asked = submission(text).job(cluster="taut", trace="slurm", least_mem_mib=1).request
    target = Request(
        cpu_cores=math.nan if math.isnan(asked.cpu_cores) else cpu_cores,
        mem_gib=math.nan if math.isnan(asked.mem_gib) else mem_gib,
        gpus=asked.gpus,
    )
    return Advice(
        job_id="submission", request=asked, target=target, lower_bound=target, run_time_p50_s=1.0, run_time_p90_s=2.0,
        run_time_change=0.0, reasons={"cpu_cores": Reason.FLOOR, "mem_gib": Reason.FLOOR, "gpus": Reason.FLOOR},
        alpha=1.0, model_decided=False, runs=runs, note="", raise_to=asked, mode=mode, answer_id=answer_id,
    )  # fmt: skip


def submission(text: str) -> Submission:
    return read_submission((BASE + text).encode())


def test_in_enforce_the_amounts_fall_and_the_original_is_recorded() -> None:
    answer = answer_to(submission(WHOLE), advice(WHOLE), Mode.ENFORCE)
    assert answer.amounts == {"cpus_per_task": 2, "min_cpus": 2, "pn_min_cpus": 2, "min_mem_per_node": 8192}
    assert answer.admin_comment == "taut f8-1 mem 65536->8192 MiB, cpus-per-task 8->2"
    assert "mem 65536->8192 MiB" in answer.message


@pytest.mark.parametrize(("runs", "mib"), [(10, 32768), (20, 16384), (40, 8192), (300, 8192)])
def test_with_few_measured_runs_memory_falls_less(runs: int, mib: int) -> None:
    answer = answer_to(submission(WHOLE), advice(WHOLE, runs=runs), Mode.ENFORCE)
    assert answer.amounts["min_mem_per_node"] == mib


@pytest.mark.parametrize(
    ("mode", "service", "message"),
    [(Mode.OBSERVE, "enforce", False), (Mode.WARN, "enforce", True), (Mode.ENFORCE, "observe", False)],
)
def test_otherwise_nothing_changes_but_the_comment(mode: Mode, service: str, message: bool) -> None:
    answer = answer_to(submission(WHOLE), advice(WHOLE, mode=service), mode)
    assert answer.amounts == {}
    assert answer.admin_comment == "taut f8-1 would mem 65536->8192 MiB, cpus-per-task 8->2"
    assert bool(answer.message) is message


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        (WHOLE + "steps_own=1\n", {}),
        (WHOLE + "steps_unseen=1\n", {"min_mem_per_node": 8192}),
        (WHOLE + "het_job_offset=0\n", {}),
        (WHOLE + "shared=0\n", {}),
        (WHOLE.replace("65536", "0"), {}),
        (WHOLE + "sockets_per_node=2\n", {"min_mem_per_node": 8192}),
        (WHOLE.replace("pn_min_cpus=8", "pn_min_cpus=16"), {"min_mem_per_node": 8192}),
        (WHOLE + "cpus_per_tres=gres:gpu:4\n", {"min_mem_per_node": 8192}),
        ("cpus_per_task=8\nmin_cpus=8\n", {}),
        ("cpus_per_task=8\nmin_cpus=8\nmem_per_tres=gres:gpu:16384\n", {"cpus_per_task": 2, "min_cpus": 2}),
        ("min_cpus=1\n", {}),
        ("min_cpus=4\nnum_tasks=4\nmin_mem_per_node=65536\n", {"min_mem_per_node": 8192}),
        ("cpus_per_task=4\nnum_tasks=4\nmin_cpus=16\nmin_nodes=2\nmin_mem_per_node=65536\n",
         {"min_mem_per_node": 8192, "cpus_per_task": 1, "min_cpus": 4}),
    ],
)  # fmt: skip
def test_what_depends_on_the_rest_is_kept(text: str, amounts: dict[str, int]) -> None:
    answer = answer_to(submission(text), advice(text), Mode.ENFORCE)
    assert answer.amounts == amounts
    assert answer.admin_comment.startswith("taut f8-1")


@pytest.mark.parametrize(
    ("cpu_cores", "mem_gib", "cpus", "mem_mib"),
    [
        (2.0, 8.0, 2, None),  # 2 CPUs of 4096 MiB are the 8 GiB
        (2.0, 6.0, 2, 3072),
        (1.0, 8.0, 2, None),  # one CPU would need 8192 MiB each, more than the user gave a CPU
        (4.0, 1.0, 4, 256),
    ],
)
def test_memory_for_each_cpu_never_rises_and_suffices(
    cpu_cores: float, mem_gib: float, cpus: int, mem_mib: int | None
) -> None:
    text = "cpus_per_task=8\nmin_cpus=8\nmin_mem_per_cpu=4096\n"
    answer = answer_to(submission(text), advice(text, cpu_cores=cpu_cores, mem_gib=mem_gib), Mode.ENFORCE)
    assert answer.amounts["cpus_per_task"] == cpus
    assert answer.amounts.get("min_mem_per_cpu") == mem_mib
    assert cpus * (mem_mib or 4096) >= mem_gib * 1024


def test_without_an_answer_nothing_is_recorded_but_the_reason() -> None:
    answer = answer_to(submission(WHOLE), advice(WHOLE, answer_id=""), Mode.ENFORCE)
    assert (answer.amounts, answer.admin_comment, answer.message) == ({}, "", "")
    assert "no advice" in answer.note


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("partition=a\n", Mode.ENFORCE),
        ("partition=b\n", Mode.OBSERVE),
        ("partition=a,b\n", Mode.OBSERVE),
        ("partition=a\naccount=x\n", Mode.OFF),
        ("partition=b\naccount=y\n", Mode.OBSERVE),
        ("account=y\n", Mode.ENFORCE),
        ("partition=a\ncomment=urgent taut=off\n", Mode.OFF),
        ("partition=a\nfeatures=taut=off&gpu80\n", Mode.OFF),
        ("partition=a\ncomment=nottaut=off\n", Mode.ENFORCE),
    ],
)
def test_the_more_careful_of_partition_and_account_counts(text: str, mode: Mode) -> None:
    settings = SlurmSettings(
        cluster="c", mode="warn", partitions={"a": "enforce", "b": "observe"}, accounts={"x": "off", "y": "enforce"}
    )
    assert settings.mode_of(read_submission(text.encode())) is mode


def test_gpus_are_told_for_each_machine_and_never_written() -> None:
    text = WHOLE + "min_nodes=2\ntres_per_job=gres:gpu:t4:4\n"
    job = submission(text).job(cluster="taut", trace="slurm", least_mem_mib=256)
    assert (job.request.gpus, job.gpu_type, job.instances, job.group) == (2.0, "t4", 2, "anna/train")
    of_tasks = submission(WHOLE + "min_nodes=2\nnum_tasks=16\n").job(cluster="taut", trace="slurm", least_mem_mib=256)
    assert of_tasks.group == "anna/train x8"
    assert gpus_of("gres/gpu:a100:2(S:0)") == (2, "a100")
    assert math.isnan(
        submission(WHOLE + "tres_per_socket=gres:gpu:1\n").job(cluster="", trace="", least_mem_mib=1).request.gpus
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cluster = 'c'\nmode = 'on'", "mode: "),
        ("cluster = 'c'\nmodes = 'off'", "modes: no such field"),
        ("cluster = ", "expected the TOML file"),
        ("cluster = 'c'\ndeadline_ms = 500", "deadline_ms"),
        ("cluster = 'c'\n[partitions]\ngpu = 'on'", "partitions.gpu"),
    ],
)
def test_settings_are_checked(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "slurm.toml").write_text(text)
    with pytest.raises(BadUsage, match=r"slurm\.toml") as caught:
        read_settings(tmp_path / "slurm.toml")
    assert message in str(caught.value)
