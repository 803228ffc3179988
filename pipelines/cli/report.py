"""`taut report`: traces and their models as one HTML page that opens without a network.

Options and output only; the work is in `pipelines.report`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipelines.cli.commands import named
from pipelines.cli.failures import write_whole
from pipelines.cli.options import CLUSTER, LAKE, place_of, say
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, option

if TYPE_CHECKING:
    from modelserve.bundle.champions import Champions
    from pipelines.simulation.energy.meters import Meters


@dataclass(frozen=True, kw_only=True)
class GridOptions:
    """Options for energy, carbon and cost."""

    grid: Path | None = option(
        None,
        "Folder of hourly carbon intensity and price, one subfolder per zone; adds energy, carbon and cost.",
        shown="none: the carbon and cost columns are omitted",
    )
    zone: str | None = option(None, "Zone of the grid, as DE-LU.", shown="the only one there")
    power: Path | None = option(
        None, "TOML file of power figures, merged over the shipped table.", shown="the shipped table"
    )
    pue: float | None = option(
        None, "The site's energy over that of its machines.", minimum=1.0, maximum=10.0, shown="the power file's"
    )

    def meters(self) -> "Meters | None":
        """Read the grid and the power table; return None without a grid, so that the report has no energy section."""
        from pipelines.simulation.energy.meters import Meters

        if self.grid is not None:
            return Meters.of(self.grid, self.zone, self.power, self.pue)
        given = [f"--{name}" for name in ("zone", "power", "pue") if getattr(self, name) is not None]
        if given:
            raise BadUsage(f"found {', '.join(given)} without --grid, expected a folder of zones with it")
        return None


def report(
    energy: GridOptions,
    out: Path = option(REQUIRED, "File to write; an existing one is replaced."),
    lake: str | None = LAKE,
    trace: tuple[str, ...] = option((), "A trace (may be repeated).", shown="all of the lake"),
    cluster: str | None = CLUSTER,
    price_gpu_hour: str | None = option(None, 'Price of a GPU-hour, as "2.50 USD".', shown="no money"),
    bundles: Path | None = option(None, "Folder of mirrored models.", shown="TAUT_BUNDLES, else by the lake"),
    no_models: bool = option(False, "Leave models out."),
    title: str = option("GPU clusters: claims and use", "The page's title."),
) -> None:
    """Write one self-contained HTML page about traces: requests against use, run times, waits, utilisation, models.

    Charts and tables hold aggregates only, each with units and n; tables can be downloaded. The same lake and models
    give the same bytes.
    """
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.report.claims import price_of
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
        meters=energy.meters(),
        problems=() if models is None else tuple(f"{name}: {reason}" for name, reason in models.failures.items()),
    )
    with OpenLake(place.lake) as source:
        page = written(source, chosen(source, list(trace)), order)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, page)
    say(f"{out}: {len(page.encode()) / 1e6:.1f} MB, opens in any browser without a network")


def _champions(named: Path | None, beside: Path) -> "Champions":
    """Read the models in the folder `named`, which must exist; without it those in the folder `beside`, if any."""
    from modelserve.bundle.champions import read_champions

    if named is not None and not named.is_dir():
        raise BadUsage(f"--bundles {named}: no such folder, expected one with cached models; or give --no-models")
    return read_champions(named or beside)


def _check_target(out: Path) -> None:
    """Raise BadUsage if the file cannot be written; called before the work begins."""
    from pipelines.simulation.results_folder import open_folder

    if out.is_dir():
        raise BadUsage(f"--out {out}: found a folder, expected a file's name such as report.html")
    open_folder(out.parent)


COMMANDS: Final = named(report)
