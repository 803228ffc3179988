"""Errors of the frequency models on fitted and held-out measurements, savings at the best frequency, and charts.

Models are fitted in `scheduler_core.planning.frequency`. Called by `fits`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import altair as alt
import numpy as np
import polars as pl

from pipelines.report.charts.looks import BLACK, BLUE, GREEN, VERMILLION, titled
from pipelines.studies.study import Row
from scheduler_core.planning.frequency import FrequencyModel, fit_frequency, line, mean_error
from scheduler_core.types import BoolArray, FloatArray

POWERS: Final = {"cubic": 3, "square": 2, "linear": 1}
"""Exponent of the frequency in each of the compared power models."""

Columns = tuple[FloatArray, FloatArray, FloatArray]
"""Frequencies in MHz (ascending), speeds, and watts of one workload."""

Told = tuple[FrequencyModel, BoolArray]
"""A model, and a mask of the frequencies that it was not fitted to."""


def workloads(table: pl.DataFrame) -> list[tuple[str, Columns]]:
    """Return each workload's name and columns, in the order of the table."""
    found: list[tuple[str, Columns]] = []
    for (name,), rows in table.group_by("workload", maintain_order=True):
        mhz, perf, watts = (
            rows.sort("frequency_mhz")[column].to_numpy() for column in ("frequency_mhz", "perf", "watts")
        )
        found.append((str(name), (mhz, perf, watts)))
    return found


def workload_rows(table: pl.DataFrame) -> list[Row]:
    """Return a row per workload: its model, the model's errors, and measured saving and slowdown at two frequencies.

    Columns without prefix are at the frequency with the least measured energy, `told_` columns at the frequency with
    the least modelled energy.
    """
    rows: list[Row] = []
    for name, (mhz, perf, watts) in workloads(table):
        model = fit_frequency(mhz, perf, watts)
        energy = watts / perf / (watts[-1] / perf[-1])
        best, told = int(np.argmin(energy)), int(np.argmax(mhz == model.optimal_mhz()))
        rows.append(
            {
                "workload": name,
                "a": model.a,
                "b_mhz": model.b_mhz,
                "p0_w": model.p0_w,
                "c_w_per_mhz3": model.c_w_per_mhz3,
                "time_error_pct": 100.0 * mean_error(model.time_ratio(mhz), 1.0 / perf),
                **{f"power_{form}_pct": power_error_pct(mhz, watts, exponent) for form, exponent in POWERS.items()},
                "optimal_mhz": float(mhz[best]),
                "saving_pct": 100.0 * float(1.0 - energy[best]),
                "slower_pct": 100.0 * float(perf[-1] / perf[best] - 1.0),
                "told_mhz": float(mhz[told]),
                "told_saving_pct": 100.0 * float(1.0 - energy[told]),
                "told_slower_pct": 100.0 * float(perf[-1] / perf[told] - 1.0),
            }
        )
    return rows


def power_error_pct(mhz: FloatArray, watts: FloatArray, exponent: int) -> float:
    """Return the mean error in percent of a model of the watts that is linear in frequency ** exponent."""
    intercept, slope = line(mhz**exponent, watts)
    return 100.0 * mean_error(intercept + slope * mhz**exponent, watts)


def held_out_rows(table: pl.DataFrame) -> list[Row]:
    """Return a row per way of fitting: errors of the models at frequencies that they were not fitted to.

    `energy_lost_pct` is the additional energy of a job at the frequency with the least modelled energy, compared with
    the frequency with the least measured energy.
    """
    known = workloads(table)
    models = [fit_frequency(*columns) for _, columns in known]
    rows: list[Row] = []
    for what, models_of in FITTED_TO.items():
        errors, lost = [], []
        for at, (_, columns) in enumerate(known):
            for model, unseen in models_of(columns, [*models[:at], *models[at + 1 :]]):
                errors.append(_errors_pct(model, columns, unseen))
                lost.append(_energy_lost_pct(model, columns))
        (time, power), (time_worst, power_worst) = np.mean(errors, axis=0).tolist(), np.max(errors, axis=0).tolist()
        rows.append(
            {
                "fitted_to": what,
                "fits": len(errors),
                "time_error_pct": time,
                "time_worst_pct": time_worst,
                "power_error_pct": power,
                "power_worst_pct": power_worst,
                "energy_lost_pct": float(np.mean(lost)),
                "energy_lost_worst_pct": float(np.max(lost)),
            }
        )
    return rows


def all_but_one(columns: Columns, _: Sequence[FrequencyModel]) -> Iterator[Told]:
    """Yield models fitted to all frequencies but one; the highest, the reference of speeds, is never left out."""
    for out in range(len(columns[0]) - 1):
        unseen = np.arange(len(columns[0])) == out
        yield _fitted(columns, ~unseen), unseen


def every_second(columns: Columns, _: Sequence[FrequencyModel]) -> Iterator[Told]:
    """Yield the model fitted to every second frequency, from the highest down."""
    seen = (np.arange(len(columns[0])) - len(columns[0]) + 1) % 2 == 0
    yield _fitted(columns, seen), ~seen


def upper_half(columns: Columns, _: Sequence[FrequencyModel]) -> Iterator[Told]:
    """Yield the model fitted to the upper half of the frequencies, which extrapolates to the lower half."""
    seen = np.arange(len(columns[0])) >= len(columns[0]) // 2
    yield _fitted(columns, seen), ~seen


def both_ends(columns: Columns, _: Sequence[FrequencyModel]) -> Iterator[Told]:
    """Yield the model fitted to the lowest and the highest frequency."""
    seen = np.isin(np.arange(len(columns[0])), (0, len(columns[0]) - 1))
    yield _fitted(columns, seen), ~seen


