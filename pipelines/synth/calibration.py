"""The published statistics from which the synthetic trace is drawn: read from `data/calibration/pai.toml`.

Its comments have the meaning and the source of each number. Nothing is drawn here.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from pipelines.errors import SynthesisError
from pipelines.synth.random_numbers import Curve

__all__ = ["Calibration", "load_calibration"]

CALIBRATION_FILE: Final = Path(__file__).resolve().parents[2] / "data" / "calibration" / "pai.toml"
FAILED: Final = "failed"
UNTAGGED: Final = "untagged"

Law = SimpleNamespace
"""One table of the file: its keys are attributes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobClass:
    """A class of jobs: workload tag ("" for none), main role, jobs in the full trace, and requests of groups."""

    tag: str
    role: str
    jobs: float
    side: tuple[tuple[str, float], ...]
    instances: tuple[tuple[float, float], ...]
    requests: tuple[tuple[float, float, float, float], ...]
    gpu_types: Mapping[str, float]

    @property
    def run_time_curve(self) -> str:
        """Return the name of the class's run-time curve: the tag, or the role if there is no tag."""
        return self.tag or self.role

    @property
    def use_curve(self) -> str:
        """Return the name of the class's curves of use."""
        return self.tag or UNTAGGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All distributions from which the synthetic trace is drawn; `published` is only compared with it."""

    trace: Law
    machines: Law
    outcomes: Law
    arrivals: Law
    groups: Law
    users: Law
    run_time: Law
    use: Law
    side_tasks: Law
    waits: Mapping[str, Curve]
    metric: Law
    classes: tuple[JobClass, ...]
    run_time_curves: Mapping[str, Curve]
    use_curves: Mapping[str, Mapping[str, Curve]]
    published: Law

    @property
    def published_tagged_share(self) -> float:
        """Return the share of jobs that carry a workload tag in the full trace."""
        return sum(c.jobs for c in self.classes if c.tag) / sum(c.jobs for c in self.classes)

    def shares(self, tagged_share: float | None = None) -> npt.NDArray[np.float64]:
        """Return each class's share of jobs; tagged classes together have `tagged_share` (None: as published)."""
        jobs = np.array([c.jobs for c in self.classes], dtype=np.float64)
        tagged = np.array([bool(c.tag) for c in self.classes])
        share = self.published_tagged_share if tagged_share is None else tagged_share
        share_of = np.where(tagged, share / jobs[tagged].sum(), (1.0 - share) / jobs[~tagged].sum())
        return np.asarray(share_of * jobs, dtype=np.float64)


def _curves(table: Mapping[str, Any]) -> dict[str, Curve]:  # Any: raw TOML
    return {name: Curve.of(table["at"], values) for name, values in table.items() if name != "at"}


def load_calibration(file: Path = CALIBRATION_FILE) -> Calibration:
    """Read a calibration file."""
    try:
        raw = tomllib.loads(file.read_text(encoding="utf-8"))
        curves = raw.pop("curves")
        return Calibration(
            waits=_curves(raw.pop("waits")),
            classes=tuple(JobClass(**each) for each in raw.pop("classes")),
            run_time_curves=_curves(curves["run_time"]),
            use_curves={name: _curves(each) for name, each in curves["use"].items()},
            **{name: Law(**table) for name, table in raw.items()},
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SynthesisError(
            f"{file}: not a calibration of the synthetic trace ({error}); compare it with the shipped pai.toml"
        ) from error
