"""Every model made of measured tables, judged: tables of rows, claims held to the reference, charts, notes.

The judging itself is in `frequency_fits`, `scaling_fits` and `limit_fits`. Called by `taut experiment energy-fits`.
"""

from pathlib import Path
from typing import Final

import polars as pl

from pipelines.studies.energy.energy_fits import energy_over_frequency, errors_of_fits
from pipelines.studies.energy.frequency_fits import POWERS, held_out_rows, workload_rows
from pipelines.studies.energy.limit_fits import limit_rows
from pipelines.studies.energy.measured import frequency_table, gavel_throughputs, power_limits, step_times
from pipelines.studies.energy.scaling_fits import scaling_rows
from pipelines.studies.study import Findings, Row

PUBLISHED: Final = {"time_error_pct": 2.3, "power_cubic_pct": 1.3}
"""Mean errors that the reference gives for the same tables."""

PUBLISHED_SAVING_PCT: Final = (13.0, 39.0)
PUBLISHED_SLOWER_PCT: Final = (0.0, 53.0)
PUBLISHED_MHZ: Final = (885.0, 1080.0)
"""Where most workloads have their frequency of least energy, by the reference; above, what it saves and costs."""

LAST_DIGIT: Final = 0.05
"""What rounding to a digit behind the point hides."""

HIDDEN: Final = 0.5
"""What rounding of published percents to whole numbers hides."""


def found(folder: Path) -> Findings:
    """Judge every model made of the folder's tables.

    Raises
    ------
    SourceError
        If a table is absent or cannot be meant.
    """
    table, steps = frequency_table(folder), step_times(folder)
    each, scaling = workload_rows(table), scaling_rows(steps)
    tables = {
        "claims": claim_rows(each),
        "frequency": each,
        "frequency, held out": held_out_rows(table),
        "scaling": scaling,
        "power limit": limit_rows(power_limits(folder)),
        "node types": node_type_rows(gavel_throughputs(folder)),
    }
    of = [
        f"{len(each)} workloads on a V100 at {table['frequency_mhz'].n_unique()} core frequencies, one GPU each",
        "lines: as measured; circles: the step of least energy as measured",
    ]
    return Findings(
        study="energy-fits",
        trace="measured",
        tables=tables,
        frames={"frequency": table},
        charts={
            "energy_over_frequency": lambda: energy_over_frequency(table, of),
            "errors_of_fits": lambda: errors_of_fits(pl.DataFrame(each), [of[0], "means of absolute relative errors"]),
        },
        notes=_notes(steps),
    )


def claim_rows(each: list[Row]) -> list[Row]:
    """Hold the frequency models to what the reference says of the same tables."""
    frame = pl.DataFrame(each, infer_schema_length=None)
    means = {name: _mean(frame, name) for name in ("time_error_pct", *(f"power_{form}_pct" for form in POWERS))}
    powers = {form: means[f"power_{form}_pct"] for form in POWERS}
    inside = frame.filter(pl.col("optimal_mhz").is_between(*PUBLISHED_MHZ))
    rows = [
        _claim(
            f"{name}, mean over workloads",
            f"at most {bar} to its last digit (as published)",
            f"{means[name]:.2f}",
            means[name] < bar + LAST_DIGIT,
        )
        for name, bar in PUBLISHED.items()
    ]
    told = ", ".join(f"{form} {value:.2f}" for form, value in powers.items())
    rows.append(
        _claim("watts follow the cube", "least error in percent", told, min(powers, key=powers.__getitem__) == "cubic")
    )
    low, high = PUBLISHED_MHZ
    share = f"{len(inside)} of {len(frame)}"
    rows.append(_claim("step of least energy", f"mostly {low:g} to {high:g} MHz", share, 2 * len(inside) > len(frame)))
    for name, (lower, upper) in {"saving_pct": PUBLISHED_SAVING_PCT, "slower_pct": PUBLISHED_SLOWER_PCT}.items():
        lowest, highest = (float(value) for value in frame.select(low=pl.min(name), high=pl.max(name)).row(0))
        same = abs(lowest - lower) <= HIDDEN and abs(highest - upper) <= HIDDEN
        rows.append(_claim(f"{name} there", f"{lower:g} to {upper:g}", f"{lowest:.1f} to {highest:.1f}", same))
    return rows


def node_type_rows(speeds: pl.DataFrame) -> list[Row]:
    """Return what is measured of each node type and GPU count: jobs, and how much faster than one GPU they are."""
    keys = ["model", "batch", "gpu_type", "consolidated"]
    single = speeds.filter(pl.col("gpus") == 1).select(*keys, one="steps_per_s")
    gains = speeds.join(single, on=keys, nulls_equal=True).with_columns(gain=pl.col("steps_per_s") / pl.col("one"))
    found = gains.group_by("gpu_type", "consolidated", "gpus").agg(
        jobs=pl.len(), faster_median=pl.col("gain").median(), slower_than_one=(pl.col("gain") < 1.0).sum()
    )
    return found.sort("gpu_type", "consolidated", "gpus").to_dicts()


def _notes(steps: pl.DataFrame) -> tuple[str, ...]:
    suspect = steps.filter(pl.col("suspect"))
    of = ", ".join(sorted(set(suspect["application"].to_list()))) or "none"
    return (
        f"{len(suspect)} of {len(steps)} rows of step times say that a step takes no longer than its synchronising "
        f"(application: {of}); no model is made of an application on a cluster with such rows",
        "errors are means of absolute relative errors; fits are least squares of relative errors",
        "node types: steps/s against one GPU at the same batch on each; K80 is left out, its watts were not measured",
    )


def _claim(claim: str, bar: str, measured: str, met: bool) -> Row:  # the verdict of the row
    return {"claim": claim, "bar": bar, "measured": measured, "verdict": "met" if met else "missed"}


def _mean(frame: pl.DataFrame, name: str) -> float:
    return float(frame.select(pl.mean(name)).item())
