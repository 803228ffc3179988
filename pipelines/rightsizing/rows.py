"""Rows of `taut rightsize`: over-claims and under-requests by group, user or type, worst first."""

from typing import Final, Literal

import polars as pl

from pipelines.rightsizing.claims import ROUNDING_SLACK, measured_runs, sized_claims
from pipelines.simulation.workloads import REQUESTS
from scheduler_core.shrink import ShrinkPolicy
from scheduler_core.types import RESOURCES, Reason

__all__ = ["rightsized", "summary"]

By = Literal["group", "user", "type"]

KEYS_OF: Final[dict[By, tuple[str, ...]]] = {
    "group": ("cluster", "group", "loners_user", "loners_type", "role"),
    "user": ("cluster", "user", "role"),
    "type": ("cluster", "task_type", "role"),
}
"""Key columns of the rows for each value of `by`; jobs without a group are grouped by user and type."""

HIGH_SHARE: Final = 0.5
MEDIUM_SHARE: Final = 0.9
SEVERITIES: Final = (
    f"severity: high marks the worst rows, with {HIGH_SHARE:.0%} of what can be reclaimed or is missing; medium the "
    f"next, up to {MEDIUM_SHARE:.0%}; low the rest. Rows with fewer than --min-runs measured runs of their own come "
    "last"
)
RAISED: Final = (
    "too_little: measured use exceeds the request, the target raises it, and slack is negative. A p95 above its "
    "target exceeds the request by less than 5 %, or comes from too few runs (cold_start)"
)
HOURS_OF: Final = {"cpu_cores": "core-hours", "mem_gib": "GiB-hours", "gpus": "GPU-hours"}
SIZES: Final = ("_p95", "_peak", "_target")
PER_RESOURCE: Final = (
    *("", "_p95", "_peak", "_target", "_reason", "_reclaimable_h", "_reclaimable_frac", "_missing_h", "_requested_h"),
)
UNSIZED: Final = (str(Reason.COLD_START), str(Reason.NOT_MEASURED))
"""Reasons of resources whose request is kept for lack of measured runs."""


def rightsized(jobs: pl.DataFrame, usage: pl.DataFrame, by: By, policy: ShrinkPolicy) -> pl.DataFrame:
    """Return one row for each value of `by` (group, user or type) and role, largest over-claim or under-request first.

    Amounts are per instance; hours are summed over instances.

    `requests` is the number of different requests. By group, amounts are those of the request with the most
    instance-hours. By user and by type, amounts are means over the requests with enough measured runs, weighted by
    instance-hours; each request has the target of its own group. So the mean target includes both requests that should
    shrink and requests that should grow. The reason is `shrunk` if enough can be released in total, `too_little` if
    enough is missing in total, else the reason of the largest other request.

    `<resource>_reclaimable_h` are the hours that smaller targets would have freed, `_missing_h` the hours that larger
    targets would have added.

    `evidence` names the runs from which targets are derived: the group's (`group`), or if these are too few the user's
    of the same type and role (`user`); `group+user` if a row by user or type has both; null if both are too few, and
    requests stay unchanged. `evidence_runs` counts these runs; by user and type, the row's measured runs with a target;
    without evidence, the measured runs. `measured_runs` counts the row's own measured runs. A row with fewer of them
    than the policy's `min_runs` is not `recurring`: it comes last, with severity `low`.

    `dominant` is the resource whose reclaimable or missing hours, whichever are more, are the largest share of its
    requested hours in the trace, and `share` is this share. `age_days` is the time from the row's last run to the
    trace's last run.
    """
    claims = sized_claims(measured_runs(jobs, usage), policy).with_columns(
        loners_user=pl.when(pl.col("group").is_null()).then(pl.col("user")),
        loners_type=pl.when(pl.col("group").is_null()).then(pl.col("task_type")),
    )
    # Sort by instance-hours, largest first, so that `first` returns the request with the most instance-hours.
    ordered = claims.sort("hours", "runs", *REQUESTS, "gpu_type", "user", "group", descending=True, nulls_last=True)
    amounts = _usual if by == "group" else _means
    rows = ordered.group_by(KEYS_OF[by], maintain_order=True).agg(
        *(_only(name) for name in ("group", "user", "task_type") if name not in KEYS_OF[by]),
        pl.col("runs").sum(),
        pl.col("measured_runs").sum(),
        requests=pl.len(),
        instances=(pl.col("instances") * pl.col("runs")).sum() / pl.col("runs").sum(),
        instance_hours=pl.col("hours").sum(),
        last_seen=pl.col("seen_ts").max(),
        **(_evidence_of_usual() if by == "group" else _evidence_of_all()),
        **{column: each for name in RESOURCES for column, each in amounts(name).items()},
        **{f"{name}_reason": _reason(name, by, policy.minimum_change) for name in RESOURCES},
        **{f"{name}_requested_h": (pl.col(f"req_{name}") * pl.col("hours")).sum() for name in RESOURCES},
        **{f"{name}_reclaimable_h": _reclaimable_h(name) for name in RESOURCES},
        **{f"{name}_missing_h": _missing_h(name) for name in RESOURCES},
    )
    return _ranked(rows.with_columns(recurring=pl.col("measured_runs") >= policy.min_runs))


