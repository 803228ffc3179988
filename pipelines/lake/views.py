"""The views of a lake beside its tables, and what every table, view and column means, as comments in the database.

The tables' own columns are described in `features.canonical`; where the files are is `pipelines.lake.lake`'s.
Called by `pipelines.lake.lake`, which makes them, and by `pipelines.lake.dictionary`, which prints them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from features.canonical import CANONICAL
from pipelines.lake.measures import (
    CLAIM_CELLS,
    CLAIMS_MEASURED,
    GPU_HOURS,
    GPUS,
    HOUR_SINCE_1970,
    INSTANCE_HOURS,
    IS_CLAIM,
    MACHINE_TYPE,
    MEAN_FRACTIONS,
    SAMPLES,
    SLACK,
    ZONE,
    total,
    zone_macro,
)

QUARANTINE_COLUMNS: Final = {
    "trace": "the trace, as it was named at ingest",
    "cluster": "the cluster within the trace",
    "table": "the published table the row stood in",
    "file": "the file the row stood in",
    "rule": "the rule that the row breaks",
    "row": "the row's number in its file, from 1; a header does not count",
    "raw": "the row as it stands in the file",
}
STATE_TABLE: Final = "taut_lake"
STATE_COMMENT: Final = f"COMMENT ON TABLE {STATE_TABLE} IS 'Which state of the lake the views show; for taut alone.'"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A table or view, and what it means; of a canonical table `sql` is empty: it is read from its files."""

    name: str
    says: str
    columns: Mapping[str, str]
    sql: str = field(default="")


def _of(table: str) -> dict[str, str]:
    return {name: column.says for name, column in CANONICAL[table].columns.items()}


_JOB: Final = _of("jobs")
_USAGE: Final = {name: says for name, says in _of("usage").items() if name not in _JOB}
_KEY: Final = {name: _JOB[name] for name in ("trace", "cluster")}
_WHOSE: Final = {name: _JOB[name] for name in ("vc", "user", "task_type", "status")}
_GPU_HOURS: Final = "all GPUs it asked for times how long it ran, in hours; null where either is unknown"
_DERIVED: Final = {
    "gpus": "GPUs requested by all its instances together",
    "gpu_hours": _GPU_HOURS,
    "instance_hours": "its instances times how long they ran, in hours",
    "zone": "the time zone in which the trace's hours and weekdays are read",
    "submit_local": "when it was submitted, in that zone",
}

JOBS_WITH_USAGE: Final = View(
    name="jobs_with_usage",
    says="One row per row of `jobs`, with what it used (null where nothing was measured), its hours and local time.",
    columns=_JOB | _USAGE | _DERIVED,
    sql=f"""
    SELECT *, {GPUS} AS gpus, {GPU_HOURS} AS gpu_hours, {INSTANCE_HOURS} AS instance_hours, {ZONE} AS zone,
        timezone({ZONE}, submit_ts) AS submit_local
    FROM jobs LEFT JOIN usage USING (trace, cluster, job_id, role)""",
)

GPU_HOURS_BY_DAY: Final = View(
    name="gpu_hours",
    says="One row per local date of submission, virtual cluster, user, kind and status: GPU jobs and their GPU-hours.",
    columns=_KEY
    | {"submit_date": "the date of submission in the trace's zone"}
    | _WHOSE
    | {
        "gpu_jobs": "how many rows of `jobs` that ask for GPUs",
        "gpu_hours": "their GPU-hours, counted on the date of submission; null where no run time is known",
    },
    sql=f"""
    SELECT trace, cluster, CAST(timezone({ZONE}, submit_ts) AS DATE) AS submit_date, vc, "user", task_type, status,
        count(*) AS gpu_jobs, {total(GPU_HOURS)} AS gpu_hours
    FROM jobs WHERE {GPUS} > 0 GROUP BY ALL""",
)

