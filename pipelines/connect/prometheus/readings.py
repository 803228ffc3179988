"""Read hours of a dialect's measures from a server: per job, machine and GPU the sum over time, seconds and peak.

A mean is `total / seconds`; seconds are samples times the scrape interval. The jobs are joined in `folding`, machines
in `machines`.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import polars as pl

from pipelines.connect.prometheus.dialects import Dialect, Labels, Measure
from pipelines.connect.prometheus.server import Server

HOUR_S: Final = 3600.0
WINDOW: Final = "3599999ms"
"""Range of an hour's samples. A range includes both ends, so a whole hour would count a sample at its end twice."""

RECENT: Final = "3m"
"""Range of the samples that count as present use: three scrapes, one a minute."""

USES: Final = ("cpu_cores", "gpus", "mem_gib", "gpu_mem_gib")
"""Measures of a job's use."""

BLANK: Final = 9.2e18
"""DCGM writes 9223372036854775792 and the numbers above it for values that it cannot read."""

MOST: Final = 1e8
"""Largest mean that is believed, in cores, GPUs, GiB, W or MHz."""

MOST_REPAIRED: Final = 200
"""Maximum number of series of a metric and hour whose samples are read one by one to leave out blank samples."""

AT_ONCE: Final = 2
"""Number of measures that are queried at the same time."""

READING: Final = pl.Schema(
    {
        "measure": pl.String,
        "job": pl.String,
        "place": pl.String,
        "device": pl.String,
        "kind": pl.String,
        "total": pl.Float64,
        "seconds": pl.Float64,
        "peak": pl.Float64,
    }
)
"""Columns of readings: `total` is the value times seconds (the increase of a counter), `peak` the largest sample (for
`Measure.changes`, `total` is the number of changes). Without a job, machine or GPU, their names are ""."""

KEY: Final = ("measure", "job", "place", "device")


def read_hour(server: Server, dialect: Dialect, match: str, hour_s: float) -> pl.DataFrame:
    """Return the readings of an hour from its start in Unix seconds; samples at the start belong to the hour before."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        measured = list(pool.map(lambda each: _measured(server, each, match, hour_s + HOUR_S), dialect.measures))
    return _combined(dialect.measures, measured)


def _combined(measures: Sequence[Measure], parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Return the readings of all measures; a fallback counts only for GPUs without another metric."""
    whole = pl.concat([part for part, each in zip(parts, measures, strict=True) if not each.fallback])
    others = [part for part, each in zip(parts, measures, strict=True) if each.fallback]
    return pl.concat([whole, *(each.join(whole, on=KEY, how="anti") for each in others)]).sort(KEY)


def read_now(server: Server, dialect: Dialect, match: str) -> pl.DataFrame:
    """Return the use of jobs in the last minutes: `job`, `measure` and `value`, the sum over machines and GPUs.

    For memory, `value` is the sum of the largest samples.
    """
    at_s, parts = server.now(), [pl.DataFrame(schema=dict.fromkeys(KEY, pl.String) | {"value": pl.Float64})]
    for each in dialect.measures:
        if each.job and each.name in USES:
            function = "rate" if each.counter else "max_over_time" if each.peak else "avg_over_time"
            ours = ", ".join(each.labels)
            query = f"sum by ({ours}) ({function}({each.selector(match)}[{RECENT}]))"
            named = server.vector(query, at_s, each.labels).select(
                measure=pl.lit(each.name),
                job=_joined(each.job, "/"),
                **_names(each),
                value=pl.col("value") * each.scale,
            )
            sound = named.filter(pl.col("value").is_finite(), pl.col("value").is_between(0.0, MOST)).drop("kind")
            parts.append(sound.join(pl.concat(parts), on=KEY, how="anti") if each.fallback else sound)
    found = pl.concat(parts, how="diagonal").filter(pl.col("job") != "")
    return found.group_by("job", "measure").agg(pl.col("value").sum())


