"""The sites of an environment, and weeks of jobs on them as arrays for its compiled loop.

GPUs, run times and arrivals are recorded; sites of origin, due dates and data volumes are drawn (ours).
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from modelserve.bundle.card import complaint
from pipelines.errors import BadUsage
from pipelines.simulation.energy.grid_files import of_one_year, zone_files
from pipelines.simulation.energy.power_file import Assumed, NodePower, power_file
from scheduler_core.cluster import Machine
from scheduler_core.kernels.site_value import DAY, STEPS_PER_H, Jobs
from scheduler_core.planning.hourly import HOUR_S, HOURS_PER_DAY, MOST_PUE, Grid
from scheduler_core.types import FloatArray, IntArray

__all__ = [
    "MOST_GPUS",
    "MOST_STEPS",
    "REGIMES",
    "STEP_S",
    "WEEK",
    "Place",
    "Pool",
    "Terms",
    "Weeks",
    "drawn",
    "part",
    "places_of",
    "stacked",
    "week_of",
]

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
    """One site: its GPUs (all pooled), the power of its GPUs and CPUs, and its grid with PUE.

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
    table = power_file()
    assumed = table.unknown_use.model_copy(update={"gpu_frac": 1.0})
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
        cpus = {"cpu_idle_w": nodes * node.cpu_idle_w, "cpu_full_w": nodes * node.cpu_full_w}
        watts = node.model_copy(update={"name": size.zone, **cpus})
        places.append(Place(name=size.zone, gpus=size.gpus, power=watts, assumed=assumed, grid=grid))
    return tuple(places)


def _usual(zone: str) -> Size:
    gpus, pue = ZONES.get(zone, (48, 1.2))
    return Size(zone=zone, gpus=gpus, pue=pue)


WEEK: Final = 7 * DAY
MOST_STEPS: Final = 2 * DAY
MOST_GPUS: Final = 32
DATA_SPREAD: Final = 1.0
"""Standard deviation of the logarithm of a job's data volume (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Recorded jobs (n) of one or more weeks: step of the week of arrival, GPUs, real and predicted steps, group.

    `group` is a code of the VC (jobs of one VC have one origin), or of the job itself if the trace has no VC.
    `week` is the number of the recorded week.
    """

    week: IntArray
    arrive: IntArray
    gpus: IntArray
    run_steps: IntArray
    told_steps: IntArray
    group: IntArray

    def __len__(self) -> int:
        return len(self.week)

    def of(self, weeks: IntArray) -> "Pool":
        """Return the jobs of some weeks."""
        rows = np.isin(self.week, weeks)
        return Pool(**{name: getattr(self, name)[rows] for name in self.__slots__})


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekJobs:
    """Jobs (n) of a week in order of arrival; `arrive`, `due`, `run_steps` and `told_steps` (predicted) in steps."""

    arrive: IntArray
    gpus: IntArray
    run_steps: IntArray
    told_steps: IntArray
    due: IntArray
    origin: IntArray
    data_gb: FloatArray


def drawn(
    pool: Pool, shares: FloatArray, capacity: int, terms: Terms, rng: np.random.Generator, *, load: float = 0.9
) -> WeekJobs:
    """Draw a week of jobs whose GPU time is `load` of what `capacity` GPUs have in a week.

    Weeks of the pool are taken in random order; jobs of the last one are left out at random. Groups are spread over
    the sites at random, with `shares` (S) of them; every slack and data volume is drawn.
    """
    wanted, taken = load * capacity * WEEK, []
    for week in rng.permutation(np.unique(pool.week)):
        rows = rng.permutation(np.flatnonzero(pool.week == week))
        work = np.cumsum(pool.gpus[rows] * pool.run_steps[rows])
        taken.append(rows[: int(np.searchsorted(work, wanted, side="right"))])
        wanted -= float(work[len(taken[-1]) - 1]) if len(taken[-1]) else 0.0
        if len(taken[-1]) < len(rows):
            break
    rows = np.concatenate(taken)
    rows = rows[np.argsort(pool.arrive[rows], kind="stable")]
    sites = rng.choice(len(shares), size=int(pool.group.max(initial=0)) + 1, p=shares / shares.sum())
    slack = rng.uniform(*terms.slack, size=len(rows))
    return WeekJobs(
        arrive=pool.arrive[rows],
        gpus=pool.gpus[rows],
        run_steps=pool.run_steps[rows],
        told_steps=pool.told_steps[rows],
        due=pool.arrive[rows] + np.ceil(slack * pool.run_steps[rows]).astype(np.int64),
        origin=sites[pool.group[rows]].astype(np.int64),
        data_gb=rng.lognormal(np.log(terms.data_gb), DATA_SPREAD, size=len(rows)),
    )


STEP_S: Final = HOUR_S / STEPS_PER_H
NEVER: Final = 1 << 40
"""Arrival step of rows that only fill up a batch; it never comes."""


