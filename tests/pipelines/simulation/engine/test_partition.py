"""The law of slowdown on a part of a GPU, against programs timed on five sizes; programs are held out whole."""

import math
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.simulation.engine import partition
from scheduler_core.types import FloatArray

ROOT = Path(__file__).parents[4]
TRACES = Path(os.environ.get("TAUT_TRACES", ROOT.parent / "shared" / "traces"))
TABLE = TRACES.parent / "gpu" / "mig_step_times.csv"
NOISE = 0.04
"""Standard deviation of the logarithm of one measured slowdown around the law."""
GRID = np.linspace(-5.0, 3.0, 401)
"""Logarithms of widths that are tried."""


@pytest.fixture(scope="module")
def slices() -> pl.DataFrame:
    """Return the slices below the whole GPU, each with its slowdown by the law at every width of the grid (log)."""
    if not TABLE.is_file():
        pytest.skip(f"no step times on slices of a GPU at {TABLE}: set TAUT_TRACES to the folder beside `gpu`")
    table = pl.read_csv(TABLE).filter(pl.col("model") != "deepspeech2", pl.col("compute_share") < 1.0)
    by_share = {
        share: [math.log(partition.slowdown(share, math.exp(wide))) for wide in GRID]
        for share in table["compute_share"].unique().to_list()
    }
    laws = pl.DataFrame({"compute_share": list(by_share), "law": list(by_share.values())})
    return table.join(laws, on="compute_share", maintain_order="left").with_columns(
        use=pl.col("sm_util_pct") / 100.0, y=pl.col("slowdown").log(), job=pl.format("{} {}", "model", "batch")
    )


def prior(slices: pl.DataFrame) -> tuple[float, float, float]:
    """Return the line of log width by log use, and the deviation around it, of the jobs in the table."""
    use, wide = [], []
    for _, own in slices.group_by("job", maintain_order=True):
        misfit = ((np.array(own["law"].to_list()) - own["y"].to_numpy()[:, None]) ** 2).sum(axis=0)
        use.append(math.log(own["use"][0]))
        wide.append(GRID[np.argmin(misfit / NOISE**2 + 0.02 * GRID**2)])
    slope, at_full = np.polyfit(use, wide, 1)
    spread = np.std(np.array(wide) - slope * np.array(use) - at_full) * math.sqrt(len(use) / (len(use) - 2))
    return float(at_full), float(slope), float(spread)


def held_out(slices: pl.DataFrame) -> pl.DataFrame:
    """Return one row per slice and other slice of its job: log errors by use alone, by it and by the other slice."""
    rows = []
    for (model,), own in slices.group_by("model", maintain_order=True):
        at_full, slope, spread = prior(slices.filter(pl.col("model") != model))
        for row in own.iter_rows(named=True):
            middle = at_full + slope * math.log(row["use"])
            alone, bound = (np.interp(middle + z * spread, GRID, row["law"]) - row["y"] for z in (0.0, 1.28))
            for other in own.filter(pl.col("job") == row["job"], pl.col("slice") != row["slice"]).iter_rows(named=True):
                cost = ((np.array(other["law"]) - other["y"]) / NOISE) ** 2 + ((GRID - middle) / spread) ** 2
                chance = np.exp(0.5 * (cost.min() - cost)).cumsum()
                high = row["law"][np.searchsorted(chance, 0.9 * chance[-1])] + 1.28 * NOISE - row["y"]
                found = {"by_other": row["law"][np.argmin(cost)] - row["y"], "by_other_bound": high}
                away = abs(math.log(row["compute_share"] / other["compute_share"]))
                shares = {"share": row["compute_share"], "other_share": other["compute_share"], "away": away}
                rows.append({"job": row["job"], **shares, "alone": alone, "alone_bound": bound, **found})
    return pl.DataFrame(rows)


def p90(errors: pl.Series) -> float:
    return float(np.quantile(np.abs(np.expm1(errors.to_numpy())), 0.9))


def under(bounds: pl.Series) -> float:
    """Return the share of bounds that are below the measured by more than 5 %."""
    return float((bounds.exp() < 0.95).mean())


def test_errors_on_programs_held_out(slices: pl.DataFrame) -> None:
    found = held_out(slices)
    nearest = found.filter(pl.col("away") == pl.col("away").min().over("job", "share"))
    single = found.unique(["job", "share"])

    # Use alone says little; one other size brings the bar of 10 %, save for small slices from large ones.
    assert p90(single["alone"]) == pytest.approx(0.395, abs=0.005)
    assert p90(found["by_other"]) == pytest.approx(0.105, abs=0.005)
    assert p90(nearest["by_other"]) < 0.10
    assert p90(found.filter(pl.col("share") > 0.2)["by_other"]) < 0.10


def test_bounds_on_programs_held_out(slices: pl.DataFrame) -> None:
    found = held_out(slices)

    assert under(found["by_other_bound"]) < 0.10
    assert under(found.unique(["job", "share"])["alone_bound"]) == pytest.approx(0.143, abs=0.002)


def test_the_parameters_are_those_of_the_table(slices: pl.DataFrame) -> None:
    at_full, slope, spread = prior(slices)

    assert math.exp(at_full) == pytest.approx(partition.WIDTH_AT_FULL_USE, abs=0.005)
    assert slope == pytest.approx(partition.WIDTH_BY_USE, abs=0.005)
    assert spread == pytest.approx(partition.WIDTH_SPREAD, abs=0.005)


def curve(use: float, spread: float) -> FloatArray:
    return np.array([partition.slowdown(share, partition.width(use, spread)) for share in np.linspace(0.01, 1.0, 100)])


@pytest.mark.parametrize("use", [0.0, 0.05, 0.4, 0.9, 1.0])
def test_less_of_a_gpu_or_more_use_of_it_is_never_faster(use: float) -> None:
    found = curve(use, 0.0)

    assert found[-1] == 1.0
    assert (np.diff(found) <= 0.0).all()
    assert (curve(use, 1.0) >= found).all()