def _measured(server: Server, measure: Measure, match: str, at_s: float) -> pl.DataFrame:
    """Return the readings of a measure in the hour that ends then."""
    selector = measure.selector(match)
    rows = _answers(server, measure, f"{selector}[{WINDOW}]", at_s)
    if rows.is_empty():
        return pl.DataFrame(schema=READING)
    interval_s = _interval_s(server, measure, selector, rows, at_s)
    if not (measure.job or measure.parts) and (rows["count"] * interval_s > HOUR_S + 2 * interval_s).any():
        # Series of several jobs on one GPU repeat its samples: take each once.
        step = f"{round(1000 * interval_s)}ms"
        once = f"max by ({', '.join(measure.labels)}) (last_over_time({selector}[{step}]))"
        rows = _answers(server, measure, f"({once})[{WINDOW}:{step}]", at_s)
    if "peak" not in rows.columns:
        rows = rows.with_columns(peak=pl.lit(None, dtype=pl.Float64))
    weight = 1.0 if measure.counter or measure.changes else interval_s
    rows = rows.with_columns(total=pl.col("total") * weight, seconds=pl.col("count") * interval_s)
    good = _believed(rows, measure)
    if not (measure.counter or measure.parts) and good.height < rows.height:
        good = pl.concat([good, _repaired(server, measure, selector, at_s, interval_s)], how="diagonal")
    return _named(good, measure)


def _answers(server: Server, measure: Measure, ranged: str, at_s: float) -> pl.DataFrame:
    """Return `count`, `total` and perhaps `peak` of the samples in a range by the measure's labels."""
    rows = server.vector(_grouped(measure, "count_over_time", ranged), at_s, measure.labels)
    rows = rows.rename({"value": "count"})
    for name, function in () if rows.is_empty() else _functions(measure):
        found = server.vector(_grouped(measure, function, ranged), at_s, measure.labels)
        rows = rows.join(found.rename({"value": name}), on=measure.labels, how="left")
    return rows


def _functions(measure: Measure) -> tuple[tuple[str, str], ...]:
    """Return the column and the PromQL function of each further query of a measure."""
    total = "increase" if measure.counter else "changes" if measure.changes else "sum_over_time"
    return (("total", total), ("peak", "max_over_time"))[: 1 + measure.peak]


def _grouped(measure: Measure, function: str, ranged: str) -> str:
    """Return the PromQL of a function over a range by the measure's labels.

    The values of parts add up. Their number of samples does not: it is that of the longest part.
    """
    ours = ", ".join(measure.labels)
    inner = f"{function}({ranged})"
    if not measure.parts:
        return f"{'max' if function == 'max_over_time' else 'sum'} by ({ours}) ({inner})"
    each = f"by ({', '.join((*measure.labels, *measure.parts))})"
    if function == "count_over_time":
        return f"max by ({ours}) (sum {each} ({inner}))"
    if function == "max_over_time":
        return f"sum by ({ours}) (max {each} ({inner}))"
    return f"sum by ({ours}) ({inner})"


def _interval_s(server: Server, measure: Measure, selector: str, counts: pl.DataFrame, at_s: float) -> float:
    """Return the scrape interval in seconds of a measure's longest series in the hour; NaN if it has one sample."""
    if measure.parts:
        longest = server.labels(f"topk(1, count_over_time({selector}[{WINDOW}]))", at_s)
    else:
        longest = counts.sort("count", descending=True).head(1).select(measure.labels).to_dicts()
    return interval_of(_samples(server, measure, longest[0], at_s)) if longest else math.nan


def interval_of(samples: pl.DataFrame) -> float:
    """Return the median gap in seconds between neighbouring times of the same series; NaN without two times.

    >>> interval_of(pl.DataFrame({"series": ["a", "a", "b", "b"], "at_s": [0.0, 15.0, 7.0, 22.0]}))
    15.0
    """
    names = [name for name in samples.columns if name not in ("at_s", "value")]
    times = samples.unique([*names, "at_s"]).sort("at_s")
    gaps = times.select(gap=pl.col("at_s").diff().over(names))["gap"].drop_nulls()
    return float(str(gaps.median())) if gaps.len() else math.nan


