"""Claims of recurring jobs. A claim is one distinct request of one owner, with its measured use and a target request.

Targets are bounded below by the floors (peak use plus margin) of `taut recommend`. `rows` builds the output.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from features.frames import has_ended, needed_mem_gib
from modelserve.bundle.alike import PARAMETER_SERVER
from pipelines.errors import LakeError
from pipelines.simulation.job_pool import KEYS
from pipelines.simulation.workloads import REQUESTS, requests_of
from scheduler_core.shrink import ShrinkPolicy, round_up_gpus
from scheduler_core.types import RESOURCES, BoolArray, FloatArray, PeakUse, Reason

__all__ = ["submitted"]

MEASURES: Final = {
    "cpu_cores": "used_cpu_cores",
    "mem_gib": "mem_max_gib",
    "gpus": "used_gpus",
    "gpu_mem_gib": "gpu_mem_max_gib",
}
"""Column of `usage` with the measured use of each resource: the mean over a run for CPU and GPU, the largest peak over
instances for memory."""

OF_GROUP: Final = ("cluster", "group", "role")
OF_USER: Final = ("cluster", "user", "task_type", "role")
EVIDENCE: Final = {
    "group_request": (*OF_GROUP, *REQUESTS),
    "group": OF_GROUP,
    "user_request": (*OF_USER, *REQUESTS),
    "user": OF_USER,
}
"""Key columns of the runs from which a target is derived, the first with enough of them: the group's runs in the same
role with the same request, then with any; the user's runs of the same type and role, likewise."""

OWNERS: Final = ("cluster", "group", "user", "task_type", "role")
LEVELS: Final = ("p95", "peak")
STEPS: Final = {"cpu_cores": 0.1, "mem_gib": 0.1}
"""Steps to which targets are rounded up; GPU targets are rounded up to multiples of the policy's `gpu_grid`."""

ROUNDING_SLACK: Final = 1e-9


def submitted(jobs: pl.DataFrame, *, since: datetime | None, until: datetime | None) -> pl.DataFrame:
    """Return the jobs submitted from `since` (inclusive) to `until` (exclusive)."""
    return jobs.filter(
        *([] if since is None else [pl.col("submit_ts") >= since]),
        *([] if until is None else [pl.col("submit_ts") < until]),
    )


def measured_runs(jobs: pl.DataFrame, usage: pl.DataFrame) -> pl.DataFrame:
    """Return the jobs that ran, with their measured use and instance-hours.

    A job that was killed for memory used at least its request, so that no target is below a request that was too small.
    Parameter servers count as not measured, because the traces report their workers' measurements for them. Running
    jobs count as not measured, because their use may still rise. The order of rows does not matter.
    """
    ran = jobs.filter(pl.col("run_s").fill_null(0.0) > 0.0).join(usage, on=KEYS, how="left")
    ran = ran.with_columns(needed_mem_gib())
    told = (pl.col("role") != PARAMETER_SERVER) & has_ended()
    runs = ran.sort(KEYS).with_columns(
        *(pl.when(told).then(pl.col(name)).alias(name) for name in MEASURES.values()),
        hours=pl.col("instances") * pl.col("run_s") / 3600.0,
        seen_ts=pl.coalesce("end_ts", "start_ts", "submit_ts"),
    )
    if not runs.select(pl.any_horizontal(pl.col(name).is_not_null().any() for name in MEASURES.values())).item():
        raise LakeError(
            f"found no measured run among {runs.height} runs of {jobs.height} jobs; expected a trace whose usage table "
            "measures use, as pai or a trace from `taut synth`; widen --since and --until, or name another "
            "--trace"
        )
    return runs


