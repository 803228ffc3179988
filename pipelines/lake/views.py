"""The tables and views of a lake: columns, types, descriptions; and the SQL of every derived quantity.

Use and request are per instance. CPU and GPU use is the mean over a run; memory use has two measures, the mean and the
largest peak over instances. The GPU memory that a job requests is its number of GPUs times the memory of their type. A
claim is a request that is compared with use. Parameter servers have none, because the traces report the measurements of
their workers for them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from features.canonical import CANONICAL, Kind
from features.vocabulary import GPU_MEM_GIB_OF_TYPE

__all__ = [
    "CLAIMS_MEASURED",
    "CLAIM_CELLS",
    "COLUMNS",
    "ENERGY_KWH",
    "EXACT",
    "GPUS",
    "GPU_HOURS",
    "HOUR_SINCE_1970",
    "INSTANCE_HOURS",
    "IS_CLAIM",
    "MACHINE_TYPE",
    "MEAN_FRACTIONS",
    "MEAN_POWER_W",
    "SAMPLES",
    "SLACK",
    "total",
]

ROLE_PARAMETER_SERVER: Final = "ps"

GPUS: Final = "instances * req_gpus"
GPU_HOURS: Final = "instances * req_gpus * run_s / 3600"
INSTANCE_HOURS: Final = "instances * run_s / 3600"
"""Hours of run time over all instances; null if any factor is null."""

EXACT: Final = "DECIMAL(38, 12)"
"""SQL type for exact sums. Ingest rules bound requests, instances and hours, so that sums of their products fit."""

_DEVICE_GIB: Final = " ".join(f"WHEN '{name}' THEN {gib}" for name, gib in GPU_MEM_GIB_OF_TYPE.items())

REQUESTED: Final = "asked for"
OF_DEVICES: Final = "GPUs asked for x device memory"
"""Origins of a request: a number in the trace or, for GPU memory (not requested), the memory of requested GPUs."""

CLAIMS: Final = (
    ("cpu_cores", "mean", "req_cpu_cores", "used_cpu_cores"),
    ("gpus", "mean", "req_gpus", "used_gpus"),
    ("mem_gib", "mean", "req_mem_gib", "mem_avg_gib"),
    ("mem_gib", "peak", "req_mem_gib", "mem_max_gib"),
    ("gpu_mem_gib", "mean", f"req_gpus * CASE gpu_type {_DEVICE_GIB} END", "gpu_mem_avg_gib"),
    ("gpu_mem_gib", "peak", f"req_gpus * CASE gpu_type {_DEVICE_GIB} END", "gpu_mem_max_gib"),
)
"""Comparisons of request and use: resource, kind of use, SQL of the request, SQL of the use."""

_CELLS: Final = ", ".join(
    f"{{'resource': '{resource}', 'use': '{use}', 'basis': '{OF_DEVICES if resource == 'gpu_mem_gib' else REQUESTED}', "
    f"'request': CAST({request} AS DOUBLE), 'used': {used}}}"
    for resource, use, request, used in CLAIMS
)
CLAIM_CELLS: Final = f"unnest([{_CELLS}], recursive := true)"
"""SQL that gives one row per claim, with columns `resource`, `use`, `basis`, `request`, `used`."""
CLAIMS_MEASURED: Final = f"role <> '{ROLE_PARAMETER_SERVER}'"
IS_CLAIM: Final = "request > 0 AND used IS NOT NULL"
SLACK: Final = "greatest(request - used, 0)"

MACHINE_TYPE: Final = (
    """coalesce(gpu_type, gpus || ' GPUs' || coalesce(' of ' || printf('%g', gpu_mem_gib) || ' GiB', ''), 'unknown')"""
)
"""SQL of the machine type: GPU type, else number and memory of GPUs; `unknown` for machines that are not listed."""
HOUR_SINCE_1970: Final = "epoch_us(ts) // 3600000000"
_FRACTION: Final = "DECIMAL(18, 9)"
MEAN_FRACTIONS: Final = ", ".join(
    f"avg(CAST({name}_frac AS {_FRACTION})) AS {name}_frac" for name in ("cpu", "mem", "gpu")
)
SAMPLES: Final = ", ".join(f"count({name}_frac) AS {name}_samples" for name in ("cpu", "mem", "gpu"))
"""SQL of the sample counts of CPU, memory and GPUs; `MEAN_FRACTIONS` is the SQL of their mean busy fractions, which
uses decimals so that the order of rows does not change the result."""


def total(value: str, where: str | None = None) -> str:
    """Return the SQL of a sum that does not depend on row order: it adds decimals, then rounds to nine digits.

    `where` restricts the rows that are added. The result is a DOUBLE.
    """
    only = f" FILTER (WHERE {where})" if where else ""
    return f"CAST(round(sum(CAST({value} AS {EXACT})){only}, 9) AS DOUBLE)"


ENERGY_KWH: Final = f"{total('energy_j')} / 3.6e6"
MEAN_POWER_W: Final = f"{total('power_w * coverage_frac')} / nullif({total('coverage_frac', 'power_w IS NOT NULL')}, 0)"
"""SQL of the energy of rows of `environment` in kWh, and of their mean power, weighted by the time sampled."""


ZONE: Final = "local_zone(trace)"
"""SQL of the time zone of a row's trace, taken from the trace's manifest; `zone_macro` defines the macro."""


def zone_macro(zones: Mapping[str, str]) -> str:
    """Return the statement that creates the macro `local_zone(trace)` from the time zone of each trace."""
    cases = "".join(f"WHEN '{trace}' THEN '{zone}' " for trace, zone in zones.items())
    return "CREATE MACRO local_zone(t) AS " + (f"CASE t {cases}ELSE 'UTC' END" if cases else "'UTC'")


QUARANTINE: Final = "quarantine"
COLUMNS: Final[dict[str, dict[str, Kind]]] = {
    **{name: {column: declared.kind for column, declared in t.columns.items()} for name, t in CANONICAL.items()},
    QUARANTINE: {
        "trace": "VARCHAR",
        "cluster": "VARCHAR",
        "table": "VARCHAR",
        "file": "VARCHAR",
        "rule": "VARCHAR",
        "row": "BIGINT",
        "raw": "VARCHAR",
    },
}
"""The columns of every table in a lake with their SQL types."""
QUARANTINE_COLUMNS: Final = {
    "trace": "the name of the trace, given at ingest",
    "cluster": "the cluster within the trace",
    "table": "the published table that contains the row",
    "file": "the file that contains the row",
    "rule": "the rules that the row breaks, joined by a comma and a space",
    "row": "the row's number in its file, from 1, without the header",
    "raw": "the row's text in the file",
}
STATE_TABLE: Final = "taut_lake"
STATE_COMMENT: Final = f"COMMENT ON TABLE {STATE_TABLE} IS 'The state of the lake that the views show; internal.'"


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A table or view with its description; `sql` defines a view and is empty for a table."""

    name: str
    description: str
    columns: Mapping[str, str]
    sql: str = field(default="")