def summary(rows: pl.DataFrame) -> list[str]:
    """Return lines of text on the reclaimable and the missing share of all requests, and on the meaning of columns."""
    said = {}
    for part in ("reclaimable", "missing"):
        hours = {name: [float(rows[f"{name}_{of}_h"].sum()) for of in (part, "requested")] for name in RESOURCES}
        shares = [f"{h / all_h:.1%} of {all_h:,.0f} {HOURS_OF[name]}" for name, (h, all_h) in hours.items() if all_h]
        said[part] = ", ".join(shares) or "nothing"
    under = rows.filter(pl.any_horizontal(pl.col(f"{name}_missing_h") > 0.0 for name in RESOURCES)).height
    lines = [f"reclaimable: {said['reclaimable']}", SEVERITIES]
    return [*lines, f"missing: {said['missing']}, in {under} of {rows.height} rows", RAISED] if under else lines


def _evidence_of_usual() -> dict[str, pl.Expr]:
    return {"evidence": pl.col("evidence").first(), "evidence_runs": pl.col("evidence_runs").first()}


def _evidence_of_all() -> dict[str, pl.Expr]:
    whose, measured = pl.col("evidence").drop_nulls(), pl.col("measured_runs")
    return {
        "evidence": pl.when(whose.count() > 0).then(whose.unique().sort().str.join("+")),
        "evidence_runs": pl.when(whose.count() > 0)
        .then(measured.filter(pl.col("evidence").is_not_null()).sum())
        .otherwise(measured.sum()),
    }


def _usual(name: str) -> dict[str, pl.Expr]:
    """Return request, measured use and target of the claim with the most instance-hours (the first)."""
    return {name: pl.col(f"req_{name}").first(), **{f"{name}{of}": pl.col(f"{name}{of}").first() for of in SIZES}}


def _means(name: str) -> dict[str, pl.Expr]:
    """Return the means of request, measured use and target over claims, weighted by instance-hours.

    Only claims with a target count; without any, claims with measured use; without these, all claims.
    """
    request, known = pl.col(f"req_{name}"), pl.col(f"{name}_peak").is_not_null()
    sure = known & ~pl.col(f"{name}_reason").is_in(UNSIZED)
    told = pl.when(sure.any()).then(sure).otherwise(known | ~known.any())
    weight = pl.when(told).then("hours").filter(request.is_not_null())
    sizes = {of: pl.col(f"{name}{of}") for of in SIZES}
    return {
        f"{name}{of}": pl.when(each.is_not_null().any() & (weight.sum() > 0.0)).then(
            _mean(each.filter(request.is_not_null()), weight)
        )
        for of, each in {"": request, **sizes}.items()
    }


def _mean(values: pl.Expr, weight: pl.Expr) -> pl.Expr:
    """Return the weighted mean, clipped to the range of the values so that rounding does not change equal values."""
    counted = values.filter(weight.is_not_null())
    mean = (values * weight).sum() / weight.sum()
    return pl.min_horizontal(pl.max_horizontal(mean, counted.min()), counted.max())


