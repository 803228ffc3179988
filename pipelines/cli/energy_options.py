"""The options of `taut simulate` that tell of power, grid and slack, declared once each.

Nothing heavy is imported. Called by `pipelines.cli.simulation` and `pipelines.cli.experiment_grid`.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class BasisOption(StrEnum):
    """Which emissions of a plant count."""

    LCA = "lca"
    DIRECT = "direct"


class ShiftOption(StrEnum):
    """What jobs are held for."""

    CARBON = "carbon"
    PRICE = "price"


GridFolder = Annotated[
    Path | None,
    typer.Option(
        "--grid",
        help="Folder of hourly carbon intensity and price, one subfolder a zone: energy, carbon and cost are told.",
        show_default="none: nothing is told of them",
    ),
]
Zone = Annotated[
    str | None, typer.Option("--zone", help="Zone of the grid, as DE-LU.", show_default="the only one there")
]
Basis = Annotated[
    BasisOption | None,
    typer.Option(
        "--carbon-basis", help="Emissions over a plant's life cycle, or of its operation alone.", show_default="lca"
    ),
]
GridStart = Annotated[
    str | None,
    typer.Option(
        "--grid-start",
        metavar="MOMENT",
        help="When on the grid the simulation begins, as 2023-06-01T12:00+02:00; UTC without an offset.",
        show_default="its first hour; recorded: month, day and time of the first submission",
    ),
]
Power = Annotated[
    Path | None,
    typer.Option(
        "--power",
        help="TOML file of what machines draw, laid over the shipped table; without --grid energy alone is told.",
        show_default="the shipped table, with --grid",
    ),
]
Pue = Annotated[
    float | None,
    typer.Option(
        "--pue", help="The site's energy over that of its machines.", min=1.0, max=10.0, show_default="the power file's"
    ),
]
SlackOption = Annotated[
    str | None,
    typer.Option(
        "--slack",
        help="How long a job may be held for a cleaner hour: 6h, 90m, or 50% of its predicted run time.",
        show_default="nobody is held",
    ),
]
ShiftBy = Annotated[
    ShiftOption | None, typer.Option("--shift-by", help="What jobs are held for.", show_default="carbon")
]
