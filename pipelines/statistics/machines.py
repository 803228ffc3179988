"""Machines, GPUs as their exporters measured them, and files.

Each is one query, except `files`, which reads the manifest. Utilisation is averaged over machine-hours, so that a
machine sampled every minute counts as much as one sampled every hour. Time zones must be whole hours from UTC.
"""

from typing import Final

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.lake.views import ENERGY_KWH, HOUR_SINCE_1970, MACHINE_TYPE, MEAN_FRACTIONS, MEAN_POWER_W, SAMPLES
from pipelines.statistics.statistic import (
    ZONE,
    Split,
    Statistic,
    defined,
    mean,
    percentiles,
    quantiles,
    statistic,
    without,
)

MACHINE_DIMENSIONS: Final = {"cluster": "cluster"}
CAPACITY_DIMENSIONS: Final = {"cluster": "cluster", "vc": "vc", "date": "CAST(date AS VARCHAR)"}


@statistic(title="Classes of machines", unit="machines, GPUs", by=MACHINE_DIMENSIONS, needs={"machines": ()})
def machine_classes(split: Split) -> str:
    """Return the classes of machines (GPU type, cores, memory, GPUs, GPU memory), with machines and GPUs in each.

    A null value is unknown; machines with the same values, nulls included, form one class.
    """
    return f"""
    SELECT {split.defined}gpu_type, cpu_cores, mem_gib, gpus, gpu_mem_gib, count(*) AS machines,
        CAST(sum(gpus) AS BIGINT) AS total_gpus
    FROM machines WHERE trace = $trace AND cluster = coalesce($cluster, cluster) GROUP BY ALL ORDER BY ALL
    """


@statistic(title="GPUs over dates", unit="GPUs", by=CAPACITY_DIMENSIONS, needs={"capacity": ()})
def capacity(split: Split) -> str:
    """Return the number of GPUs of all virtual clusters together: mean, minimum and maximum over dates.

    If several clusters are selected, their GPUs are summed too.
    """
    date = "" if "date" in split.names else "date, "
    return f"""
    WITH day AS (
        SELECT {split.defined}{date}sum(gpus) AS gpus
        FROM capacity WHERE trace = $trace AND cluster = coalesce($cluster, cluster) GROUP BY ALL
    )
    SELECT {split.listed}count(*) AS days, CAST(min(date) AS VARCHAR) AS first_date,
        CAST(max(date) AS VARCHAR) AS last_date, CAST(avg(gpus) AS DOUBLE) AS mean_gpus,
        CAST(min(gpus) AS BIGINT) AS min_gpus, CAST(max(gpus) AS BIGINT) AS max_gpus
    FROM day GROUP BY ALL HAVING count(*) > 0 ORDER BY ALL
    """


MACHINE_HOUR_DIMENSIONS: Final = {
    "cluster": "cluster",
    "machine": "machine",
    "machine_type": "machine_type",
    "weekday": "isodow(local_hour)",
    "date": "CAST(CAST(local_hour AS DATE) AS VARCHAR)",
    "month": "strftime(local_hour, '%Y-%m')",
}


@statistic(
    title="Utilisation by local hour",
    unit="busy fraction (0..1)",
    by=MACHINE_HOUR_DIMENSIONS,
    needs={"machine_usage": ()},
)
def utilisation_by_hour(split: Split) -> str:
    """Return the busy fraction of CPU, memory and GPUs in each local hour of the day, over machine-hours.

    A machine-hour is the mean of one machine's samples in one hour; hours without samples are absent, not idle.
    `machines` counts machines, `samples` the rows of `machine_usage` behind the means. PAI publishes one row for each
    worker, the machine's mean over the worker's life; it counts in the hour in which the worker started.
    """
    return _utilisation(split, key="hour", of="hour(local_hour)")


