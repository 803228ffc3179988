"""With and without shrinking, under the same arrivals: jobs of a lake, a predictor, a cluster, three truths.

The simulator itself is `scheduler_core`; making the pool is `job_pool`; printing is `render`.
Called by `taut simulate` and `pipelines.demo`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

import numpy as np

from pipelines.errors import BadUsage
from pipelines.job_pool import Pool
from pipelines.simulation_rows import Row, finite, gains, reclaimed_rows, trace_of
from scheduler_core.arrivals import Arrival, PoolJob, poisson_arrivals
from scheduler_core.cluster import Machine, paper_machines
from scheduler_core.metrics import Metrics, summarise
from scheduler_core.predictors import OraclePredictor, oracle_policy
from scheduler_core.rounds import Scale
from scheduler_core.shrink import Guard, ShrinkPolicy, shrink
from scheduler_core.simulator import PAPER_HORIZON_S
from scheduler_core.simulator import simulate as run_cluster
from scheduler_core.truth import TRUTHS
from scheduler_core.types import Job, Predictor, Recommendation

REQUESTED: Final = "requested"
SHRUNK: Final = "shrunk"
UNGUARDED: Final = "unguarded"
ORACLE: Final = "oracle"
ARM_OF_GUARD: Final[Mapping[Guard, str]] = {"usage": SHRUNK, "none": UNGUARDED}

ORDER_NOTE: Final = (
    "blocked jobs are passed over without bound, so small jobs overtake large ones; "
    "gangs whose request exceeds the whole cluster are counted as never_fits, outside the rates"
)

PAPER_RATE_PER_H: Final = 70.0
"""The paper's highest load."""

PAPER_MIX: Final[Mapping[str, float]] = {"cv": 5.0, "nlp": 15.0, "gnn": 15.0, "ctr": 65.0}
"""The paper's mix of experiment 1 (ResNet : NMT : GraphLearn : CTR), by task type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationSettings:
    """What to simulate.

    `mix` weighs task types; None draws from the pool as it is. `guards` gives one shrinking arm each: `shrunk` with
    the peak-use guard, `unguarded` as in the paper. The policy's own guard and device memory are not looked at: the
    guards come from here and the devices from the pool. Replication i draws its arrivals from seed + i.
    """

    rate_per_h: float = PAPER_RATE_PER_H
    horizon_s: float = PAPER_HORIZON_S
    warm_up_s: float = 0.0
    seed: int = 0
    replications: int = 1
    mix: Mapping[str, float] | None = None
    machines: Sequence[Machine] = field(default_factory=paper_machines)
    queue_policy: str = "fifo"
    placement: str = "best_fit"
    truths: Sequence[str] = tuple(TRUTHS)
    guards: Sequence[Guard] = ("usage",)
    shrink_policy: ShrinkPolicy = field(default_factory=ShrinkPolicy)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What was simulated, as flat rows.

    `rows`: one per population of devices, seed, truth and arm; `simulation_rows.averaged` takes means over seeds.
    `reclaimed`: one per arm, resource and reason, over the pool.
    `model_decided_share`: of the pool's jobs, how many the run-time model decided otherwise than the floors, by arm.
    `notes`: the assumptions that every reader of the rows has to know.
    """

    rows: list[Row]
    reclaimed: list[Row]
    model_decided_share: Mapping[str, float]
    recommendations: Mapping[str, list[Recommendation]]
    notes: list[str]


def simulate(
    pool: Pool, predictor: Predictor | None = None, settings: SimulationSettings | None = None
) -> SimulationResult:
    """Simulate the arms `requested`, `shrunk` (with a predictor) and `oracle` under the same arrivals, paired.

    The pool's jobs are scaled once, in one matrix, for the moment of their recorded submission. Where some devices'
    memory is assumed, everything is run again over the jobs whose devices are known.

    Raises
    ------
    BadUsage
        If there is no truth or no replication to run, or the pool lacks a type of the mix.
    """
    settings = settings or SimulationSettings()
    if not settings.truths or settings.replications < 1:
        raise BadUsage(
            f"simulate: found truths {list(settings.truths)} and {settings.replications} replications, "
            f"expected some of {', '.join(TRUTHS)} and at least one replication"
        )
    advice = _advice(pool, predictor, settings)
    populations = {"all": pool.jobs}
    if len(pool.known) < len(pool.jobs):
        populations["known"] = pool.known
    rows: list[Row] = []
    notes = [_capacity_note(settings), ORDER_NOTE]
    for devices, members in populations.items():
        mix, lacking = _mix_over(members, settings.mix)
        if lacking and devices == "all":
            raise BadUsage(f"simulate: the pool holds no {', '.join(lacking)} job; leave it out of the mix")
        if lacking:
            notes.append(f"devices={devices}: no {', '.join(lacking)} job is among them; the mix leaves it out")
        if not members or (mix is not None and not any(mix.values())):
            notes.append(f"devices={devices}: not run, no job is left")
            continue
        for replication in range(settings.replications):
            seeded = replace(settings, mix=mix, seed=settings.seed + replication)
            rows.extend(_rows_of(devices, members, pool, advice, seeded))
    if "known" in populations:
        notes.append(
            f"{len(pool.jobs) - len(pool.known)} of {len(pool.jobs)} jobs ran on devices of unknown memory, taken as "
            f"{pool.assumed_device_mem_gib:g} GiB; devices=known leaves them out"
        )
    return SimulationResult(
        rows=rows,
        reclaimed=[row for arm, answers in advice.items() for row in reclaimed_rows(arm, pool.jobs, answers)],
        model_decided_share={
            arm: float(np.mean([answer.model_decided for answer in answers]))
            for arm, answers in advice.items()
            if arm != ORACLE
        },
        recommendations=advice,
        notes=notes,
    )


