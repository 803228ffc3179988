"""`taut report`: traces and their models as one HTML page that opens without a network.

Options and output only; the work is in `pipelines.report`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.options import Cluster, Lake, place_of, say

if TYPE_CHECKING:
    from modelserve.bundle.champions import Champions
    from pipelines.simulation.energy.meters import Meters

Power = Annotated[
    Path | None,
    typer.Option(
        "--power", help="TOML file of power figures, merged over the shipped table.", show_default="the shipped table"
    ),
]


def report(
    out: Annotated[Path, typer.Option("--out", help="File to write; an existing one is replaced.")],
    lake: Lake = None,
    trace: Annotated[
        list[str] | None, typer.Option("--trace", help="A trace (may be repeated).", show_default="all of the lake")
    ] = None,
    cluster: Cluster = None,
    price_gpu_hour: Annotated[
        str | None,
        typer.Option("--price-gpu-hour", help='Price of a GPU-hour, as "2.50 USD".', show_default="no money"),
    ] = None,
    bundles: Annotated[
        Path | None,
        typer.Option("--bundles", help="Folder of mirrored models.", show_default="TAUT_BUNDLES, else by the lake"),
    ] = None,
    no_models: Annotated[bool, typer.Option("--no-models", help="Leave models out.")] = False,
    grid: Annotated[
        Path | None,
        typer.Option(
            "--grid",
            help="Folder of hourly carbon intensity and price, one subfolder per zone; adds energy, carbon and cost.",
            show_default="none: the carbon and cost columns are omitted",
        ),
    ] = None,
    zone: Annotated[
        str | None, typer.Option("--zone", help="Zone of the grid, as DE-LU.", show_default="the only one there")
    ] = None,
    power: Power = None,
    pue: Annotated[
        float | None,
        typer.Option(
            "--pue",
            help="The site's energy over that of its machines.",
            min=1.0,
            max=10.0,
            show_default="the power file's",
        ),
    ] = None,
    title: Annotated[str, typer.Option("--title", help="The page's title.")] = "GPU clusters: claims and use",
) -> None:
    """Write one self-contained HTML page about traces: requests against use, run times, waits, utilisation, models.

    Charts and tables hold aggregates only, each with units and n; tables can be downloaded. The same lake and models
    give the same bytes.
    """
    from pipelines.errors import BadUsage
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.report.price import price_of
    from pipelines.report.report import Order, chosen
    from pipelines.report.report import report as written

    if no_models and bundles is not None:
        raise BadUsage("--no-models contradicts --bundles; give one of them")
    _check_target(out)
    place = place_of(lake)
    price = None if price_gpu_hour is None else price_of(price_gpu_hour)
    models = None if no_models else _champions(bundles, place.bundles)
    order = Order(
        title=title,
        cluster=cluster,
        price=price,
        bundles=None if models is None else models.bundles,
        meters=_meters(grid, zone, power, pue),
        problems=() if models is None else tuple(f"{name}: {reason}" for name, reason in models.failures.items()),
    )
    with OpenLake(place.lake) as source:
        page = written(source, chosen(source, trace), order)
    _write_whole(out, page)
    say(f"{out}: {len(page.encode()) / 1e6:.1f} MB, opens in any browser without a network")


def _champions(named: Path | None, beside: Path) -> "Champions":
    """Read the models in the folder `named`, which must exist; without it those in the folder `beside`, if any."""
    from modelserve.bundle.champions import read_champions
    from pipelines.errors import BadUsage

    if named is not None and not named.is_dir():
        raise BadUsage(f"--bundles {named}: no such folder, expected one with cached models; or give --no-models")
    return read_champions(named or beside)


def _meters(grid: Path | None, zone: str | None, power: Path | None, pue: float | None) -> "Meters | None":
    """Read the grid and the power table; return None without a grid, so that the report has no energy section."""
    from pipelines.errors import BadUsage
    from pipelines.simulation.energy.meters import Meters

    if grid is not None:
        return Meters.of(grid, zone, power, pue)
    given = [name for name, value in (("--zone", zone), ("--power", power), ("--pue", pue)) if value is not None]
    if given:
        raise BadUsage(f"found {', '.join(given)} without --grid, expected a folder of zones with it")
    return None


def _check_target(out: Path) -> None:
    """Raise BadUsage if the file cannot be written; called before the work begins."""
    from pipelines.errors import BadUsage
    from pipelines.simulation.results_folder import open_folder

    if out.is_dir():
        raise BadUsage(f"--out {out}: found a folder, expected a file's name such as report.html")
    open_folder(out.parent)


def _write_whole(out: Path, text: str) -> None:
    """Write the text to a temporary file and rename it, so that readers never see half a page."""
    out.parent.mkdir(parents=True, exist_ok=True)
    fresh = out.with_name(f".{out.name}.fresh")
    fresh.write_text(text, encoding="utf-8", newline="\n")
    fresh.replace(out)


def register(app: typer.Typer) -> None:
    """Add this file's command to the app."""
    app.command()(report)
