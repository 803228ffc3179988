"""Fold readings of one hour into rows of the tables `machine_usage` and `environment`.

Pure. `readings` describes the columns.
"""

from datetime import UTC, datetime
from typing import Final

import polars as pl

from pipelines.connect.prometheus.readings import HOUR_S, READING

MEANS: Final = {
    "power_w": "power_w",
    "temp_c": "temp_c",
    "sm_clock_mhz": "sm_clock_mhz",
    "mem_clock_mhz": "mem_clock_mhz",
}
PEAKS: Final = {"power_w": "power_max_w", "temp_c": "temp_max_c"}
"""Columns of `environment` by measure."""

MACHINE: Final = ("place",)
DEVICE: Final = ("place", "device")


def named_hosts(readings: pl.DataFrame) -> pl.DataFrame:
    """Return the readings with addresses replaced by the names of the hosts behind them, if node_exporter tells."""
    names = readings.filter(pl.col("measure") == "node_name", pl.col("kind") != "").select("place", name="kind")
    found = readings.join(names.unique("place"), on="place", how="left", maintain_order="left")
    return found.with_columns(place=pl.coalesce("name", "place")).select(*READING)


def machine_usage(readings: pl.DataFrame, hour_s: float) -> pl.DataFrame:
    """Return the busy fractions of each machine in an hour; a GPU counts as much as another, MIG devices not at all."""
    gpus = readings.filter(pl.col("measure") == "gpus", ~pl.col("device").str.contains(".", literal=True))
    each = gpus.group_by(DEVICE).agg(busy=pl.col("total").sum() / pl.col("seconds").sum())
    gpu = each.group_by(MACHINE).agg(gpu_frac=pl.col("busy").mean().clip(0.0, 1.0))
    of_hosts = readings.filter(pl.col("measure").is_in(["cpu_idle", "cpu_all", "mem_free_gib", "mem_all_gib"]))
    sums = of_hosts.group_by(MACHINE).agg(
        _total("cpu_idle"), _total("cpu_all"), _total("mem_free_gib"), _total("mem_all_gib")
    )
    host = sums.select(
        "place",
        cpu_frac=(1.0 - pl.col("cpu_idle") / pl.col("cpu_all")).clip(0.0, 1.0),
        mem_frac=(1.0 - pl.col("mem_free_gib") / pl.col("mem_all_gib")).clip(0.0, 1.0),
    )
    rows = gpu.join(host, on="place", how="full", coalesce=True).filter(pl.col("place") != "")
    known = pl.any_horizontal(pl.col("gpu_frac", "cpu_frac", "mem_frac").is_not_null())
    return rows.filter(known).select(
        pl.col("place").alias("machine"), _start(hour_s), "cpu_frac", "mem_frac", "gpu_frac"
    )


def environment(readings: pl.DataFrame, hour_s: float) -> pl.DataFrame:
    """Return power, temperature, clocks, energy and errors of each GPU in an hour."""
    measured = readings.filter(
        pl.col("measure").is_in([*MEANS, "energy_w", "xid"]), pl.col("place") != "", pl.col("device") != ""
    )
    rows = measured.group_by(DEVICE).agg(
        pl.col("kind").max(),
        *(_mean(measure).alias(column) for measure, column in MEANS.items()),
        *(_peak(measure).alias(column) for measure, column in PEAKS.items()),
        drawn_w=pl.coalesce(_mean("energy_w"), _mean("power_w")),
        drawn_s=pl.coalesce(_seconds("energy_w"), _seconds("power_w")),
        xid_code=_peak("xid"),
        xid_changes=_total("xid"),
        seconds=pl.col("seconds").max().clip(upper_bound=HOUR_S),
    )
    return rows.select(
        _start(hour_s),
        *MEANS.values(),
        *PEAKS.values(),
        "xid_code",
        "xid_changes",
        machine="place",
        device="device",
        gpu_type=pl.when(pl.col("kind") != "").then("kind"),
        energy_j=pl.col("drawn_w") * pl.col("drawn_s"),
        coverage_frac=pl.col("seconds") / HOUR_S,
    )


def _start(hour_s: float) -> pl.Expr:
    return pl.lit(datetime.fromtimestamp(hour_s, UTC)).alias("ts")


def _of(measure: str, column: str) -> pl.Expr:
    return pl.col(column).filter(pl.col("measure") == measure)


def _total(measure: str) -> pl.Expr:
    """Return the expression of a measure's sum; null without a reading."""
    values = _of(measure, "total")
    return pl.when(values.len() > 0).then(values.sum()).alias(measure)


def _mean(measure: str) -> pl.Expr:
    """Return the expression of a measure's mean over time; null without a reading."""
    seconds = _of(measure, "seconds").sum()
    return pl.when(seconds > 0).then(_of(measure, "total").sum() / seconds)


def _peak(measure: str) -> pl.Expr:
    return _of(measure, "peak").max()


def _seconds(measure: str) -> pl.Expr:
    """Return the expression of the seconds of a measure in its hour; null without a reading."""
    seconds = _of(measure, "seconds").sum().clip(upper_bound=HOUR_S)
    return pl.when(seconds > 0).then(seconds)