def _advice(pool: Pool, predictor: Predictor | None, settings: SimulationSettings) -> dict[str, list[Recommendation]]:
    """Recommend once for the whole pool, per arm that shrinks."""
    jobs = [entry.job for entry in pool.jobs]
    advice: dict[str, list[Recommendation]] = {}
    for guard in settings.guards:
        if predictor is None:
            break
        policy = replace(
            settings.shrink_policy,
            guard=guard,
            device_mem_gib=pool.device_mem_gib,
            assumed_device_mem_gib=pool.assumed_device_mem_gib,
        )
        advice[ARM_OF_GUARD[guard]] = shrink(jobs, predictor, policy)
    oracle = OraclePredictor(measured={entry.job: entry.measured for entry in pool.jobs})
    advice[ORACLE] = shrink(jobs, oracle, oracle_policy(pool.device_mem_gib, pool.assumed_device_mem_gib))
    return advice


def _rows_of(
    devices: str,
    members: Sequence[PoolJob],
    pool: Pool,
    advice: Mapping[str, Sequence[Recommendation]],
    settings: SimulationSettings,
) -> list[Row]:
    """Run every arm and truth over one population, all under the same arrivals of one seed."""
    arrivals = poisson_arrivals(
        members,
        rate_per_h=settings.rate_per_h,
        horizon_s=settings.horizon_s,
        rng=np.random.default_rng(settings.seed),
        mix=settings.mix,
    )
    scales = _scales(pool.jobs, advice)
    # At the full request every truth is the recorded run: one run answers for all of them.
    requested = _measured_run(arrivals, scales[REQUESTED], settings.truths[0], settings)
    common: Row = {
        "trace": trace_of(members),
        "devices": devices,
        "assumed_device_mem_gib": pool.assumed_device_mem_gib,
        "rate_per_h": settings.rate_per_h,
        "seed": settings.seed,
    }
    rows: list[Row] = []
    for truth in settings.truths:
        for arm, scale in scales.items():
            metrics = requested if arm == REQUESTED else _measured_run(arrivals, scale, truth, settings)
            figures = {**asdict(metrics), **gains(metrics, requested)}
            rows.append({"arm": arm, "truth": truth, **common, **{k: finite(v) for k, v in figures.items()}})
    return rows


def _measured_run(
    arrivals: Sequence[Arrival], scale: Scale | None, truth: str, settings: SimulationSettings
) -> Metrics:
    run = run_cluster(
        arrivals,
        settings.machines,
        horizon_s=settings.horizon_s,
        scale=scale,
        truth=truth,
        policy=settings.queue_policy,
        placement=settings.placement,
    )
    return summarise(run, warm_up_s=settings.warm_up_s)


def _scales(pool: Sequence[PoolJob], advice: Mapping[str, Sequence[Recommendation]]) -> dict[str, Scale | None]:
    """Return per arm what hands a job its recommendation.

    Without shrinking the predictions stay, so that a policy that orders by them is compared with itself.
    """
    scales: dict[str, Scale | None] = {REQUESTED: None}
    for arm, answers in advice.items():
        by_job = {entry.job: answer for entry, answer in zip(pool, answers, strict=True)}
        if scales[REQUESTED] is None or arm == SHRUNK:
            scales[REQUESTED] = _handing_out({job: _at_request(answer) for job, answer in by_job.items()})
        scales[arm] = _handing_out(by_job)
    return scales


def _handing_out(by_job: Mapping[Job, Recommendation]) -> Scale:
    return lambda jobs: [by_job[job] for job in jobs]


def _at_request(answer: Recommendation) -> Recommendation:
    return replace(answer, target=answer.request, run_time_change=0.0)


def _mix_over(
    members: Sequence[PoolJob], mix: Mapping[str, float] | None
) -> tuple[Mapping[str, float] | None, list[str]]:
    """Return the mix over the types that `members` hold, and the types it names that they lack."""
    if mix is None:
        return None, []
    kinds = {entry.job.task_type for entry in members}
    lacking = sorted(kind for kind, weight in mix.items() if weight > 0.0 and kind not in kinds)
    return {kind: weight for kind, weight in mix.items() if kind in kinds}, lacking


def _capacity_note(settings: SimulationSettings) -> str:
    machines = settings.machines
    cores, mem_gib, gpus = (
        sum(machine.cpu_cores for machine in machines),
        sum(machine.mem_gib for machine in machines),
        sum(machine.gpus for machine in machines),
    )
    return (
        f"cluster: {len(machines)} machines, {gpus} GPUs, {cores:g} cores, {mem_gib:g} GiB, of one GPU type for all; "
        f"{settings.rate_per_h:g} jobs/h for {settings.horizon_s / 3600.0:g} h"
    )