@statistic(
    title="Utilisation by machine type",
    unit="busy fraction (0..1)",
    by=without("machine_type", MACHINE_HOUR_DIMENSIONS),
    needs={"machine_usage": ()},
)
def utilisation_by_machine_type(split: Split) -> str:
    """Return the busy fraction of CPU, memory and GPUs for each type of machine, over machine-hours.

    The type is the GPU type, else the number and memory of the GPUs, else `unknown` (machines missing from the machine
    list). Columns as in `utilisation_by_hour`.
    """
    return _utilisation(split, key="machine_type", of="machine_type")


def _utilisation(split: Split, *, key: str, of: str) -> str:
    cells = ", ".join(
        f"{{'resource': '{name}', 'frac': {name}_frac, 'samples': {name}_samples}}" for name in ("cpu", "mem", "gpu")
    )
    return f"""
    WITH machine_hour AS (
        SELECT cluster, machine, {HOUR_SINCE_1970} AS hour_since_1970, {MEAN_FRACTIONS}, {SAMPLES}
        FROM machine_usage WHERE trace = $trace AND cluster = coalesce($cluster, cluster) GROUP BY ALL
    ), typed AS (
        SELECT h.*, timezone({ZONE}, to_timestamp(3600 * hour_since_1970)) AS local_hour,
            {MACHINE_TYPE} AS machine_type
        FROM machine_hour h LEFT JOIN (
            SELECT cluster, machine, gpu_type, gpus, gpu_mem_gib FROM machines WHERE trace = $trace
        ) USING (cluster, machine)
    ), cell AS (
        SELECT {split.defined}{of} AS "{key}", machine AS of_machine, unnest([{cells}], recursive := true) FROM typed
    ), part AS (
        SELECT {split.listed}"{key}", resource, count(DISTINCT of_machine) AS machines, count(*) AS machine_hours,
            CAST(sum(samples) AS BIGINT) AS samples, {mean("frac")} AS mean_frac, {quantiles("frac")} AS q,
            max(frac) AS max_frac
        FROM cell WHERE frac IS NOT NULL GROUP BY ALL
    )
    SELECT {split.listed}"{key}", resource, machines, machine_hours, samples, mean_frac, {percentiles("frac")}, max_frac
    FROM part ORDER BY ALL
    """


_SCHEMA: Final = {
    "cluster": pl.String,
    "table": pl.String,
    "file": pl.String,
    "bytes": pl.Int64,
    "sha256": pl.String,
    "rows_in": pl.Int64,
    "rows_quarantined": pl.Int64,
}


def _files(lake: Lake, trace: str, _: Split, cluster: str | None) -> pl.DataFrame:
    """Return each published table of the trace: its file, bytes, SHA-256, and the rows read and quarantined.

    File, bytes and checksum are null if the table was absent.
    """
    lake.table("jobs", trace, cluster)
    manifest = lake.manifest(trace)
    known = {each.file: each for each in manifest.inputs}
    return pl.DataFrame(
        [
            {
                "cluster": account.cluster,
                "table": account.table,
                "file": account.file,
                "bytes": known[account.file].bytes if account.file in known else None,
                "sha256": known[account.file].sha256 if account.file in known else None,
                "rows_in": account.rows_in,
                "rows_quarantined": account.rows_quarantined,
            }
            for account in manifest.accounts
            if cluster in (None, account.cluster)
        ],
        schema=_SCHEMA,
    ).sort("cluster", "table", "file", nulls_last=True)


files: Final = Statistic(
    name="files",
    title="Published files that were read",
    unit="bytes, rows",
    definition=defined(_files),
    compute=_files,
    dimensions={},
    adds_up=False,
)


_LOCAL: Final = f"timezone({ZONE}, ts)"
GPU_HOUR_DIMENSIONS: Final = {
    "cluster": "cluster",
    "machine": "machine",
    "device": "device",
    "gpu_type": "gpu_type",
    "hour": f"hour({_LOCAL})",
    "weekday": f"isodow({_LOCAL})",
    "date": f"CAST(CAST({_LOCAL} AS DATE) AS VARCHAR)",
    "month": f"strftime({_LOCAL}, '%Y-%m')",
}
WATTS_DIGITS: Final = 6
"""Digits of fitted watts; more would depend on the order of rows."""