def _of(table: str) -> dict[str, str]:
    return {name: column.says for name, column in CANONICAL[table].columns.items()}


_JOB: Final = _of("jobs")
_USAGE: Final = {name: text for name, text in _of("usage").items() if name not in _JOB}
_KEY: Final = {name: _JOB[name] for name in ("trace", "cluster")}
_WHOSE: Final = {name: _JOB[name] for name in ("vc", "user", "task_type", "status")}
_GPU_HOURS: Final = "its requested GPUs over all instances times its run time, in hours; null if either is unknown"
_DERIVED: Final = {
    "gpus": "GPUs requested by all its instances together",
    "gpu_hours": _GPU_HOURS,
    "instance_hours": "its instances times its run time, in hours",
    "zone": "the trace's time zone, used for hours and weekdays",
    "submit_local": "submission time in that zone",
}

JOBS_WITH_USAGE: Final = View(
    name="jobs_with_usage",
    description="One row per row of `jobs`, with its measured use (null if not measured), hours and local time.",
    columns=_JOB | _USAGE | _DERIVED,
    sql=f"""
    SELECT *, {GPUS} AS gpus, {GPU_HOURS} AS gpu_hours, {INSTANCE_HOURS} AS instance_hours, {ZONE} AS zone,
        timezone({ZONE}, submit_ts) AS submit_local
    FROM jobs LEFT JOIN usage USING (trace, cluster, job_id, role)""",
)

