"""A made-up lake and made-up grids on disk, as `taut sites` reads them. Nothing is asserted here."""

from pathlib import Path

import numpy as np
import polars as pl

from tests.pipelines.statistics.lakes import make_lake, ran

WEEKS = 6


def jobs_on_disk(folder: Path, a_week: int = 60) -> Path:
    """Write a lake with jobs of six weeks."""
    rng = np.random.default_rng(0)
    hours = np.sort(rng.integers(0, WEEKS * 7 * 24 - 48, WEEKS * a_week)).tolist()
    make_lake(
        folder,
        {
            "jobs": [
                ran(at, float(rng.uniform(1000.0, 40_000.0)), job_id=f"j{number}", req_gpus=float(rng.integers(1, 9)))
                for number, at in enumerate(hours)
            ]
        },
    )
    return folder


def grids_on_disk(folder: Path, *, hours: int = 365 * 24) -> Path:
    """Write carbon and price of two zones of 2023: one is dear at noon, the other at midnight."""
    stamps = pl.datetime_range(pl.datetime(2023, 1, 1), pl.datetime(2023, 12, 31, 23), "1h", eager=True)[:hours]
    angle = 2.0 * np.pi * np.arange(len(stamps)) / 24.0
    for number, zone in enumerate(("east", "west")):
        (folder / zone).mkdir(parents=True)
        for kind, column, mean in (("carbon", "carbon_g_per_kwh", 300.0), ("price", "Price (USD/MWh)", 100.0)):
            values = mean - (0.8 - 1.6 * number) * mean * np.cos(angle)
            pl.DataFrame({"ts": stamps, column: values}).write_csv(folder / zone / f"{kind}_2023.csv")
    return folder