def sized_claims(runs: pl.DataFrame, policy: ShrinkPolicy) -> pl.DataFrame:
    """Return one row per owner and request: measured use, target and reason for each resource.

    Columns: `OWNERS`, `gpu_type`, `REQUESTS`; `runs`, `measured_runs`, `instances` (the mean), `hours`, `seen_ts`;
    `evidence` (`group`, `user` or null) and `evidence_runs`; `<resource>_p95`, `_peak`, `_target` and `_reason`. `_p95`
    and `_peak` are the 95th percentile and the maximum of use over runs, null if no run was measured; use of GPUs is
    the larger of the busy fraction and the fraction of memory used (0 on a card of unknown memory), null if one of them
    was not measured. A target
    other than the request requires `min_runs` measured runs. It is larger (reason `too_little`) if these runs had this
    very request and the owner's peak with it exceeds it by the policy's `minimum_change` or more: runs with larger
    requests do not raise a smaller one. So a `_p95` above its target is less than that above it, or comes from other
    requests or too few runs. `not_measured`: there are enough measured runs, but not of all that this target requires.
    """
    claims = runs.group_by(*OWNERS, "gpu_type", *REQUESTS, maintain_order=True).agg(
        runs=pl.len(),
        measured_runs=pl.any_horizontal(pl.col(name).is_not_null() for name in MEASURES.values()).sum(),
        instances=pl.col("instances").mean(),
        hours=pl.col("hours").sum(),
        seen_ts=pl.col("seen_ts").max(),
    )
    known = _with_evidence(claims, runs, policy.min_runs).sort(*OWNERS, "gpu_type", *REQUESTS, nulls_last=True)
    needs = {level: _needs(known, level, policy) for level in LEVELS}
    peaks, evident = _needs(known, "own_peak", policy), known["evidence"].is_not_null()
    assumed, sure = (_floors(known, policy, assume=assume) for assume in (True, False))
    targets, reasons = _targets(requests_of(known), assumed, sure, peaks, evident, policy)
    amounts = {**needs, "target": targets}
    return known.select(
        *OWNERS,
        "gpu_type",
        *REQUESTS,
        "runs",
        "measured_runs",
        "instances",
        "hours",
        "seen_ts",
        "evidence",
        "evidence_runs",
        *(pl.Series(f"{name}_{of}", each[:, r]) for of, each in amounts.items() for r, name in enumerate(RESOURCES)),
        *(pl.Series(f"{name}_reason", reasons[:, r].tolist(), dtype=pl.String) for r, name in enumerate(RESOURCES)),
    ).with_columns(pl.selectors.float().fill_nan(None))


def _with_evidence(claims: pl.DataFrame, runs: pl.DataFrame, min_runs: int) -> pl.DataFrame:
    """Join to each claim the measured use in the first runs of `EVIDENCE` of which `min_runs` were measured."""
    known = claims
    for whose, keys in EVIDENCE.items():
        # A request may be null; `_measured` leaves out null groups and users, whose jobs must not be pooled.
        known = known.join(_measured(runs, keys, whose), on=list(keys), how="left", nulls_equal=True)
    enough = {whose: pl.col(f"{whose}_runs").fill_null(0) >= max(min_runs, 1) for whose in EVIDENCE}
    chosen = pl.coalesce(pl.when(enough[whose]).then(pl.lit(whose)) for whose in EVIDENCE)
    return (
        known.with_columns(chosen=chosen)
        .with_columns(
            evidence_runs=_of_chosen("runs").fill_null(pl.max_horizontal("group_runs", "user_runs")).fill_null(0),
            **{f"{need}_{level}": _best_known(f"{need}_{level}") for need in MEASURES for level in LEVELS},
            **{f"{need}_own_peak": _own_peak(need) for need in MEASURES},
            **{
                f"{need}_floor": pl.when(_of_chosen(f"{need}_runs") >= min_runs).then(_of_chosen(f"{need}_peak"))
                for need in MEASURES
            },
        )
        .with_columns(evidence=pl.col("chosen").str.strip_suffix("_request"))
    )


def _measured(runs: pl.DataFrame, keys: Sequence[str], whose: str) -> pl.DataFrame:
    measured = pl.any_horizontal(pl.col(name).is_not_null() for name in MEASURES.values())
    return (
        runs.filter(pl.all_horizontal(pl.col(key).is_not_null() for key in keys if key not in REQUESTS))
        .group_by(keys, maintain_order=True)
        .agg(
            measured.sum().alias(f"{whose}_runs"),
            *(pl.col(column).count().alias(f"{whose}_{need}_runs") for need, column in MEASURES.items()),
            *(pl.col(c).quantile(0.95, "linear").alias(f"{whose}_{need}_p95") for need, c in MEASURES.items()),
            *(pl.col(column).max().alias(f"{whose}_{need}_peak") for need, column in MEASURES.items()),
        )
    )


def _of_chosen(what: str) -> pl.Expr:
    return pl.coalesce(pl.when(pl.col("chosen") == whose).then(pl.col(f"{whose}_{what}")) for whose in EVIDENCE)


