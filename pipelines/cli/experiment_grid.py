"""`taut experiment grid-forecast`: how far simple forecasts of a grid's carbon intensity and price lie off.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the command.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from pipelines.cli.options import Format, FormatOption, emit, say

GridFolder = Annotated[
    Path | None,
    typer.Option(
        "--grid", help="Folder of hourly series, one subfolder a zone.", show_default="grid below TAUT_ENERGY"
    ),
]
Zones = Annotated[
    list[str] | None, typer.Option("--zone", help="Only this zone (may be repeated).", show_default="all of them")
]
Horizons = Annotated[
    list[int] | None,
    typer.Option(
        "--horizon-h",
        help="Hours ahead (may be repeated).",
        min=1,
        max=168,
        show_default="1, 3, 6, 12, 24 and 48",
    ),
]


def grid_forecast(
    grid: GridFolder = None, zones: Zones = None, horizons: Horizons = None, form: FormatOption = Format.TABLE
) -> None:
    """Judge persistence and the same hour yesterday on every zone and horizon of a folder of hourly series."""
    from pipelines.settings import load_settings
    from pipelines.studies.energy.forecast_rows import HORIZONS_H, forecast_rows

    rows, notes = forecast_rows(grid or load_settings().energy / "grid", zones, horizons or HORIZONS_H)
    for note in notes:
        say(note)
    emit(rows, form)


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {"grid-forecast": grid_forecast}
"""By the name of the subcommand."""