GPU_HOURS_BY_DAY: Final = View(
    name="gpu_hours",
    description="One row per local submission date, virtual cluster, user, task type, status: GPU jobs and GPU-hours.",
    columns=_KEY
    | {"submit_date": "the date of submission in the trace's time zone"}
    | _WHOSE
    | {
        "gpu_jobs": "number of rows of `jobs` that request GPUs",
        "gpu_hours": "their GPU-hours, all counted on the date of submission; null if no run time is known",
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
    description="One row per measured job and requested resource: request and use. Parameter servers are left out.",
    columns={name: _JOB[name] for name in _CLAIMANT}
    | {
        "resource": "`cpu_cores`, `gpus`, `mem_gib` or `gpu_mem_gib`: the resource and its unit",
        "use": "kind of use: `mean` over the run, or `peak` (memory only; memory has both rows: choose one)",
        "request": "request of one instance; for GPU memory its GPUs times the memory of their type",
        "used": "use of one instance",
        "over_claims": "whether the request exceeds the use",
        "slack": "the part of the request above the use, per instance",
        "requested_h": "request times instances times run time, in hours",
        "slack_h": "slack times instances times run time, in hours",
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
    description="One row per machine and hour with samples: the mean busy fraction of its CPU, memory and GPUs.",
    columns=_KEY
    | {
        "machine": _of("machine_usage")["machine"],
        "machine_type": "the type of its GPUs, else their number and memory, else `unknown`",
        "hour_ts": "start of the hour",
        "hour_local": "start of the hour in the trace's time zone",
        "cpu_frac": "mean busy fraction of its CPU",
        "mem_frac": "mean fraction of its main memory in use",
        "gpu_frac": "mean busy fraction of its GPUs",
        "cpu_samples": "number of samples of its CPU",
        "mem_samples": "number of samples of its main memory",
        "gpu_samples": "number of samples of its GPUs",
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

_ENVIRONMENT: Final = _of("environment")
GPU_DAYS: Final = View(
    name="gpu_days",
    description="One row per GPU and local date with rows in `environment`: hours, energy, power, temperature, errors.",
    columns=_KEY
    | {name: _ENVIRONMENT[name] for name in ("machine", "device", "gpu_type")}
    | {
        "date": "the date in the trace's time zone",
        "sampled_h": "hours that its samples cover",
        "energy_kwh": "energy that it drew in these hours",
        "power_w": "mean power in W over these hours",
        "power_max_w": _ENVIRONMENT["power_max_w"],
        "temp_max_c": _ENVIRONMENT["temp_max_c"],
        "xid_changes": "how often its reported XID error code changed",
    },
    sql=f"""
    SELECT trace, cluster, machine, device, max(gpu_type) AS gpu_type, CAST(timezone({ZONE}, ts) AS DATE) AS date,
        sum(coverage_frac) AS sampled_h, {ENERGY_KWH} AS energy_kwh, {MEAN_POWER_W} AS power_w,
        max(power_max_w) AS power_max_w, max(temp_max_c) AS temp_max_c, sum(xid_changes)::BIGINT AS xid_changes
    FROM environment GROUP BY ALL""",
)

_ALL: Final = (JOBS_WITH_USAGE, GPU_HOURS_BY_DAY, OVER_CLAIM, MACHINE_HOURS, GPU_DAYS)
VIEWS: Final = {view.name: view for view in _ALL}
"""Views by name, without the tables."""

DESCRIBED: Final = {
    **{name: View(name=name, description=table.says, columns=_of(name)) for name, table in CANONICAL.items()},
    "quarantine": View(
        name="quarantine",
        description="One row per rejected row of the published files, and the rules it breaks.",
        columns=QUARANTINE_COLUMNS,
    ),
    **VIEWS,
}
"""All tables and views of a lake by name."""


def creations(zones: Mapping[str, str]) -> Iterator[str]:
    """Yield the SQL statements that create the views on existing tables; `zones` maps a trace to its time zone."""
    yield zone_macro(zones)
    for view in VIEWS.values():
        yield f"CREATE VIEW {view.name} AS {view.sql}"


def comments() -> Iterator[str]:
    """Yield the SQL statements that attach a description to every table, view and column in the database."""
    for view in DESCRIBED.values():
        yield f"COMMENT ON VIEW {view.name} IS {_quoted(view.description)}"
        for column, text in view.columns.items():
            yield f'COMMENT ON COLUMN {view.name}."{column}" IS {_quoted(text)}'


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