def _own_peak(need: str) -> pl.Expr:
    """Return the peak of the group's (else the user's) runs with this request, if the evidence has this request too."""
    known = pl.coalesce(f"group_request_{need}_peak", f"user_request_{need}_peak")
    return pl.when(pl.col("chosen").str.ends_with("_request")).then(known)


def _best_known(what: str) -> pl.Expr:
    """Return a column of the chosen evidence; without evidence, the group's value, or the user's if that is null."""
    return pl.coalesce(_of_chosen(what), f"group_{what}", f"user_{what}")


def _needs(known: pl.DataFrame, level: str, policy: ShrinkPolicy) -> FloatArray:
    """Return the use of each resource at a level (`p95`, `peak` or `own_peak`), shape (claims, 3); NaN if unknown."""
    cpu_cores, mem_gib, gpus, gpu_mem_gib = (_column(known, f"{need}_{level}") for need in MEASURES)
    shares = policy.memory_shares(gpu_mem_gib, known["gpu_type"].to_list(), assume=False)
    return np.column_stack([cpu_cores, mem_gib, np.maximum(gpus, shares)])


def _floors(known: pl.DataFrame, policy: ShrinkPolicy, *, assume: bool) -> FloatArray:
    peaks = {need: _column(known, f"{need}_floor") for need in MEASURES}
    peak = PeakUse(**peaks, runs=known["evidence_runs"].to_numpy().astype(np.int64))
    return policy.floors(peak, known["gpu_type"].to_list(), assume=assume)


def _targets(
    requests: FloatArray,
    floors: FloatArray,
    sure: FloatArray,
    peaks: FloatArray,
    evident: pl.Series,
    policy: ShrinkPolicy,
) -> tuple[FloatArray, npt.NDArray[np.object_]]:
    """Return targets and reasons, both of shape (claims, 3); NaN and no reason for a resource without a request.

    `floors` (claims, 3) assume a memory for unknown cards, `sure` do not: only these raise. `peaks` (claims, 3) is the
    largest use in enough runs with this very request, else NaN. `evident` (claims,) marks claims with enough runs.
    """
    rounded, raised = _rounded(floors, policy), _rounded(sure, policy)
    # A part of a GPU cannot use more than that GPU, whatever the margin.
    of_one = (requests[:, 2] <= 1.0) & (peaks[:, 2] <= 1.0)
    raised[of_one, 2] = np.minimum(raised[of_one, 2], 1.0)
    rounded = np.where(rounded > requests, np.fmax(raised, requests), rounded)
    saved = requests - rounded
    worthwhile = (saved > 0.0) & (saved >= (policy.minimum_change - ROUNDING_SLACK) * requests)
    under = (saved < 0.0) & (peaks >= (1.0 + policy.minimum_change - ROUNDING_SLACK) * requests)
    cases: list[tuple[BoolArray, str | None]] = [
        (np.isnan(requests), None),
        (requests <= 0.0, str(Reason.BELOW_THRESHOLD)),
        (np.isnan(floors) & ~evident.to_numpy()[:, None], str(Reason.COLD_START)),
        (np.isnan(floors), str(Reason.NOT_MEASURED)),
        (worthwhile, str(Reason.SHRUNK)),
        (under, str(Reason.TOO_LITTLE)),
        (saved <= 0.0, str(Reason.FLOOR)),
    ]
    reasons = np.full(requests.shape, str(Reason.BELOW_THRESHOLD), dtype=np.object_)
    for holds, reason in reversed(cases):
        reasons[holds] = reason
    changed = (reasons == Reason.SHRUNK) | (reasons == Reason.TOO_LITTLE)
    return np.where(changed, rounded, requests), reasons


def _rounded(floors: FloatArray, policy: ShrinkPolicy) -> FloatArray:
    # A job that requests GPUs keeps at least one grid step of a GPU.
    shares = np.maximum(round_up_gpus(floors[:, 2], policy.gpu_grid), policy.gpu_grid)
    return np.column_stack([*(_up(floors[:, r], STEPS[name]) for r, name in enumerate(RESOURCES[:2])), shares])


def _up(values: FloatArray, step: float) -> FloatArray:
    """Round up to a multiple of `step`, at least one step."""
    steps: FloatArray = np.maximum(np.ceil(values / step - ROUNDING_SLACK), 1.0)
    return np.round(steps * step, 12)


def _column(frame: pl.DataFrame, name: str) -> FloatArray:
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