_CLAIMANT: Final = ("trace", "cluster", "job_id", "role", "user", "vc", "group", "task_type", "gpu_type", "submit_ts")
_CLAIMANT_LISTED: Final = ", ".join(f'"{name}"' for name in _CLAIMANT)
OVER_CLAIM: Final = View(
    name="over_claim",
    says="One row per measured job and resource it asks for: request against use. Parameter servers are left out.",
    columns={name: _JOB[name] for name in _CLAIMANT}
    | {
        "resource": "`cpu_cores`, `gpus`, `mem_gib` or `gpu_mem_gib`: the resource, and its unit",
        "use": "which use: `mean` over the run, or `peak` (of memory only, and beside its `mean`: choose one)",
        "request": "what one instance asks for; of GPU memory its GPUs times the memory of their type",
        "used": "what one instance used",
        "over_claims": "whether the request is above use",
        "slack": "the part of the request above use, per instance",
        "requested_h": "the request times instances times run time, in hours",
        "slack_h": "the slack times instances times run time, in hours",
    },
    sql=f"""
    SELECT {_CLAIMANT_LISTED}, resource, use, request, used, request > used AS over_claims, {SLACK} AS slack,
        request * hours AS requested_h, {SLACK} * hours AS slack_h
    FROM (
        SELECT {_CLAIMANT_LISTED}, {INSTANCE_HOURS} AS hours, {CLAIM_CELLS}
        FROM jobs JOIN usage USING (trace, cluster, job_id, role) WHERE {CLAIMS_MEASURED}
    ) WHERE {IS_CLAIM}""",
)

MACHINE_HOURS: Final = View(
    name="machine_hours",
    says="One row per machine and hour in which it was sampled: the mean busy fraction of its CPU, memory and GPUs.",
    columns=_KEY
    | {
        "machine": _of("machine_usage")["machine"],
        "machine_type": "the type of its GPUs, else how many and with how much memory, else `unknown`",
        "hour_ts": "when the hour began",
        "hour_local": "when the hour began, in the trace's zone",
        "cpu_frac": "mean busy fraction of its CPU",
        "mem_frac": "mean fraction of its main memory in use",
        "gpu_frac": "mean busy fraction of its GPUs",
        "cpu_samples": "how many samples of its CPU",
        "mem_samples": "how many samples of its main memory",
        "gpu_samples": "how many samples of its GPUs",
    },
    sql=f"""
    SELECT trace, cluster, machine, {MACHINE_TYPE} AS machine_type, to_timestamp(3600 * hour_since_1970) AS hour_ts,
        timezone({ZONE}, to_timestamp(3600 * hour_since_1970)) AS hour_local,
        cpu_frac, mem_frac, gpu_frac, cpu_samples, mem_samples, gpu_samples
    FROM (
        SELECT trace, cluster, machine, {HOUR_SINCE_1970} AS hour_since_1970, {MEAN_FRACTIONS}, {SAMPLES}
        FROM machine_usage GROUP BY ALL
    ) LEFT JOIN machines USING (trace, cluster, machine)""",
)

VIEWS: Final = {view.name: view for view in (JOBS_WITH_USAGE, GPU_HOURS_BY_DAY, OVER_CLAIM, MACHINE_HOURS)}
"""The views beside the tables, by name."""

DESCRIBED: Final = {
    **{name: View(name=name, says=table.says, columns=_of(name)) for name, table in CANONICAL.items()},
    "quarantine": View(
        name="quarantine",
        says="One row per published row that was not taken, and the rule it breaks.",
        columns=QUARANTINE_COLUMNS,
    ),
    **VIEWS,
}
"""Every table and view that a reader of the lake sees, by name."""


def creations(zones: Mapping[str, str]) -> Iterator[str]:
    """Yield the statements that make the views, where the tables are; hours are local to the zones of the traces."""
    yield zone_macro(zones)
    for view in VIEWS.values():
        yield f"CREATE VIEW {view.name} AS {view.sql}"


def comments() -> Iterator[str]:
    """Yield the statements that say in the database what each table, view and column means."""
    for view in DESCRIBED.values():
        yield f"COMMENT ON VIEW {view.name} IS {_quoted(view.says)}"
        for column, says in view.columns.items():
            yield f'COMMENT ON COLUMN {view.name}."{column}" IS {_quoted(says)}'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
