"""Fold readings into rows of the tables `usage`, `machine_usage` and `environment`, and counts of jobs without use.

Pure. `readings` describes the columns.

Notes
-----
A job's use is summed over its machines and GPUs, then divided by its instances; if places are pods, each pod is an
instance. Peaks of GPUs and machines are added, so a peak is at least the true peak of the sum. Coverage is measured
time over run time, of the GPU or machine with the lowest coverage. A requested GPU or machine without samples has
coverage 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import polars as pl

from pipelines.connect.prometheus.readings import HOUR_S, READING

LEAST_COVERAGE: Final = 0.8
"""Below this share of the run time, a measure is left out."""

OVERLAP_S: Final = 60.0
"""Two jobs share a GPU if their runs on it overlap by more than these seconds; less may be a difference of clocks."""

MEANS: Final = {
    "cpu_cores": "used_cpu_cores",
    "gpus": "used_gpus",
    "mem_gib": "mem_avg_gib",
    "gpu_mem_gib": "gpu_mem_avg_gib",
}
PEAKS: Final = {"mem_gib": "mem_max_gib", "gpu_mem_gib": "gpu_mem_max_gib"}
"""Columns of `usage` by measure."""

OF_GPUS: Final = ("gpus", "gpu_mem_gib")
OF_PODS: Final = ("owner", "label")
"""Measures that name the job of a pod, and are no use; the first is more specific."""

PLACE: Final = ["at", "measure", "place"]

GPU_MEANS: Final = {
    "power_w": "power_w",
    "temp_c": "temp_c",
    "sm_clock_mhz": "sm_clock_mhz",
    "mem_clock_mhz": "mem_clock_mhz",
}
GPU_PEAKS: Final = {"power_w": "power_max_w", "temp_c": "temp_max_c"}
"""Columns of `environment` by measure."""

MACHINE: Final = ("place",)
DEVICE: Final = ("place", "device")


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Rows of `usage`, and the number of jobs by outcome."""

    usage: pl.DataFrame
    counts: Mapping[str, int]


def fold(readings: pl.DataFrame, jobs: pl.DataFrame, *, by_pod: bool, margin_s: float = 0.0) -> Folded:
    """Return the use of jobs from readings with the column `hour_s`.

    `jobs` has one row per ended job: `at` (its number), `job_id`, `role`, `start_s`, `end_s`, `elapsed_s`, `instances`,
    `req_gpus`, `nodes`. `margin_s` is left out at both ends of a run.
    """
    matched = matched_jobs(readings, jobs, by_pod=by_pod)
    unshared = without_shared(matched)
    of_jobs = of_places(unshared).join(jobs, on="at")
    elapsed = (pl.col("elapsed_s") - 2 * margin_s).clip(lower_bound=1.0)
    rows = (_of_pods if by_pod else _of_parts)(of_jobs.with_columns(elapsed_s=elapsed))
    covered = rows.filter(pl.col("coverage") >= LEAST_COVERAGE)
    usage = _wide(covered).join(jobs.select("at", "job_id", "role"), on="at").drop("at").sort("job_id", "role")
    seen, kept = set(matched["at"]), set(covered["at"])
    counts = {
        "jobs": jobs.height,
        "measured": len(kept),
        "no_series": jobs.height - len(seen),
        "only_shared_gpus": len(seen - set(rows["at"])),
        "low_coverage": len(set(rows["at"]) - kept),
    }
    return Folded(usage=usage, counts=counts)


