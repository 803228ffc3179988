"""Assemble a report: all sections about the chosen traces on one page."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pipelines.errors import BadUsage, LakeError
from pipelines.lake.lake import Lake
from pipelines.report.claims import Price, claims
from pipelines.report.durations import run_times, waits
from pipelines.report.energy import energy
from pipelines.report.headline import headline
from pipelines.report.machines import busyness, environment
from pipelines.report.models import Bundles, models
from pipelines.report.overview import overview, people, quality
from pipelines.report.page import page
from pipelines.report.panels import SERIES
from pipelines.report.parts import Section, Traces
from pipelines.simulation.energy.site import Meters

__all__ = ["Order", "chosen", "report"]

MOST_TRACES: Final = len(SERIES)
"""Maximum number of traces in a report: the number of colours that colour-blind readers can distinguish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Options of a report: cluster (None: all), price of a GPU-hour, models, energy meters.

    Without a price, models or meters, the report leaves out what needs them.
    """

    title: str
    cluster: str | None = None
    price: Price | None = None
    bundles: Bundles | None = None
    meters: Meters | None = None
    problems: tuple[str, ...] = field(default=())


SECTIONS: Final[dict[str, Callable[[Traces, Order], Section | None]]] = {
    "headline": lambda traces, order: headline(traces, order.price),
    "overview": lambda traces, _: overview(traces),
    "over-claim": lambda traces, order: claims(traces, order.price),
    "run-times": lambda traces, _: run_times(traces),
    "queueing": lambda traces, _: waits(traces),
    "utilisation": lambda traces, _: busyness(traces),
    "environment": lambda traces, _: environment(traces),
    "energy": lambda traces, order: None if order.meters is None else energy(traces, order.meters),
    "people": lambda traces, order: people(traces, order.price),
    "models": lambda traces, order: None if order.bundles is None else models(traces, order.bundles, order.problems),
    "data": lambda traces, _: quality(traces),
}
"""Functions that build the sections, by HTML anchor, in the order of the page."""


def chosen(lake: Lake, names: list[str] | None) -> tuple[str, ...]:
    """Return the named traces, each once, or all traces of the lake."""
    wanted = tuple(dict.fromkeys(names or lake.traces()))
    if not wanted:
        raise LakeError(f"no lake at {lake.path}; make one with `taut ingest`")
    for name in wanted:
        lake.manifest(name)
    if len(wanted) > MOST_TRACES:
        raise BadUsage(
            f"found {len(wanted)} traces, expected at most {MOST_TRACES} side by side; name them with --trace"
        )
    return wanted


def sections(lake: Lake, names: tuple[str, ...], order: Order) -> list[Section]:
    """Build the sections about the traces; the section on models needs bundles, the one on energy needs meters."""
    traces = Traces(lake=lake, names=names, cluster=order.cluster)
    made = (make(traces, order) for make in SECTIONS.values())
    return [each for each in made if each is not None]


def report(lake: Lake, names: tuple[str, ...], order: Order) -> str:
    """Return the report as one HTML page; the same lake, models and order give the same bytes."""
    return page(order.title, subtitle(names, order), sections(lake, names, order))


def is_synthetic(name: str) -> bool:
    """Return whether a trace is synthetic, judged by its name: ingest never names synthetic data as a real trace.

    >>> is_synthetic("pai-synth"), is_synthetic("pai")
    (True, False)
    """
    return "synth" in name.replace("_", "-").split("-")


def subtitle(names: tuple[str, ...], order: Order) -> str:
    """Return the page's subtitle: traces, cluster and price."""
    price = "" if order.price is None else f" Price of a GPU-hour: {order.price}, as given."
    only = "" if order.cluster is None else f", cluster {order.cluster}"
    said = ", ".join(f"{name} (synthetic: generated, not recorded)" if is_synthetic(name) else name for name in names)
    return f"Traces: {said}{only}. Aggregates only; times local to each trace's own zone.{price}"
