"""Turn the service's advice on one submission into the agent's answer: settings, modes, and the changed request.

Pure: the agent asks and answers.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from modelserve.client import Advice
from pipelines.connect.files import settings_in
from pipelines.connect.slurm.submission import MIB_PER_GIB, Submission

__all__ = ["read_settings"]

Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
ROUNDING: Final = 1e-6
"""Amounts of the service are rounded up to six decimals."""


class Mode(StrEnum):
    """What the agent does with a submission, from least to most interference."""

    OFF = "off"
    OBSERVE = "observe"
    WARN = "warn"
    ENFORCE = "enforce"


class SlurmSettings(BaseModel):
    """The TOML file of the agent; `services` are replicas of one service.

    The mode of a partition or an account overrides `mode`; if a job has both, the lower one applies.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    cluster: Name
    trace: Name = "slurm"
    services: Annotated[tuple[str, ...], Field(min_length=1)] = ("http://127.0.0.1:8080",)
    token_file: Path | None = None
    ca_file: Path | None = None
    deadline_ms: Annotated[int, Field(ge=10, le=450)] = 400
    least_mem_mib: Annotated[int, Field(ge=1, le=1_000_000)] = 256
    mode: Mode = Mode.OBSERVE
    partitions: Mapping[Name, Mode] = Field(default_factory=dict)
    accounts: Mapping[Name, Mode] = Field(default_factory=dict)

    def mode_of(self, submission: Submission) -> Mode:
        """Return the mode of a submission; of several partitions, the most careful mode counts."""
        if submission.opted_out:
            return Mode.OFF
        partitions = submission.texts.get("partition", "").split(",")
        named = [self.partitions.get(each, self.mode if len(partitions) > 1 else None) for each in partitions]
        named.append(self.accounts.get(submission.texts.get("account", "")))
        return min((each for each in named if each is not None), key=list(Mode).index, default=self.mode)


def read_settings(path: Path) -> SlurmSettings:
    """Read and check the agent's TOML file."""
    return settings_in(path, SlurmSettings, expected="the TOML file that `taut slurm files` writes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The agent's answer: amounts to change, texts for accounting and for the user, and why a request stays.

    `note` is for the agent's own log only.
    """

    amounts: Mapping[str, int] = field(default_factory=dict)
    admin_comment: str = ""
    message: str = ""
    note: str = ""


def answer_to(submission: Submission, advice: Advice, mode: Mode) -> Answer:
    """Return what to answer the plugin, given the service's advice and the agent's mode.

    A request changes only if the agent and the service are both in mode `enforce`. Amounts only fall. The comment
    always holds the answer's id and the original amounts.
    """
    if not advice.answer_id:
        return Answer(note=f"no advice: {advice.note}")
    amounts, changes = _amounts(submission, advice)
    kept = submission.whole_kept_for()
    applied = mode is Mode.ENFORCE and advice.mode == "enforce" and not kept
    if not changes:
        return Answer(
            admin_comment=f"taut {advice.answer_id}", note=kept or submission.cpus_kept_for() or _reasons(advice)
        )
    text = ", ".join(changes)
    if applied:
        message = f"taut: {text} (as similar jobs used; --comment=taut=off keeps a request)"
        return Answer(amounts=amounts, admin_comment=f"taut {advice.answer_id} {text}", message=message)
    why = kept or (f"mode {mode}" if mode is not Mode.ENFORCE else "the service's mode is observe")
    message = f"taut: similar jobs used less: {text} would do" if mode is Mode.WARN and not kept else ""
    return Answer(admin_comment=f"taut {advice.answer_id} would {text}", message=message, note=f"kept: {why}")


def _amounts(submission: Submission, advice: Advice) -> tuple[dict[str, int], list[str]]:
    """Return the fields to write and the same as text: memory first, then CPUs, each as `name asked->target`."""
    numbers = submission.numbers
    amounts: dict[str, int] = {}
    changes: list[str] = []
    target = advice.careful_target
    need_mib = target.mem_gib * MIB_PER_GIB
    tasks, each = submission.tasks, numbers.get("cpus_per_task", 0)
    cpus_per_task = each
    if tasks is not None and not submission.cpus_kept_for() and not math.isnan(target.cpu_cores):
        wanted = _up(target.cpu_cores * submission.nodes / tasks)
        if numbers.get("min_mem_per_cpu"):  # never ask for more memory for each CPU than the user did
            wanted = max(wanted, _up(need_mib * submission.nodes / (tasks * numbers["min_mem_per_cpu"])))
        cpus_per_task = max(min(wanted, each), 1)
    cpus = (submission.cpus or 0) if tasks is None else cpus_per_task * tasks
    if not math.isnan(need_mib):
        held = numbers.get("min_mem_per_node")
        if held is not None and 0 < _up(need_mib) < held:
            amounts["min_mem_per_node"] = _up(need_mib)
            changes.append(f"mem {held}->{_up(need_mib)} MiB")
        per_cpu = numbers.get("min_mem_per_cpu")
        if held is None and per_cpu and cpus:
            low = min(max(_up(need_mib * submission.nodes / cpus), 1), per_cpu)
            if low < per_cpu:
                amounts["min_mem_per_cpu"] = low
            if low < per_cpu or cpus_per_task < each:  # fewer CPUs also mean less memory: record what it was
                changes.append(f"mem-per-cpu {per_cpu}->{low} MiB")
    if tasks is not None and cpus_per_task < each:
        amounts |= {"cpus_per_task": cpus_per_task, "min_cpus": cpus_per_task * tasks}
        if "pn_min_cpus" in numbers:
            amounts["pn_min_cpus"] = cpus_per_task
        changes.append(f"cpus-per-task {each}->{cpus_per_task}" + (f" x{tasks}" if tasks > 1 else ""))
    return amounts, changes


def _up(amount: float) -> int:
    return math.ceil(amount - ROUNDING)


def _reasons(advice: Advice) -> str:
    return ", ".join(f"{name}: {reason}" for name, reason in advice.reasons.items())