def matched_jobs(readings: pl.DataFrame, jobs: pl.DataFrame, *, by_pod: bool) -> pl.DataFrame:
    """Return the readings of known jobs in the hours of their runs, with the job's number `at`.

    A pod belongs to the job named by the pod, its owner or its labels, with or without the namespace. Runs of a
    requeued job (`68@1700000000`) get the readings of `68`. An hour in which two of its runs fall belongs to neither
    run.
    """
    measured = readings.filter(pl.col("job") != "", ~pl.col("measure").is_in([*OF_PODS, "node_name"]))
    known = jobs.select("at", "job_id", "start_s", "end_s")
    if not by_pod:
        found = measured.join(known.with_columns(job=pl.col("job_id").str.replace(r"@[0-9]+$", "")), on="job")
    else:
        names = _names_of_pods(readings)
        found = measured.join(names, on="job").join(known, left_on="name", right_on="job_id")
        found = found.sort("rank").filter(pl.col("rank") == pl.col("rank").min().over("measure", "job", "hour_s"))
        found = found.with_columns(place=pl.col("job")).drop("name", "rank")
    touches = (pl.col("hour_s") < pl.col("end_s")) & (pl.col("hour_s") + HOUR_S > pl.col("start_s"))
    one_run = pl.col("at").n_unique().over("measure", "job", "place", "device", "hour_s") == 1
    return found.filter(touches).filter(one_run)


def _names_of_pods(readings: pl.DataFrame) -> pl.DataFrame:
    """Return the names of jobs that a pod (`job`, as namespace/pod) may belong to, the most specific first."""
    pods = readings.filter(pl.col("job") != "").select("job").unique()
    space, pod = pl.col("job").str.extract("^([^/]*)/", 1), pl.col("job").str.extract("/(.*)$", 1)
    names = [pl.col("job"), pod]
    for measure in OF_PODS:
        found = readings.filter(pl.col("measure") == measure).sort("kind").unique("job", keep="first")
        pods = pods.join(found.select("job", pl.col("kind").alias(measure)), on="job", how="left")
        names += [pl.concat_str(space, pl.lit("/"), measure), pl.col(measure)]
    named = pods.select("job", pl.concat_list(names).alias("name"))
    ranked = named.with_columns(rank=pl.int_ranges(0, len(names))).explode("name", "rank")
    return ranked.drop_nulls().unique(["job", "name"], keep="first", maintain_order=True)


def without_shared(matched: pl.DataFrame) -> pl.DataFrame:
    """Leave out GPUs of jobs that ran at the same time on the same GPU: their exporter measures only the sum."""
    held = matched.filter(pl.col("measure").is_in(OF_GPUS)).select("at", "place", "device", "start_s", "end_s").unique()
    order = held.sort("place", "device", "start_s", "at")
    on = ["place", "device"]
    ended_before = pl.col("end_s").cum_max().shift(1).over(on)
    starts_next = pl.col("start_s").shift(-1).over(on)
    overlap = (ended_before > pl.col("start_s") + OVERLAP_S) | (starts_next + OVERLAP_S < pl.col("end_s"))
    shared = order.filter(overlap.fill_null(value=False)).select("at").unique()
    return matched.filter(~(pl.col("measure").is_in(OF_GPUS) & pl.col("at").is_in(shared["at"].implode())))


def of_places(matched: pl.DataFrame) -> pl.DataFrame:
    """Return per job, measure and place: mean, peak, seconds (of the GPU covered least) and number of GPUs."""
    in_hour = pl.col("seconds").clip(upper_bound=HOUR_S)  # more, if two servers scrape the same exporter
    each = matched.group_by(*PLACE, "device").agg(
        mean=pl.col("total").sum() / pl.col("seconds").sum(), seconds=in_hour.sum(), peak=pl.col("peak").max()
    )
    return each.group_by(PLACE).agg(
        pl.col("mean", "peak").sum(), pl.col("seconds").min(), pl.len().cast(pl.Float64).alias("devices")
    )


