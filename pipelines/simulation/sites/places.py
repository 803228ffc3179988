"""The sites of an environment: GPUs, power and grid of each; the terms of the utility; the regimes of the studies."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from modelserve.bundle.card import complaint
from pipelines.errors import BadUsage
from pipelines.simulation.energy.grid_files import of_one_year, zone_files
from pipelines.simulation.energy.power_file import power_file
from scheduler_core.cluster import Machine
from scheduler_core.planning.hourly import MOST_PUE, Grid
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

    def __str__(self) -> str:
        """Return the site in words, with the hours that its files lack."""
        filled = [0 if each is None else int(each.filled.sum()) for each in (self.grid.carbon, self.grid.price)]
        lacking = f", {filled[0]} hours of carbon and {filled[1]} of price filled" if any(filled) else ""
        return f"{self.name} {self.gpus} GPUs, PUE {self.grid.pue:g}{lacking}"

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


class Size(BaseModel):
    """A site: its grid zone, GPUs and their type, and PUE."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    zone: Annotated[str, Field(min_length=1)]
    gpus: Annotated[int, Field(strict=True, ge=1, le=1024)]
    pue: Annotated[float, Field(ge=1.0, le=MOST_PUE, allow_inf_nan=False)] = 1.2
    gpu_type: str = GPU_TYPE


SIZES: Final = TypeAdapter(Annotated[list[Size], Field(min_length=LEAST_SITES, max_length=MOST_SITES)])


def _site_file(path: Path) -> list[Size]:
    """Read a TOML file with `[[sites]]`, one for each site: zone, gpus, pue and gpu_type."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        return SIZES.validate_python(table.get("sites"))
    except OSError as error:
        raise BadUsage(f"--sites {path}: {error.strerror}; expected a TOML file of [[sites]]") from error
    except ValidationError as error:
        raise BadUsage(
            f"--sites {path}: sites: {complaint(error)}; expected {LEAST_SITES} to {MOST_SITES} [[sites]], each with "
            "zone, gpus, pue and gpu_type"
        ) from error
    except ValueError as error:  # invalid TOML or UTF-8
        raise BadUsage(f"--sites {path}: {error}; expected [[sites]] with zone, gpus, pue and gpu_type") from error


def places_of(
    folder: Path,
    zones: Sequence[str] = (),
    *,
    sites: Path | None = None,
    power: Path | None = None,
    year: int | None = None,
) -> tuple[Place, ...]:
    """Read the sites of zones, or those of a TOML file: nodes of 8 A100, or of the file's type, at full power.

    The file `sites` has `[[sites]]` with zone, gpus, pue and gpu_type.
    """
    sizes = [_usual(each) for each in dict.fromkeys(zones or tuple(ZONES)[:DEFAULT_SITES])]
    sizes = sizes if sites is None else _site_file(sites)
    names = [each.zone for each in sizes]
    if len(set(names)) < len(names) or not LEAST_SITES <= len(names) <= MOST_SITES:
        raise BadUsage(
            f"{'--zone' if sites is None else sites}: found {len(names)} sites in {len(set(names))} zones, expected "
            f"{LEAST_SITES} to {MOST_SITES} sites, each in its own zone"
        )
    table = power_file(power)
    assumed = replace(table.assumed, gpu_frac=1.0)
    places = []
    for size, files in zip(sizes, of_one_year([zone_files(folder, name) for name in names], year), strict=True):
        grid = files.grid(size.pue)
        if grid.carbon is None or grid.price is None:
            raise BadUsage(
                f"zone {size.zone}: found no file of {'carbon' if grid.carbon is None else 'price'}, expected files of "
                f"carbon and of price in {folder / size.zone}"
            )
        if size.gpu_type not in table.gpus:
            raise BadUsage(
                f"zone {size.zone}: found no power of gpu_type {size.gpu_type[:40]!r}, expected one of "
                f"{', '.join(sorted(table.gpus))}"
            )
        node = table.node(Machine(name="", cpu_cores=0.0, mem_gib=0.0, gpus=GPUS_ON_A_NODE, gpu_type=size.gpu_type))
        nodes = size.gpus / GPUS_ON_A_NODE
        watts = replace(node, name=size.zone, cpu_idle_w=nodes * node.cpu_idle_w, cpu_full_w=nodes * node.cpu_full_w)
        places.append(Place(name=size.zone, gpus=size.gpus, power=watts, assumed=assumed, grid=grid))
    return tuple(places)


def _usual(zone: str) -> Size:
    gpus, pue = ZONES.get(zone, (48, 1.2))
    return Size(zone=zone, gpus=gpus, pue=pue)
