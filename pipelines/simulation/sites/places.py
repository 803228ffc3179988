"""The sites of an environment: GPUs, power and grid of each; the terms of the utility; the regimes of the studies.

Hourly series are read by `pipelines.simulation.energy.grid_files`. Called by `weeks`, `outcome` and `pipelines.cli`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipelines.errors import BadUsage
from pipelines.simulation.energy.grid_files import of_one_year, zone_files
from pipelines.simulation.energy.power_file import power_file
from scheduler_core.cluster import Machine
from scheduler_core.planning.grid import Grid
from scheduler_core.planning.power import Assumed, NodePower

__all__ = ["REGIMES", "ZONES", "Place", "Terms", "places_of"]

ZONES: Final = {
    "DE-LU": (64, 1.20),
    "US-CAL-CISO": (56, 1.15),
    "US-TEX-ERCO": (56, 1.25),
    "AU-NSW": (48, 1.25),
    "SG": (48, 1.35),
    "CA-ON": (48, 1.15),
    "CL-SIC": (48, 1.20),
    "ZA": (48, 1.30),
}
"""GPUs and PUE by zone (ours); the first six, 320 GPUs in all, are the default."""

DEFAULT_SITES: Final = 6
MOST_SITES: Final = 8
LEAST_SITES: Final = 2
GPUS_ON_A_NODE: Final = 8
GPU_TYPE: Final = "A100"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One site: its GPUs (all pooled), the power of them and of the CPUs next to them, and its grid with PUE.

    `power` is that of all nodes together, `assumed` the use of a running job's GPUs and CPUs.
    """

    name: str
    gpus: int
    power: NodePower
    assumed: Assumed
    grid: Grid

    @property
    def machine(self) -> Machine:
        """Return the site as one machine, for the energy accounts."""
        return Machine(name=self.name, cpu_cores=0.0, mem_gib=0.0, gpus=self.gpus)

    @property
    def busy_kw(self) -> float:
        """Return the power that a running GPU draws above idle, its part of the CPUs included, without PUE."""
        gpu_w = self.assumed.gpu_frac * (self.power.gpu_full_w - self.power.gpu_idle_w)
        cpu_w = self.assumed.cpu_frac * (self.power.cpu_full_w - self.power.cpu_idle_w) / self.gpus
        return (gpu_w + cpu_w) / 1000.0

    @property
    def idle_kw(self) -> float:
        """Return the power of the whole site when no job runs, without PUE."""
        return self.power.idle_w(self.gpus) / 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the utility counts, in USD (ours): worth of GPU time, carbon, missed due dates and moved data.

    A job's due date is its arrival plus slack times its run time, with a slack drawn from `slack`. A miss costs
    `miss_gpu_h` hours of a GPU's worth. A job's data are lognormal with the median `data_gb`.
    """

    worth_usd_per_gpu_h: float = 0.10
    carbon_usd_per_t: float = 80.0
    miss_gpu_h: float = 5.0
    slack: tuple[float, float] = (2.0, 4.0)
    data_gb: float = 20.0
    egress_usd_per_gb: float = 0.05
    kwh_per_gb: float = 0.03

    @property
    def miss_usd(self) -> float:
        """Return the cost of a missed due date."""
        return self.miss_gpu_h * self.worth_usd_per_gpu_h


LOOSE, TIGHT = (2.0, 4.0), (1.2, 1.5)
REGIMES: Final = {
    "A": Terms(worth_usd_per_gpu_h=1.0, slack=LOOSE),
    "B-loose": Terms(slack=LOOSE),
    "B-tight": Terms(slack=TIGHT),
    "C-loose": Terms(worth_usd_per_gpu_h=0.05, slack=LOOSE),
}
"""Terms by regime: GPU time at its market price (A), at a tenth of it (B), and at a twentieth (C)."""


def places_of(
    folder: Path, zones: Sequence[str] = (), *, power: Path | None = None, year: int | None = None
) -> tuple[Place, ...]:
    """Read the sites of zones: nodes of 8 A100 whose GPUs run jobs at full power.

    Raises
    ------
    BadUsage
        If a zone is unknown, lacks a series or hours of the year, zones begin in different years, or there are not 2
        to 8 zones.
    """
    chosen = tuple(dict.fromkeys(zones)) or tuple(ZONES)[:DEFAULT_SITES]
    if not LEAST_SITES <= len(chosen) <= MOST_SITES:
        raise BadUsage(f"--zone: found {len(chosen)} zones, expected {LEAST_SITES} to {MOST_SITES}")
    table = power_file(power)
    assumed = replace(table.assumed, gpu_frac=1.0)
    node = table.node(Machine(name="", cpu_cores=0.0, mem_gib=0.0, gpus=GPUS_ON_A_NODE, gpu_type=GPU_TYPE))
    found = []
    for files in of_one_year([zone_files(folder, zone) for zone in chosen], year):
        zone = files.zone
        gpus, pue = ZONES.get(zone, (48, 1.2))
        grid = files.grid(pue)
        if grid.carbon is None or grid.price is None:
            raise BadUsage(f"zone {zone}: found one series, expected files of carbon and of price in {folder / zone}")
        nodes = gpus / GPUS_ON_A_NODE
        watts = replace(node, name=zone, cpu_idle_w=nodes * node.cpu_idle_w, cpu_full_w=nodes * node.cpu_full_w)
        found.append(Place(name=zone, gpus=gpus, power=watts, assumed=assumed, grid=grid))
    return tuple(found)
