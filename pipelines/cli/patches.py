"""Smaller requests as text to paste: `#SBATCH` lines for Slurm, `resources` for Kubernetes.

Amounts are of one instance, rounded up to what the scheduler accepts.
"""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Literal

from pipelines.options import option

PatchFormat = Literal["yaml", "sbatch"]
"""What a patch is pasted into: a pod's container, or a batch script."""

PATCH: PatchFormat | None = option(
    None, "Print what to paste instead of rows: `resources` of a pod's container, or #SBATCH lines."
)

Named = Mapping[str, Any]  # a row has texts, numbers and times


def advice_patches(answers: Iterable[Named], form: PatchFormat) -> str:
    """Return the patches of the flat rows of `taut recommend`, one per job."""
    return _patches(((f"job {row['job_id']}", row["measured_runs"], row) for row in answers), form)


def rightsize_patches(rows: Iterable[Named], form: PatchFormat) -> str:
    """Return the patches of the rows of `taut rightsize`, one per row, with full names."""
    titled = (
        (
            ", ".join(f"{key} {row[key]}" for key in ("group", "user", "task_type", "role") if row[key]),
            row["evidence_runs"],
            row,
        )
        for row in rows
    )
    return _patches(titled, form)


def _patches(titled: Iterable[tuple[str, object, Named]], form: PatchFormat) -> str:
    write, between = (_yaml, "---\n") if form == "yaml" else (_sbatch, "\n")
    return between.join(_patch(title, runs, row, write) for title, runs, row in titled)


def _patch(title: str, runs: object, row: Named, write: Any) -> str:  # one of the two writers below
    from scheduler_core.types import RESOURCES

    changes = {
        resource: (float(row[resource]), float(wanted))
        for resource in RESOURCES
        if row[resource] is not None and (wanted := _wanted(row, resource)) is not None and wanted != row[resource]
    }
    heads = [f"# {_one_line(title)}; rests on {runs} measured runs"]
    heads += [
        f"# {name}: {asked:.4g} -> {wanted:.4g} ({row[f'{name}_reason']})" for name, (asked, wanted) in changes.items()
    ]
    if not changes:
        return "\n".join([*heads, "# nothing to change"]) + "\n"
    return "\n".join([*heads, *write({name: wanted for name, (_, wanted) in changes.items()})]) + "\n"


def _wanted(row: Named, resource: str) -> float | None:
    raised, target = row.get(f"{resource}_raise_to"), row[f"{resource}_target"]
    wanted: float | None = target if raised is None else raised
    return wanted


def _one_line(text: str) -> str:
    """Return a text that cannot end its comment: names come from users."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _sbatch(wanted: Mapping[str, float]) -> list[str]:
    lines = []
    if "cpu_cores" in wanted:
        lines.append(f"#SBATCH --cpus-per-task={math.ceil(wanted['cpu_cores'])}")
    if "mem_gib" in wanted:
        lines.append(f"#SBATCH --mem={math.ceil(wanted['mem_gib'] * 1024)}M")
    if "gpus" in wanted:
        lines += [*_whole_gpus(wanted["gpus"], "gres/shard"), f"#SBATCH --gpus-per-node={math.ceil(wanted['gpus'])}"]
    return lines


def _yaml(wanted: Mapping[str, float]) -> list[str]:
    asked = []
    if "cpu_cores" in wanted:
        asked.append(f'    cpu: "{math.ceil(Fraction(str(wanted["cpu_cores"])) * 1000)}m"')
    if "mem_gib" in wanted:
        asked.append(f'    memory: "{math.ceil(Fraction(str(wanted["mem_gib"])) * 1024)}Mi"')
    lines = ["resources:", *(["  requests:", *asked] if asked else [])]
    if "gpus" in wanted:
        lines += [*_whole_gpus(wanted["gpus"], "a shared device"), "  limits:"]
        lines.append(f'    nvidia.com/gpu: "{math.ceil(wanted["gpus"])}"')
    return lines


def _whole_gpus(gpus: float, part: str) -> list[str]:
    return [] if gpus == math.ceil(gpus) else [f"# {gpus:.4g} of a GPU needs {part}; the next line asks for whole GPUs"]