def _only(column: str) -> pl.Expr:
    """Return the value that all claims of a row have in a column, null if they differ."""
    return pl.when(pl.col(column).n_unique() == 1).then(pl.col(column).first()).alias(column)


def _reclaimable_h(name: str) -> pl.Expr:
    return _hours(pl.col(f"req_{name}") - pl.col(f"{name}_target"))


def _missing_h(name: str) -> pl.Expr:
    return _hours(pl.col(f"{name}_target") - pl.col(f"req_{name}"))


def _hours(amount: pl.Expr) -> pl.Expr:
    return (amount.clip(lower_bound=0.0) * pl.col("hours")).sum()


def _reason(name: str, by: By, minimum_change: float) -> pl.Expr:
    reason = pl.col(f"{name}_reason")
    if by == "group":
        return reason.first()
    requested_h = pl.col(f"req_{name}") * pl.col("hours")
    stands = reason.is_not_null() & ~reason.is_in([str(Reason.SHRUNK), str(Reason.TOO_LITTLE)])
    most = reason.filter(stands).get(requested_h.filter(stands).arg_max(), null_on_oob=True)
    least = (minimum_change - ROUNDING_SLACK) * requested_h.sum()
    freed, missing = _reclaimable_h(name), _missing_h(name)
    moved = (freed + missing > 0.0) & (((freed - missing).abs() >= least) | ~stands.any())
    moves = pl.when(missing > freed).then(pl.lit(str(Reason.TOO_LITTLE))).otherwise(pl.lit(str(Reason.SHRUNK)))
    return pl.when(moved).then(moves).otherwise(most)


def _ranked(rows: pl.DataFrame) -> pl.DataFrame:
    """Order rows by their largest share of the trace's requests, recurring rows first, and add the severity."""
    held = {name: float(rows[f"{name}_requested_h"].sum()) for name in RESOURCES}
    shares = {
        name: pl.max_horizontal(f"{name}_reclaimable_h", f"{name}_missing_h") / total
        for name, total in held.items()
        if total
    }
    share = pl.max_horizontal(pl.lit(0.0), *shares.values())
    dominant = pl.coalesce(
        *(pl.when((share > 0.0) & (each == share)).then(pl.lit(name)) for name, each in shares.items()),
        pl.lit(None, dtype=pl.String),
    )
    ordered = rows.with_columns(share=share, dominant=dominant).sort(
        "recurring", "share", "instance_hours", "cluster", "group", "user", "task_type", "role",
        descending=[True, True, True, *[False] * 5], nulls_last=True,
    )  # fmt: skip
    # Severity is by cumulative share among the recurring rows, which come first.
    counted = pl.col("share").filter("recurring")
    before = pl.col("share").cum_sum().shift(1, fill_value=0.0) / counted.sum()
    severity = (
        pl.when(pl.col("share") <= 0.0)
        .then(None)
        .when(~pl.col("recurring"))
        .then(pl.lit("low"))
        .when(before < HIGH_SHARE)
        .then(pl.lit("high"))
        .when(before < MEDIUM_SHARE)
        .then(pl.lit("medium"))
        .otherwise(pl.lit("low"))
    )
    age = (pl.col("last_seen").max() - pl.col("last_seen")).dt.total_seconds() / 86_400.0
    fractions = {
        f"{name}_reclaimable_frac": pl.when(pl.col(f"{name}_requested_h") > 0.0).then(
            pl.col(f"{name}_reclaimable_h") / pl.col(f"{name}_requested_h")
        )
        for name in RESOURCES
    }
    return ordered.with_columns(severity=severity, age_days=age, **fractions).select(
        "severity",
        "cluster",
        "group",
        "user",
        "task_type",
        "role",
        "runs",
        "measured_runs",
        "recurring",
        "requests",
        "instances",
        "instance_hours",
        "last_seen",
        "age_days",
        "evidence",
        "evidence_runs",
        "share",
        "dominant",
        *(f"{name}{part}" for name in RESOURCES for part in PER_RESOURCE),
    )
