"""Published measurements of GPU speed and power as tidy frames, and the frequency and scaling models fitted to them.

Files are read in `measured_files`; errors of the models are computed in `fits`. Called by the energy, carbon and cost
studies.
"""

import json
import re
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.errors import SourceError
from pipelines.studies.energy.measured_files import found, table, wide
from scheduler_core.planning.frequency import FrequencyModel, fit_frequency
from scheduler_core.planning.scaling import ScalingModel, fit_scaling

FREQUENCY: Final = "frequency(MHz)"
GPU_TYPES: Final = ("a40", "p100", "rtx6000", "v100")
"""GPU types that have a table by power limit."""

SETTING: Final = ("gpu_type", "dataset", "network", "batch", "optimizer")
"""Columns that identify one training job in the tables by power limit; each has its own model."""

NODE_TYPES: Final = {
    name: (gpu_type, consolidated)
    for gpu_type in ("p100", "v100")
    for name, consolidated in ((gpu_type, True), (f"{gpu_type}_unconsolidated", False))
}
"""GPU type, and whether GPUs are on as few nodes as possible, by key of the throughput table. K80 is left out, because
its watts were not measured."""

STEP_COLUMNS: Final[dict[str, tuple[str, type[pl.DataType]]]] = {
    "application": ("application", pl.String),
    "cluster": ("cluster", pl.String),
    "nodes": ("num_nodes", pl.Int64),
    "gpus": ("num_gpus", pl.Int64),
    "batch_per_gpu": ("batch_size_per_gpu", pl.Float64),
    "step_s": ("step_time_s", pl.Float64),
    "sync_s": ("sync_time_s", pl.Float64),
}
"""Column name in the published table and data type, by our column name."""

_JOB: Final = re.compile(r"\('(?P<model>[^('\"]+?)(?: \(batch size (?P<batch>\d+)\))?', (?P<gpus>\d+)\)")


def frequency_table(folder: Path) -> pl.DataFrame:
    """Return a row per workload and frequency of a V100: `workload, frequency_mhz, perf, watts`.

    `perf` is the speed relative to the highest frequency.

    Raises
    ------
    SourceError
        If a file is missing or not in the expected format, or the two files differ in workloads or frequencies.
    """
    perf, watts = (_tidy(folder, f"gpu_frequency/dataset_{name}.csv", name) for name in ("performance", "power"))
    keys = ["workload", "frequency_mhz"]
    odd = pl.concat([perf.join(watts, on=keys, how="anti"), watts.join(perf, on=keys, how="anti")], how="diagonal")
    if len(odd):
        raise SourceError(
            f"dataset_performance.csv and dataset_power.csv differ in {odd.select(keys).row(0)} "
            f"({len(odd)} cells of one without the other); expected the same workloads and frequencies in both"
        )
    joined = perf.join(watts, on=keys, how="inner", maintain_order="left")
    return joined.rename({"performance": "perf", "power": "watts"})


def _tidy(folder: Path, file: str, what: str) -> pl.DataFrame:
    """Read a table with workloads as rows and frequencies as columns; return a row per workload and frequency."""
    workloads, steps, cells = wide(folder, file, FREQUENCY)
    rows = [
        {"workload": name, "frequency_mhz": mhz, what: value}
        for name, values in zip(workloads, cells.rows(), strict=True)
        for mhz, value in zip(steps, values, strict=True)
    ]
    return pl.DataFrame(rows)


def frequency_models(folder: Path) -> dict[str, FrequencyModel]:
    """Return each workload's frequency model by name, in the order of the table."""
    return {
        str(name): fit_frequency(rows["frequency_mhz"].to_numpy(), rows["perf"].to_numpy(), rows["watts"].to_numpy())
        for (name,), rows in frequency_table(folder).group_by("workload", maintain_order=True)
    }


def step_times(folder: Path) -> pl.DataFrame:
    """Return measured step times: `application, cluster, nodes, gpus, batch_per_gpu, step_s, sync_s, suspect`.

    `suspect` marks rows whose step time is not above the synchronising time, although it includes that time.

    Raises
    ------
    SourceError
        If the file is missing or not in the expected format.
    """
    read = table(folder, "throughput/step_time_by_gpu_count.csv", dict(STEP_COLUMNS.values()))
    tidy = read.rename({column: name for name, (column, _) in STEP_COLUMNS.items()})
    return tidy.with_columns(suspect=pl.col("sync_s") >= pl.col("step_s"))