def other_workloads(columns: Columns, others: Sequence[FrequencyModel]) -> Iterator[Told]:
    """Yield the mean of the other workloads' models, scaled to this workload's power at the highest frequency."""
    mhz, _, watts = columns
    top = others[0].reference_mhz
    time = np.mean([[model.a, model.b_mhz] / model.time_ratio(top) for model in others], axis=0)
    power = np.mean([[model.p0_w, model.c_w_per_mhz3] / model.watts(top) for model in others], axis=0) * watts[-1]
    told = FrequencyModel(
        steps_mhz=tuple(mhz.tolist()),
        reference_mhz=top,
        a=float(time[0]),
        b_mhz=float(time[1]),
        p0_w=float(power[0]),
        c_w_per_mhz3=float(power[1]),
    )
    yield told, np.arange(len(mhz)) < len(mhz) - 1


FITTED_TO: Final[dict[str, Callable[[Columns, Sequence[FrequencyModel]], Iterator[Told]]]] = {
    "its other steps": all_but_one,
    "its every second step": every_second,
    "its upper half of steps": upper_half,
    "its lowest and highest step": both_ends,
    "other workloads, and its watts at the highest step": other_workloads,
}
"""Ways to fit models of a workload, by the data used; each takes its columns and the models of all other workloads."""


def _fitted(columns: Columns, seen: BoolArray) -> FrequencyModel:
    mhz, perf, watts = (column[seen] for column in columns)
    return fit_frequency(mhz, perf, watts, reference_mhz=float(columns[0][-1]))


def _errors_pct(model: FrequencyModel, columns: Columns, at: BoolArray) -> tuple[float, float]:
    mhz, perf, watts = (column[at] for column in columns)
    return 100.0 * mean_error(model.time_ratio(mhz), 1.0 / perf), 100.0 * mean_error(model.watts(mhz), watts)


def _energy_lost_pct(model: FrequencyModel, columns: Columns) -> float:
    mhz, perf, watts = columns
    energy, told = watts / perf, model.watts(mhz) * model.time_ratio(mhz)
    return 100.0 * float(energy[int(np.argmin(told))] / energy.min() - 1.0)


FORMS: Final = {
    "time_error_pct": "time, a + b/f",
    "power_cubic_pct": "watts, p0 + c·f³",
    "power_square_pct": "watts, p0 + c·f²",
    "power_linear_pct": "watts, p0 + c·f",
}
"""Fitted quantity and formula of each error column, for the chart."""

COLOURS: Final = (BLACK, BLUE, GREEN, VERMILLION)
WIDTH, HEIGHT = 330, 260


def energy_over_frequency(table: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw each workload's energy and time per unit of work by frequency, relative to the highest frequency."""
    top = {name: pl.col(name).sort_by("frequency_mhz").last().over("workload") for name in ("perf", "watts")}
    energy = (pl.col("watts") / pl.col("perf")) / (top["watts"] / top["perf"])
    shown = table.with_columns(energy=energy, time=top["perf"] / pl.col("perf")).with_columns(
        best=pl.col("energy") == pl.col("energy").min().over("workload")
    )
    panels = [
        _over_frequency(shown, column, title)
        for column, title in {
            "energy": "energy a unit of work, relative to the highest frequency",
            "time": "time a unit of work, relative to the highest frequency",
        }.items()
    ]
    chart: alt.VConcatChart = alt.vconcat(alt.hconcat(*panels, spacing=30))
    return titled(chart, "Energy and time over a GPU's core frequency", of)


def errors_of_fits(rows: pl.DataFrame, of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the errors of each formula: a mark per workload, and the mean of all workloads as a tick."""
    long = rows.unpivot(list(FORMS), index="workload", variable_name="form", value_name="error_pct").with_columns(
        form=pl.col("form").replace_strict(FORMS)
    )
    names = list(FORMS.values())
    y = alt.Y("form:N").title(None).sort(names).axis(labelLimit=250)
    colour = alt.Color("form:N").scale(domain=names, range=list(COLOURS)).legend(None)
    base = alt.Chart(long)
    layers = alt.layer(
        base.mark_circle(size=55, opacity=0.55).encode(
            x=alt.X("error_pct:Q").title("mean absolute relative error of a workload, % (tick: mean of all)"),
            y=y,
            color=colour,
            tooltip=["workload:N", "error_pct:Q"],
        ),
        base.mark_tick(thickness=3, size=34, color=BLACK).encode(x="mean(error_pct):Q", y=y),
    ).properties(width=2 * WIDTH, height=190)
    return titled(alt.vconcat(layers), "Errors of models of a GPU's time and watts over its core frequency", of)


def _over_frequency(shown: pl.DataFrame, column: str, title: str) -> alt.LayerChart | alt.FacetChart:
    x = alt.X("frequency_mhz:Q").title("core frequency, MHz").scale(zero=False)
    y = alt.Y(f"{column}:Q").title(title).scale(zero=False)
    base = alt.Chart(shown)
    layers = alt.layer(
        base.mark_line(opacity=0.45, color=BLUE, strokeWidth=1.2).encode(x=x, y=y, detail="workload:N"),
        base.transform_filter("datum.best")
        .mark_circle(size=60, color=VERMILLION, opacity=0.9)
        .encode(x=x, y=y, tooltip=["workload:N", "frequency_mhz:Q", f"{column}:Q"]),
    )
    return layers.properties(width=WIDTH, height=HEIGHT)