def _of_parts(places: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of jobs whose places are machines: parts of all instances together."""
    of_gpus, instances = pl.col("measure").is_in(OF_GPUS), pl.col("instances")
    rows = places.group_by("at", "measure").agg(
        pl.col("mean", "devices").sum(),
        pl.col("seconds").min(),
        pl.col("elapsed_s", "instances", "req_gpus", "nodes").first(),
        added=pl.col("peak").sum(),
        largest=pl.col("peak").max(),
        places=pl.len(),
    )
    expected = pl.when(of_gpus).then((pl.col("req_gpus") * instances).ceil()).otherwise(pl.col("nodes"))
    return rows.select(
        "at",
        "measure",
        mean=pl.col("mean") / instances,
        peak=pl.when(instances == 1).then("added").otherwise(pl.col("largest") * pl.col("places") / instances),
        coverage=_share(pl.col("seconds"), pl.col("elapsed_s"))
        * _share(pl.when(of_gpus).then("devices").otherwise("places"), expected),
        instances_measured=instances,
    )


def _of_pods(places: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of jobs whose places are pods; each pod is one instance, and may replace an earlier pod."""
    of_gpus, seconds = pl.col("measure").is_in(OF_GPUS), pl.col("seconds")
    return (
        places.group_by("at", "measure")
        .agg(
            pl.col("peak").max(),
            seconds.sum(),
            pl.col("devices").min(),
            pl.col("elapsed_s", "instances", "req_gpus").first(),
            mean=(pl.col("mean") * seconds).sum() / seconds.sum(),
            instances_measured=pl.len(),
        )
        .with_columns(
            coverage=_share(seconds, pl.col("elapsed_s") * pl.col("instances"))
            * pl.when(of_gpus).then(_share(pl.col("devices"), pl.col("req_gpus").ceil())).otherwise(1.0)
        )
    )


def _share(found: pl.Expr, expected: pl.Expr) -> pl.Expr:
    """Return the expression of the measured share of an expected amount, at most 1; 1 without an expected amount."""
    return pl.when(expected > found).then(found / expected).otherwise(1.0)


def _wide(rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row per job with the columns of `usage`."""

    def of(measure: str, value: str) -> pl.Expr:
        return pl.col(value).filter(pl.col("measure") == measure).first()

    wide = rows.group_by("at").agg(
        *(of(measure, "mean").alias(column) for measure, column in MEANS.items()),
        *(of(measure, "peak").alias(column) for measure, column in PEAKS.items()),
        high_water_gib=of("mem_peak_gib", "peak"),
        instances_measured=pl.col("instances_measured").max(),
        coverage_frac=pl.col("coverage").min(),
    )
    return wide.with_columns(mem_max_gib=pl.max_horizontal("mem_max_gib", "high_water_gib")).drop("high_water_gib")


def named_hosts(readings: pl.DataFrame) -> pl.DataFrame:
    """Return the readings with addresses replaced by host names, where node_exporter has them."""
    names = readings.filter(pl.col("measure") == "node_name", pl.col("kind") != "").select("place", name="kind")
    found = readings.join(names.unique("place"), on="place", how="left", maintain_order="left")
    return found.with_columns(place=pl.coalesce("name", "place")).select(*READING)


def machine_usage(readings: pl.DataFrame, hour_s: float) -> pl.DataFrame:
    """Return the busy fractions of each machine in an hour; all GPUs weigh the same, MIG devices do not count."""
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
        pl.col("measure").is_in([*GPU_MEANS, "energy_w", "xid"]), pl.col("place") != "", pl.col("device") != ""
    )
    rows = measured.group_by(DEVICE).agg(
        pl.col("kind").max(),
        *(_mean(measure).alias(column) for measure, column in GPU_MEANS.items()),
        *(_peak(measure).alias(column) for measure, column in GPU_PEAKS.items()),
        drawn_w=pl.coalesce(_mean("energy_w"), _mean("power_w")),
        drawn_s=pl.coalesce(_seconds("energy_w"), _seconds("power_w")),
        xid_code=_peak("xid"),
        xid_changes=_total("xid"),
        seconds=pl.col("seconds").max().clip(upper_bound=HOUR_S),
    )
    return rows.select(
        _start(hour_s),
        *GPU_MEANS.values(),
        *GPU_PEAKS.values(),
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
