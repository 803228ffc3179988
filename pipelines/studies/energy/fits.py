"""Study of fits: errors of the models of GPU speed and power on measured tables, with claims, charts and notes.

Models by core frequency are tested in `frequency_fits`, models by power limit and by GPU count in this module. Called
by `taut study energy-fits`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from pipelines.studies.energy.frequency_fits import (
    POWERS,
    energy_over_frequency,
    errors_of_fits,
    held_out_rows,
    workload_rows,
)
from pipelines.studies.energy.measured import (
    SETTING,
    frequency_table,
    gavel_throughputs,
    gpus_per_node,
    power_limits,
    scaling_model,
    step_times,
)
from pipelines.studies.study import Context, Findings, Row, Study, energy_option
from scheduler_core.planning.power_limit import fit_power_limit
from scheduler_core.planning.scaling import ScalingModel, scaling_error
from scheduler_core.types import FloatArray

PUBLISHED: Final = {"time_error_pct": 2.3, "power_cubic_pct": 1.3}
"""Mean errors in percent that the PowerFlow paper (arXiv 2304.06381) gives for the same tables."""

PUBLISHED_SAVING_PCT: Final = (13.0, 39.0)
PUBLISHED_SLOWER_PCT: Final = (0.0, 53.0)
PUBLISHED_MHZ: Final = (885.0, 1080.0)
"""Ranges that the PowerFlow paper gives: energy saving and slowdown at the frequency of least energy, and this
frequency itself for most workloads."""

LAST_DIGIT: Final = 0.05
"""Maximum rounding error of a value published with one decimal."""

HIDDEN: Final = 0.5
"""Maximum rounding error of a value published in whole percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the `energy-fits` study."""

    energy: Path | None = energy_option()


def run(config: Config, context: Context) -> Findings:
    """Fit all models to the tables of the energy folder, and compute their errors.

    Raises
    ------
    SourceError
        If a table is missing or not in the expected format.
    """
    folder = config.energy or context.energy
    table, steps = frequency_table(folder), step_times(folder)
    each, scaling = workload_rows(table), scaling_rows(steps)
    tables = {
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
        claims=claim_rows(each),
        tables=tables,
        frames={"frequency": table},
        charts={
            "energy_over_frequency": lambda: energy_over_frequency(table, of),
            "errors_of_fits": lambda: errors_of_fits(pl.DataFrame(each), [of[0], "means of absolute relative errors"]),
        },
        notes=_notes(steps),
    )


def claim_rows(each: list[Row]) -> list[Row]:
    """Compare errors and savings of the frequency models with those in the PowerFlow paper for the same tables."""
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
    """Return a row per node type and GPU count: number of measured jobs, and their speed-up relative to one GPU."""
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


LEAST_LIMITS: Final = 3
"""Minimum number of power limits of a setting, so that an inner one can be held out."""


def limit_rows(table: pl.DataFrame) -> list[Row]:
    """Return a row per GPU type: errors at held-out power limits, saving and slowdown at the limits of least energy.

    Each inner limit is held out once. Savings are relative to the highest measured limit and averaged over the settings
    (training jobs) that have at least `LEAST_LIMITS` limits.
    """
    rows: list[Row] = []
    for (gpu_type,), of_type in table.group_by("gpu_type", maintain_order=True):
        settings = [
            tuple(rows_of.sort("limit_w")[name].to_numpy() for name in ("limit_w", "epoch_s", "watts"))
            for _, rows_of in of_type.group_by(*SETTING, maintain_order=True)
        ]
        full = [columns for columns in settings if len(columns[0]) >= LEAST_LIMITS]
        errors = np.array([error for columns in full for error in _held_out(*columns)])
        saved, slower, best = np.array([_best(*columns) for columns in full]).T
        rows.append(
            {
                "gpu_type": gpu_type,
                "settings": len(settings),
                "judged": len(full),
                "over_limit": int((of_type["watts"] > of_type["limit_w"]).sum()),
                "held_out": len(errors),
                "time_error_pct": float(errors[:, 0].mean()),
                "time_worst_pct": float(errors[:, 0].max()),
                "power_error_pct": float(errors[:, 1].mean()),
                "power_worst_pct": float(errors[:, 1].max()),
                "optimal_limit_w": float(np.median(best)),
                "saving_pct": float(saved.mean()),
                "slower_pct": float(slower.mean()),
            }
        )
    return rows


def _held_out(limits: FloatArray, seconds: FloatArray, watts: FloatArray) -> list[tuple[float, float]]:
    """Return the errors in percent of time and watts at each inner limit, interpolated from the other limits."""
    errors = []
    for out in range(1, len(limits) - 1):
        model = fit_power_limit(*(np.delete(each, out) for each in (limits, seconds, watts)))
        time, power = float(model.epoch_s(limits[out])) / seconds[out], float(model.watts(limits[out])) / watts[out]
        errors.append((100.0 * abs(time - 1.0), 100.0 * abs(power - 1.0)))
    return errors


def _best(limits: FloatArray, seconds: FloatArray, watts: FloatArray) -> tuple[float, float, float]:
    """Return energy saving and slowdown in percent at the limit with the least energy, and that limit in watts."""
    model = fit_power_limit(limits, seconds, watts)
    best = int(np.argmax(limits == model.optimal_limit_w()))
    energy = seconds * watts
    return 100.0 * (1.0 - energy[best] / energy[-1]), 100.0 * (seconds[best] / seconds[-1] - 1.0), limits[best]


LEAST_COUNTS = 3
"""Minimum number of GPU counts of an application: one is held out, and two are left to fit a slope."""


def scaling_rows(steps: pl.DataFrame) -> list[Row]:
    """Return a row per application and cluster: the error of its scaling model, and errors at held-out GPU counts.

    `largest_error_pct` is the error at the largest count of a model fitted to all smaller counts. Errors are None if
    any row of the application on the cluster is suspect (see `measured.step_times`).
    """
    nodes = {
        str(cluster): gpus_per_node(rows) for (cluster,), rows in steps.filter(~pl.col("suspect")).group_by("cluster")
    }
    rows: list[Row] = []
    for (application, cluster), measured in steps.group_by("application", "cluster", maintain_order=True):
        said = {
            "application": application,
            "cluster": cluster,
            "rows": len(measured),
            "suspect": int(measured["suspect"].sum()),
            "counts": measured["gpus"].n_unique(),
        }
        on_a_node = nodes.get(str(cluster), 1)
        rows.append({**said, **(_nothing() if measured["suspect"].any() else _judged(measured, on_a_node))})
    return sorted(rows, key=lambda row: (str(row["application"]), str(row["cluster"])))


def _judged(measured: pl.DataFrame, on_a_node: int) -> Row:
    """Return the errors in percent of the scaling model of one application on one cluster."""
    model = scaling_model(measured, on_a_node)
    counts = measured["gpus"].unique().sort().to_list()
    out: list[float] = []
    if len(counts) >= LEAST_COUNTS:
        for count in counts:
            at = pl.col("gpus") == count
            out.append(_error_pct(scaling_model(measured.filter(~at), on_a_node), measured.filter(at)))
    return {
        "gamma": model.gamma,
        "error_pct": _error_pct(model, measured),
        "held_out_error_pct": float(np.mean(out)) if out else None,
        "held_out_worst_pct": float(np.max(out)) if out else None,
        "largest_error_pct": out[-1] if out else None,
    }


def _nothing() -> Row:
    return dict.fromkeys(("gamma", "error_pct", "held_out_error_pct", "held_out_worst_pct", "largest_error_pct"))


def _error_pct(model: ScalingModel, rows: pl.DataFrame) -> float:
    columns = (rows[name].to_numpy() for name in ("gpus", "nodes", "batch_per_gpu", "step_s"))
    return 100.0 * scaling_error(model, *columns)


ENERGY_FITS: Final = Study(name="energy-fits", config=Config, run=run)