@statistic(
    title="Power, temperature and errors of GPUs",
    unit="W, kWh, degrees C, hours",
    by=GPU_HOUR_DIMENSIONS,
    needs={"environment": ()},
)
def gpu_environment(split: Split) -> str:
    """Return power, energy, temperature and errors of GPUs, over hours of GPUs.

    `gpu_hours` counts hours with samples, `sampled_h` the hours that samples cover; `energy_kwh` was drawn in these.
    Percentiles are over the mean powers of hours. `xid_hours` counts hours in which the reported XID error code
    changed, `xid_gpus` the GPUs with such an hour.
    """
    gpu = "cluster || ' ' || machine || ' ' || device"
    return f"""
    WITH gpu_hour AS (
        SELECT {split.defined}{gpu} AS gpu, power_w, power_max_w, temp_c, temp_max_c, energy_j, xid_changes,
            coverage_frac
        FROM environment WHERE trace = $trace AND cluster = coalesce($cluster, cluster)
    ), part AS (
        SELECT {split.listed}count(DISTINCT gpu) AS gpus, count(*) AS gpu_hours, sum(coverage_frac) AS sampled_h,
            {ENERGY_KWH} AS energy_kwh, {MEAN_POWER_W} AS mean_w, {quantiles("power_w")} AS q,
            max(power_max_w) AS max_w, {mean("temp_c")} AS mean_c, max(temp_max_c) AS max_c,
            count(*) FILTER (WHERE xid_changes > 0) AS xid_hours,
            count(DISTINCT gpu) FILTER (WHERE xid_changes > 0) AS xid_gpus
        FROM gpu_hour GROUP BY ALL HAVING count(*) > 0
    )
    SELECT {split.listed}gpus, gpu_hours, CAST(round(sampled_h, 3) AS DOUBLE) AS sampled_h, energy_kwh, mean_w,
        {percentiles("w")}, max_w, mean_c, max_c, xid_hours, xid_gpus
    FROM part ORDER BY ALL
    """


@statistic(
    title="Power of GPUs by use",
    unit="W",
    by={name: GPU_HOUR_DIMENSIONS[name] for name in ("cluster", "machine", "date", "month")},
    needs={"environment": ("power_w",), "machine_usage": ("gpu_frac",)},
)
def gpu_power_by_use(split: Split) -> str:
    """Return for each GPU type the power in W when idle and when busy, fitted over machine-hours by least squares.

    The power of a machine's GPUs in an hour is compared with their busy fraction: `idle_w` at 0, `full_w` at 1, `r2`
    the share of the variance explained. Null if all hours were equally busy. For a power file (`taut simulate
    --power`): `[gpus.<type>]` with `idle_w` and `full_w`.
    """
    fitted = ", ".join(
        f"CAST(round({value}, {WATTS_DIGITS}) AS DOUBLE) AS {name}"
        for name, value in {
            "idle_w": "regr_intercept(power_w, gpu_frac)",
            "full_w": "regr_intercept(power_w, gpu_frac) + regr_slope(power_w, gpu_frac)",
            "r2": "regr_r2(power_w, gpu_frac)",
        }.items()
    )
    return f"""
    WITH gpus AS (
        SELECT cluster, machine, ts, gpu_type, avg(power_w) AS power_w
        FROM environment WHERE trace = $trace AND cluster = coalesce($cluster, cluster) AND power_w IS NOT NULL
        GROUP BY ALL
    ), hour AS (
        SELECT {split.defined}gpu_type, machine AS of_machine, power_w, gpu_frac
        FROM gpus JOIN (
            SELECT cluster, machine, ts, gpu_frac FROM machine_usage WHERE trace = $trace AND gpu_frac IS NOT NULL
        ) USING (cluster, machine, ts)
    )
    SELECT {split.listed}gpu_type, count(DISTINCT of_machine) AS machines, count(*) AS machine_hours, {fitted}
    FROM hour GROUP BY ALL ORDER BY ALL
    """
