"""One round of a scheduler timed: jobs predicted, shrunk and placed by the thousand.

The models are those of the serving benchmarks. Called by `tests.benchmarks.scheduling`.
"""

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np

from modelserve.bundle.champions import read_champions
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.contract.requests import job_of
from scheduler_core.cluster import Machine
from scheduler_core.queueing import Discipline
from scheduler_core.recommendations import Scale, advised
from scheduler_core.round import round_of
from scheduler_core.scene import Scene
from scheduler_core.shrink import ShrinkPolicy, shrink
from scheduler_core.snapshot import MachineState, QueuedJob, Snapshot
from scheduler_core.types import Job, Predictor, Recommendation
from tests.benchmarks.serving.figures import Bar, Row, amount_row
from tests.benchmarks.serving.models import TRACE, trained

PENDING: Final = 10_000
MACHINES: Final = 1_000
CANDIDATES: Final = 10
ROUNDS: Final = 5

POLICY: Final = ShrinkPolicy(alpha0=0.5, alpha_step=0.05)
"""Ten candidates, and the request itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round took, of a core unless it says otherwise, and how many jobs it started."""

    cpu_s: float
    wall_s: float
    shrunk_s: float
    started: int

    @property
    def scheduled_s(self) -> float:
        """Return what submitting, ordering, placing and starting took."""
        return self.cpu_s - self.shrunk_s


def round_rows(cache: Path) -> list[Row]:
    """Time the scheduler's round as a whole and in its parts, prediction included; then other rules, without it."""
    if len(POLICY.alphas()) != CANDIDATES:
        raise SystemExit(f"found {len(POLICY.alphas())} candidates, expected {CANDIDATES}")
    models = trained(cache)
    predictor = InProcessPredictor(bundles=read_champions(models.bundles).bundles)
    now = datetime.now(UTC)
    jobs = [job_of(row, trace=TRACE, submitted=now) for row in models.jobs(PENDING)]

    def scale(asked: Sequence[Job]) -> list[Recommendation]:
        return shrink(asked, predictor, POLICY)

    timed_round(jobs, Discipline(), scale)
    # What else this process has imported is not looked through again: a worker of the service does the same.
    gc.collect()
    gc.freeze()
    timed = [timed_round(jobs, Discipline(), scale) for _ in range(ROUNDS)]
    every = [_all_predicted(jobs, predictor) for _ in range(ROUNDS)]
    rules = {"fifo": Discipline(), "drf": Discipline(policy="drf"), "fifo, EASY": Discipline(backfill="easy")}
    bare = {name: [timed_round(jobs, discipline).cpu_s for _ in range(ROUNDS)] for name, discipline in rules.items()}
    gc.unfreeze()
    what = f"{PENDING} jobs submitted, {CANDIDATES} candidates and the request, {MACHINES} machines"
    bar = Bar(side="under", value=1.0)
    started = median(each.started for each in timed)
    return [
        amount_row("e", f"one round: {what}", [each.cpu_s for each in timed], unit="s of a core", bar=bar),
        amount_row("e", "the same by the clock on the wall", [each.wall_s for each in timed], unit="s", bar=bar),
        amount_row(
            "e",
            f"of which predicted and shrunk ({models.shape})",
            [each.shrunk_s for each in timed],
            unit="s of a core",
        ),
        amount_row(
            "e",
            f"of which submitted, ordered, placed and started ({started:.0f} fit)",
            [each.scheduled_s for each in timed],
            unit="s of a core",
        ),
        amount_row("e", f"not part of it: all {PENDING * (CANDIDATES + 1)} rows predicted", every, unit="s of a core"),
        *(
            amount_row(
                "e",
                f"one round as requested, {name}",
                taken,
                unit="s of a core",
                bar=Bar(side="under", value=0.5) if name == "fifo" else None,
            )
            for name, taken in bare.items()
        ),
    ]


def _all_predicted(jobs: list[Job], predictor: Predictor) -> float:
    """Return the seconds that every candidate of every job takes; a round leaves out those that floors make equal."""
    asked = np.array([job.request.row() for job in jobs])
    factors = np.append(POLICY.alphas(), 1.0)
    rows = np.repeat(np.arange(len(jobs)), len(factors))
    begin = time.process_time()
    predictor.run_times(jobs, rows, (asked[:, None, :] * factors[:, None]).reshape(-1, 3))
    return time.process_time() - begin


def timed_round(
    jobs: Sequence[Job], discipline: Discipline, scale: Scale | None = None, *, count: int = MACHINES
) -> Round:
    """Size the jobs, if there is a scale, and run the round that starts them on `count` empty machines."""
    machines = [Machine(name=f"m{n}", cpu_cores=96.0, mem_gib=512.0, gpus=8) for n in range(count)]
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    targets = [each.request for each in jobs] if scale is None else [each.target for each in advised(jobs, scale)]
    shrunk_s = time.process_time() - cpu_s
    queue = tuple(
        QueuedJob(job_id=str(at), request=target, instances=each.instances, user=each.user)
        for at, (each, target) in enumerate(zip(jobs, targets, strict=True))
    )
    states = tuple(MachineState(machine=machine) for machine in machines)
    started = round_of(Scene(Snapshot(machines=states, jobs=queue, rules=discipline))).started
    return Round(
        cpu_s=time.process_time() - cpu_s,
        wall_s=time.perf_counter() - wall_s,
        shrunk_s=shrunk_s,
        started=len(started),
    )