def gpus_per_node(steps: pl.DataFrame) -> int:
    """Return the largest number of GPUs per node in the rows of one cluster."""
    return int((steps["gpus"] / steps["nodes"]).ceil().max() or 1)  # type: ignore[arg-type]  # a number, or None without rows


def scaling_models(folder: Path) -> dict[tuple[str, str], ScalingModel]:
    """Return a scaling model per application and cluster; none where any row is suspect.

    Only one application (`gpt_pmp`) has suspect rows: all on one cluster, and most on the other.
    """
    steps = step_times(folder)
    kept = steps.filter(~pl.col("suspect").any().over("application", "cluster"))
    nodes = {str(cluster): gpus_per_node(rows) for (cluster,), rows in kept.group_by("cluster")}
    return {
        (str(application), str(cluster)): scaling_model(rows, nodes[str(cluster)])
        for (application, cluster), rows in kept.group_by("application", "cluster", maintain_order=True)
    }


def scaling_model(rows: pl.DataFrame, on_a_node: int) -> ScalingModel:
    """Fit a scaling model to the rows of one application and cluster."""
    columns = (rows[name].to_numpy() for name in ("gpus", "nodes", "batch_per_gpu", "step_s", "sync_s"))
    return fit_scaling(*columns, gpus_per_node=on_a_node)


def power_limits(folder: Path) -> pl.DataFrame:
    """Return epoch times by power limit: `gpu_type, dataset, network, batch, optimizer, limit_w, epoch_s, watts`.

    Raises
    ------
    SourceError
        If a file is missing or not in the expected format.
    """
    columns: dict[str, type[pl.DataType]] = {
        "dataset": pl.String,
        "network": pl.String,
        "batch_size": pl.Int64,
        "optimizer": pl.String,
        "power_limit": pl.Float64,
        "time_per_epoch": pl.Float64,
        "average_power": pl.Float64,
    }
    names = {"batch_size": "batch", "power_limit": "limit_w", "time_per_epoch": "epoch_s", "average_power": "watts"}
    read = [
        table(folder, f"gpu_power_limit/summary_power_{gpu_type}.csv", columns)
        .rename(names)
        .select(pl.lit(gpu_type).alias("gpu_type"), pl.all())
        for gpu_type in GPU_TYPES
    ]
    return pl.concat(read)


def gavel_throughputs(folder: Path) -> pl.DataFrame:
    """Return the speeds of jobs that run alone: `model, batch, gpus, gpu_type, consolidated, steps_per_s`.

    `batch` is null for models that were measured with one batch size only. K80 is left out.

    Raises
    ------
    SourceError
        If the file is missing or not in the expected format.
    """
    name = "throughput/gavel_throughputs.json"
    try:
        held = json.loads(found(folder, name).read_bytes())
        rows = [
            {
                **_job(job, name),
                "gpu_type": gpu_type,
                "consolidated": consolidated,
                "steps_per_s": float(speeds["null"]),
            }
            for node, (gpu_type, consolidated) in NODE_TYPES.items()
            for job, speeds in held[node].items()
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{name} is not in its format: {type(error).__name__} {str(error)[:80]}") from error
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if bad := frame.filter(~(pl.col("steps_per_s").is_finite() & (pl.col("steps_per_s") > 0.0))).rows(named=True):
        raise SourceError(f"{name}: {bad[0]} has no speed above zero; expected one ({len(bad)} such rows)")
    return frame


def _job(key: str, name: str) -> dict[str, object]:
    """Parse a job's key in the table, such as `('ResNet-18 (batch size 16)', 1)`, into model, batch and GPUs."""
    told = _JOB.fullmatch(key)
    if told is None:
        raise SourceError(f"{name} names a job {key[:60]!r}, expected the form ('ResNet-18 (batch size 16)', 1)")
    batch = told["batch"]
    return {"model": told["model"], "batch": None if batch is None else int(batch), "gpus": int(told["gpus"])}
