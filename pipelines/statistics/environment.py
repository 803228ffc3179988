"""GPUs as their exporters measured them: `gpu_environment`, `gpu_power_by_use`."""

from typing import Final

from pipelines.lake.quantities import ENERGY_KWH, MEAN_POWER_W
from pipelines.statistics.query import ZONE, Split, mean, percentiles, quantiles
from pipelines.statistics.statistic import statistic

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
