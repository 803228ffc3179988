"""Options of `taut simulate` for power, grid and slack, and the simulated site that they describe.

Slow imports happen only when `site` is called.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from pipelines.errors import BadUsage

if TYPE_CHECKING:
    from pipelines.simulation.cluster_file import ClusterSpec
    from pipelines.simulation.energy.site import Site
    from scheduler_core.planning.release import Slack

BasisOption = Literal["lca", "direct"]
"""Basis of carbon intensity: emissions over a power plant's life cycle (lca), or of its operation alone (direct)."""

ShiftOption = Literal["carbon", "price"]
"""Series that jobs are held for: they wait for hours of lower carbon intensity, or of lower price."""

GridFolder = Annotated[
    Path | None,
    typer.Option(
        "--grid",
        help="Folder of hourly carbon intensity and price, one subfolder per zone; adds energy, carbon and cost.",
        show_default="none: the carbon and cost columns are omitted",
    ),
]
Zone = Annotated[
    str | None, typer.Option("--zone", help="Zone of the grid, as DE-LU.", show_default="the only one there")
]
Pue = Annotated[
    float | None,
    typer.Option(
        "--pue", help="The site's energy over that of its machines.", min=1.0, max=10.0, show_default="the power file's"
    ),
]


_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SLACK: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|%)")
NO_GRID: Final = "--slack without --grid: no job is held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metering:
    """Options for the power of machines, the grid, and how long jobs may be held for a better hour."""

    grid: GridFolder = None
    zone: Zone = None
    carbon_basis: Annotated[
        BasisOption | None,
        typer.Option(
            "--carbon-basis",
            help="Emissions over a plant's life cycle, or of its operation alone.",
            show_default="lca",
        ),
    ] = None
    grid_start: Annotated[
        str | None,
        typer.Option(
            "--grid-start",
            metavar="MOMENT",
            help="When on the grid the simulation begins, as 2023-06-01T12:00+02:00; UTC without an offset.",
            show_default="its first hour; recorded: month, day and time of the first submission",
        ),
    ] = None
    power: Annotated[
        Path | None,
        typer.Option(
            "--power",
            help="TOML file of machine power, replacing entries of the shipped table; without --grid only energy is "
            "reported.",
            show_default="the shipped table, with --grid",
        ),
    ] = None
    pue: Pue = None
    slack: Annotated[
        str | None,
        typer.Option(
            "--slack",
            help="How long a job may be held for a cleaner hour: 6h, 90m, or 50% of its predicted run time.",
            show_default="no job is held",
        ),
    ] = None
    shift_by: Annotated[
        ShiftOption | None,
        typer.Option("--shift-by", help="The series by which jobs are held.", show_default="carbon"),
    ] = None

    def __post_init__(self) -> None:
        of_grid = {"zone": self.zone, "carbon-basis": self.carbon_basis, "grid-start": self.grid_start, "pue": self.pue}
        given = [f"--{name}" for name, value in of_grid.items() if value is not None]
        if self.grid is None and given:
            raise BadUsage(f"found {', '.join(given)} without --grid, expected a folder of zones with it")
        if self.shift_by is not None and self.slack is None:
            raise BadUsage("found --shift-by without --slack, expected how long jobs may be held")

    def notes(self) -> list[str]:
        """Return notes on options that have no effect."""
        return [NO_GRID] if self.slack is not None and self.grid is None else []

    def site(self, cluster: "ClusterSpec", first_ts: float | None) -> "Site | None":
        """Return the site of a cluster; None if neither --grid nor --power is given.

        `first_ts` is the Unix time of the first recorded submission, None for drawn arrivals.
        """
        from pipelines.simulation.energy.grid_columns import moment_of
        from pipelines.simulation.energy.grid_files import zone_files
        from pipelines.simulation.energy.power_file import idle_figures, power_file
        from pipelines.simulation.energy.site import Holding, Site, power_notes, start_on

        slack = None if self.slack is None else slack_of(self.slack)
        if self.grid is None and self.power is None:
            return None
        table = power_file(self.power)
        notes = power_notes(table, cluster.machines)
        notes += [] if self.power is None else idle_figures(self.power, cluster.machines)
        if self.grid is None:
            return Site(table=table, start_ts=first_ts or 0.0, notes=tuple(notes))
        files = zone_files(self.grid, self.zone, basis=self.carbon_basis or "lca")
        grid = files.grid(table.pue if self.pue is None else self.pue)
        chosen = None if self.grid_start is None else moment_of(self.grid_start, "--grid-start")
        start_ts, start_note = start_on(grid, chosen, first_ts, remedy="name one with --grid-start")
        notes += [*files.notes, f"PUE {grid.pue:g}: in carbon and cost, not in kWh", start_note]
        site = Site(table=table, grid=grid, start_ts=start_ts, notes=tuple(notes))
        if slack is None:
            return site
        holding = Holding(slack=slack, by=self.shift_by or "carbon")
        if (grid.carbon if holding.by == "carbon" else grid.price) is None:
            raise BadUsage(
                f"found --slack by {holding.by}, but zone {grid.zone} has no file of it; expected another --shift-by"
            )
        return replace(site, holding=holding, notes=(*notes, holding.note()))


def slack_of(text: str) -> "Slack":
    """Parse a slack: a time as `6h`, `90m`, `1.5d` or `600s`, or a share of the predicted run time as `50%`.

    Examples
    --------
    >>> slack_of("90m").longest_s, slack_of("50%").run_frac
    (5400.0, 0.5)
    """
    from scheduler_core.errors import BadInput
    from scheduler_core.planning.release import Slack

    found = _SLACK.fullmatch(text.strip())
    if found is None:
        raise BadUsage(f"--slack {text}: expected a time as 6h, 90m or 2d, or a part of the predicted run, as 50%")
    amount, unit = float(found[1]), found[2]
    try:
        return Slack(run_frac=amount / 100.0) if unit == "%" else Slack(longest_s=amount * _UNITS_S[unit])
    except BadInput as error:
        raise BadUsage(f"--slack {text}: {error}") from error
