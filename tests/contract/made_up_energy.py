"""Made-up energy measurements for the headlines of studies: tables by frequency, throughputs, hourly grids of 2023."""

import json
import tomllib
from datetime import UTC, datetime, timedelta
from math import pi, sin
from pathlib import Path

WORKLOADS = ("FDTD", "LSTM", "ResN50")
MHZ = (800, 950, 1100, 1250, 1400, 1530)
ZONES = ("AA", "BB")
HOURS = 365 * 24
PRICES = ("price", "Datetime (UTC),Price (USD/MWh)", 60.0, 45.0)


def write_energy(folder: Path, models: Path) -> None:
    """Write the files of an energy folder; speed and power by frequency follow the fitted `models` of the workloads."""
    known = tomllib.loads(models.read_text(encoding="utf-8"))["frequency"]
    (folder / "gpu_frequency").mkdir(parents=True)
    (folder / "throughput").mkdir()
    speeds = {name: [_time(known[name], MHZ[-1]) / _time(known[name], mhz) for mhz in MHZ] for name in WORKLOADS}
    watts = {name: [known[name]["p0_w"] + known[name]["c_w_per_mhz3"] * mhz**3 for mhz in MHZ] for name in WORKLOADS}
    for file, table in (("performance", speeds), ("power", watts)):
        lines = [",".join(map(str, ("frequency(MHz)", *MHZ))), *(",".join(map(str, (k, *v))) for k, v in table.items())]
        (folder / f"gpu_frequency/dataset_{file}.csv").write_text("\n".join(lines) + "\n")
    alone = {f"('ResNet-18 (batch size 16)', {n})": 10.0 * n**0.9 for n in (1, 2, 4, 8)} | {"('A3C', 1)": 7.0}
    nodes = {"p100": 1.0, "v100": 1.6, "p100_unconsolidated": 0.8, "v100_unconsolidated": 1.3}
    told = {node: {job: {"null": by * speed} for job, speed in alone.items()} for node, by in nodes.items()}
    (folder / "throughput/gavel_throughputs.json").write_text(json.dumps(told))
    for at, zone in enumerate(ZONES):
        (folder / "grid" / zone).mkdir(parents=True)
        for kind, column, base, swing in (("carbon", "ts,carbon_g_per_kwh", 300.0, 150.0), PRICES):
            _write_hours(folder / f"grid/{zone}/{kind}_2023.csv", column, base * (1.0 + 0.4 * at), swing, at)


def _time(model: dict[str, float], mhz: float) -> float:
    return model["a"] + model["b_mhz"] / mhz


def _write_hours(path: Path, header: str, base: float, swing: float, shift: int) -> None:
    """Write an hourly series with a daily and a yearly wave."""
    first = datetime(2023, 1, 1, tzinfo=UTC)
    lines = [header]
    for hour in range(HOURS):
        wave = sin(2 * pi * (hour / 24 + 0.3 * shift)) + 0.5 * sin(2 * pi * hour / HOURS)
        lines.append(f"{first + timedelta(hours=hour):%Y-%m-%dT%H:%MZ},{base + swing * wave:.3f}")
    path.write_text("\n".join(lines) + "\n")