class Weeks(NamedTuple):
    """A batch of B weeks with up to n jobs on S sites; T steps until every job must have ended.

    `jobs` has the columns of `Jobs` with a leading axis B; its run times are predicted, `run_steps` (B, n) are the
    real ones. `usd` (B, S, H), `price` and `carbon` are by hour, from one day before the week: cost of one running GPU
    for one step, USD/kWh and g/kWh. `paid` (B, S, T + 1) is the cumulative real cost of one running GPU.
    """

    jobs: Jobs
    arrive: IntArray
    run_steps: IntArray
    usd: FloatArray
    price: FloatArray
    carbon: FloatArray
    paid: FloatArray
    capacity: IntArray
    last_step: IntArray
    worth_usd: FloatArray
    miss_usd: FloatArray


def week_of(places: Sequence[Place], drawn: WeekJobs, start_ts: float, terms: Terms) -> Weeks:
    """Return a batch of one week that begins at the Unix time `start_ts`, a whole hour."""
    last = int((drawn.due + drawn.run_steps).max(initial=0)) + 1
    steps = -(-last // DAY) * DAY
    hours = steps // STEPS_PER_H + HOURS_PER_DAY
    at = start_ts + HOUR_S * (np.arange(hours, dtype=np.float64) - HOURS_PER_DAY)
    price, carbon = (np.array([getattr(each.grid, kind).at(at) for each in places]) for kind in ("price", "carbon"))
    kw = np.array([[each.busy_kw * each.grid.pue] for each in places])
    usd = kw / STEPS_PER_H * (price + carbon * terms.carbon_usd_per_t * 1e-6)
    by_step = np.repeat(usd[:, HOURS_PER_DAY:], STEPS_PER_H, axis=1)
    return Weeks(
        jobs=Jobs(
            gpus=drawn.gpus[None],
            steps=drawn.told_steps[None],
            due=drawn.due[None],
            origin=drawn.origin[None],
            move_usd=move_usd(drawn, price, carbon, terms)[None],
        ),
        arrive=drawn.arrive[None],
        run_steps=drawn.run_steps[None],
        usd=usd[None],
        price=price[None],
        carbon=carbon[None],
        paid=np.concatenate([np.zeros((len(places), 1)), np.cumsum(by_step, axis=1)], axis=1)[None],
        capacity=np.array([[each.gpus for each in places]], dtype=np.int64),
        last_step=np.array([last], dtype=np.int64),
        worth_usd=np.array([terms.worth_usd_per_gpu_h / STEPS_PER_H]),
        miss_usd=np.array([terms.miss_usd]),
    )


def move_usd(drawn: WeekJobs, price: FloatArray, carbon: FloatArray, terms: Terms) -> FloatArray:
    """Return the cost of moving each job's data to each site (n, S), 0 at its origin.

    Egress, and the network's energy at the mean price and carbon intensity of the origin's hours (ours).
    """
    rate = price.mean(axis=1) + carbon.mean(axis=1) * terms.carbon_usd_per_t * 1e-6
    usd = drawn.data_gb * (terms.egress_usd_per_gb + terms.kwh_per_gb * rate[drawn.origin])
    away = np.arange(len(price))[None, :] != drawn.origin[:, None]
    return np.asarray(usd[:, None] * away, dtype=np.float64)


def stacked(weeks: Sequence[Weeks]) -> Weeks:
    """Return weeks as one batch; shorter weeks are filled up with jobs that never arrive, and with their last hours."""
    of_jobs = {name: _joined([getattr(each.jobs, name) for each in weeks], fill) for name, fill in _JOB_FILLS.items()}
    columns = [name for name in Weeks._fields if name != "jobs"]
    joined = {name: _joined([getattr(each, name) for each in weeks], _WEEK_FILLS.get(name)) for name in columns}
    return Weeks(jobs=Jobs(**of_jobs), **joined)


def part(weeks: Weeks, rows: IntArray) -> Weeks:
    """Return some weeks of a batch."""
    columns = {name: column[rows] for name, column in weeks._asdict().items() if name != "jobs"}
    return Weeks(jobs=Jobs(**{name: column[rows] for name, column in weeks.jobs._asdict().items()}), **columns)


_JOB_FILLS: Final = {"gpus": 1, "steps": 1, "due": NEVER, "origin": 0, "move_usd": 0.0}
_WEEK_FILLS: Final = {"arrive": NEVER, "run_steps": 1}
"""Values of the rows that fill up a batch; the series by hour repeat their last value."""


def _joined(arrays: Sequence[Any], fill: float | None) -> Any:  # Any: arrays, each of its own type
    """Join arrays along the first axis, all others lengthened by `fill`, or by the last value if that is None."""
    most = np.max([each.shape[1:] for each in arrays], axis=0, initial=0)
    how: dict[str, Any] = {"mode": "edge"} if fill is None else {"constant_values": fill}
    lacking = [[(0, 0), *((0, int(gap)) for gap in most - each.shape[1:])] for each in arrays]
    return np.concatenate([np.pad(each, width, **how) for each, width in zip(arrays, lacking, strict=True)])