def samples_of(
    server: Server, measure: Measure, match: str, at_s: float, names: Sequence[str], labels: Sequence[str]
) -> pl.DataFrame:
    """Return the valid samples of an hour that have one of the names in one of the labels, each once.

    The columns are `job`, `place`, `device`, `kind`, `at_s` and the scaled `value`.
    """
    found, left = [], sorted(names)
    for label in labels:  # exporters of another release use another label
        listed = "|".join(re.escape(name) for name in left)
        matcher = json.dumps(f"({listed})(:[0-9]+)?", ensure_ascii=False)
        selector = measure.selector(match, f"{label}=~{matcher}")
        samples = _good_samples(server.samples(f"{selector}[{WINDOW}]", at_s, measure.labels), measure)
        value = pl.col("value") * measure.scale
        found.append(samples.select(job=_joined(measure.job, "/"), **_names(measure), at_s="at_s", value=value))
        left = sorted(set(left) - set(samples[label].str.replace(r":[0-9]+$", "")))
        if not left:
            break
    return pl.concat(found).unique(["job", "place", "device", "at_s"], maintain_order=True)


def _samples(server: Server, measure: Measure, series: Mapping[str, str], at_s: float) -> pl.DataFrame:
    exact = ",".join(f"{name}={json.dumps(text, ensure_ascii=False)}" for name, text in series.items())
    return server.samples(f"{measure.metric}{{{exact}}}[{WINDOW}]", at_s, measure.labels)


def _believed(rows: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    """Return the rows with values that are finite, not negative and not blank, and with a known duration."""
    value = pl.col("peak") if measure.changes else pl.col("total") / pl.col("seconds")
    seconds = pl.col("seconds")
    sound = [value.is_finite() & value.is_between(0.0, MOST / measure.scale), seconds.is_finite() & (seconds > 0.0)]
    if measure.peak:
        sound.append(pl.col("peak").is_finite() & (pl.col("peak") < BLANK) & (pl.col("peak") <= MOST / measure.scale))
    return rows.filter(sound)


def _repaired(server: Server, measure: Measure, selector: str, at_s: float, interval_s: float) -> pl.DataFrame:
    """Return rows of the series with both valid and invalid samples, computed from the valid samples."""
    ranged = f"{selector}[{WINDOW}]"
    mixed = f"max_over_time({ranged}) >= {BLANK} and min_over_time({ranged}) < {BLANK}"
    broken = f"sum_over_time({ranged}) != sum_over_time({ranged})"
    series = server.labels(f"({mixed}) or ({broken})", at_s)[:MOST_REPAIRED]
    read = [_samples(server, measure, each, at_s) for each in series]
    if not read:
        return pl.DataFrame(schema=dict.fromkeys(measure.labels, pl.String))
    value = pl.col("value")
    good = _good_samples(pl.concat(read), measure)
    summed = value.rle_id().max() if measure.changes else value.sum() * interval_s
    return good.group_by(measure.labels).agg(
        total=summed.cast(pl.Float64), seconds=pl.len() * interval_s, peak=value.max()
    )


def _good_samples(samples: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    value = pl.col("value")
    return samples.filter(value.is_finite() & (value >= 0.0) & (value < BLANK) & (value <= MOST / measure.scale))


def _named(rows: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    """Return rows as readings: labels joined to the names of job, place and device, values scaled, sums per name."""
    scaled = rows.select(
        measure=pl.lit(measure.name),
        job=_joined(measure.job, "/"),
        **_names(measure),
        total=pl.col("total") * (1.0 if measure.changes else measure.scale),
        seconds="seconds",
        peak=pl.col("peak") * measure.scale,
    )
    return (
        scaled.group_by(KEY)
        .agg(pl.col("kind").max(), pl.col("total", "seconds").sum(), pl.col("peak").max())
        .select(pl.col(name).cast(kind) for name, kind in READING.items())
    )


def _names(measure: Measure) -> dict[str, pl.Expr]:
    """Return the expressions of the names of machine, GPU and kind; an address loses its port."""
    return {
        "place": _joined(measure.place, "/").str.replace(r":[0-9]+$", ""),
        "device": _joined(measure.device, "."),
        "kind": pl.col(measure.kind) if measure.kind else pl.lit(""),
    }


def _joined(labels: Labels, separator: str) -> pl.Expr:
    """Return the first non-empty label of each group, joined; "" if all labels of the first group are empty."""
    groups = [pl.coalesce(*(pl.when(pl.col(name) != "").then(pl.col(name)) for name in group)) for group in labels]
    if not groups:
        return pl.lit("")
    joined = pl.concat_str(groups, separator=separator, ignore_nulls=True)
    return pl.when(groups[0].is_null()).then(pl.lit("")).otherwise(joined)
