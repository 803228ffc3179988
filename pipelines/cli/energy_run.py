"""What `taut simulate` was asked of power, grid and slack, put together to a site.

No option is declared here. Called by `pipelines.cli.simulation` and `pipelines.cli.simulation_run`.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipelines.cli.energy_options import BasisOption, ShiftOption
from pipelines.errors import BadUsage
from pipelines.simulation.cluster_file import ClusterSpec
from pipelines.simulation.energy.grid_columns import moment_of
from pipelines.simulation.energy.grid_files import zone_files
from pipelines.simulation.energy.power_file import idle_figures, power_file
from pipelines.simulation.energy.site import Holding, Site, power_notes, start_on
from scheduler_core.errors import BadInput
from scheduler_core.planning.release import Slack

_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_SLACK: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d|%)")
NO_GRID: Final = "--slack without --grid: nobody is held"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metering:
    """Where watts and grid come from, and who may be held; None is what nobody told."""

    grid: Path | None = None
    zone: str | None = None
    basis: BasisOption | None = None
    start: str | None = None
    power: Path | None = None
    pue: float | None = None
    slack: str | None = None
    shift_by: ShiftOption | None = None

    def __post_init__(self) -> None:
        of_grid = {"zone": self.zone, "carbon-basis": self.basis, "grid-start": self.start, "pue": self.pue}
        given = [f"--{name}" for name, value in of_grid.items() if value is not None]
        # Refused rather than left unheard.
        if self.grid is None and given:
            raise BadUsage(f"found {', '.join(given)} without --grid, expected a folder of zones with it")
        if self.shift_by is not None and self.slack is None:
            raise BadUsage("found --shift-by without --slack, expected how long jobs may be held")

    def notes(self) -> list[str]:
        """Say what stays without effect."""
        return [NO_GRID] if self.slack is not None and self.grid is None else []

    def site(self, cluster: ClusterSpec, first_ts: float | None) -> Site | None:
        """Return the site of a cluster, None where nothing is told; `first_ts` is of recorded arrivals alone.

        Raises
        ------
        BadUsage
            If a file is not of its format, or what is told cannot be meant.
        """
        slack = None if self.slack is None else slack_of(self.slack)
        if self.grid is None and self.power is None:
            return None
        table = power_file(self.power)
        notes = power_notes(table, cluster.machines)
        notes += [] if self.power is None else idle_figures(self.power, cluster.machines)
        if self.grid is None:
            return Site(table=table, start_ts=first_ts or 0.0, notes=tuple(notes))
        files = zone_files(self.grid, self.zone, basis=(self.basis or BasisOption.LCA).value)
        grid = files.grid(table.pue if self.pue is None else self.pue)
        told = None if self.start is None else moment_of(self.start, "--grid-start")
        start_ts, began = start_on(grid, told, first_ts, cure="name one with --grid-start")
        notes += [*files.notes, f"PUE {grid.pue:g}: in carbon and cost, not in kWh", began]
        site = Site(table=table, grid=grid, start_ts=start_ts, notes=tuple(notes))
        if slack is None:
            return site
        holding = Holding(slack=slack, by=(self.shift_by or ShiftOption.CARBON).value)
        if (grid.carbon if holding.by == "carbon" else grid.price) is None:
            raise BadUsage(f"found --slack by {holding.by}, of which zone {grid.zone} has no file; expected --shift-by")
        return replace(site, holding=holding, notes=(*notes, holding.note()))


def slack_of(text: str) -> Slack:
    """Read `6h`, `90m`, `1.5d`, `600s` or `50%` (of the predicted run time).

    Raises
    ------
    BadUsage
        If it is none of these, or longer than a week.

    Examples
    --------
    >>> slack_of("90m").longest_s, slack_of("50%").run_frac
    (5400.0, 0.5)
    """
    found = _SLACK.fullmatch(text.strip())
    if found is None:
        raise BadUsage(f"--slack {text}: expected a time as 6h, 90m or 2d, or a part of the predicted run, as 50%")
    amount, unit = float(found[1]), found[2]
    try:
        return Slack(run_frac=amount / 100.0) if unit == "%" else Slack(longest_s=amount * _UNITS_S[unit])
    except BadInput as error:
        raise BadUsage(f"--slack {text}: {error}") from error
