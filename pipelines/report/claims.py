"""The report's section on over-claim: request and use, slack in resource-hours, and its cost at a given price."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import altair as alt
import polars as pl

from pipelines.errors import BadUsage
from pipelines.report.panels import (
    BLACK,
    BLUE,
    counted,
    drawn,
    names,
    panel,
    share,
    spaced,
    tips,
    trace_colour,
    traces_in,
)
from pipelines.report.parts import Note, Part, Section, Table, Traces

__all__ = ["price_of"]

LONGEST_CURRENCY: Final = 12
MOST_AMOUNT: Final = 1e9
"""Maximum price, high enough for any currency and low enough for costs to fit a table cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of one GPU for one hour; `written` is the amount as the user wrote it."""

    amount: float
    currency: str
    written: str

    def __str__(self) -> str:
        return f"{self.written} {self.currency}"


def price_of(text: str) -> Price:
    """Parse an amount with its currency.

    >>> print(price_of("2.50 USD"))
    2.50 USD
    """
    number, _, currency = text.strip().partition(" ")
    currency = currency.strip()
    try:
        amount = float(number)
    except ValueError:
        amount = math.nan
    if not 0 < amount <= MOST_AMOUNT:
        raise BadUsage(
            f"found the price {text[:40]!r}, expected an amount above 0, at most {MOST_AMOUNT:.0f}, and its currency, "
            "as '2.50 USD'"
        )
    if not currency or len(currency) > LONGEST_CURRENCY or not currency.isprintable():
        raise BadUsage(
            f"found the price {text[:40]!r} without a currency of 1 to {LONGEST_CURRENCY} characters; "
            "expected it after the amount, as '2.50 USD'"
        )
    return Price(amount=amount, currency=currency, written=number)


UNITS: Final = {"cpu_cores": "cores", "gpus": "GPUs", "mem_gib": "GiB", "gpu_mem_gib": "GiB"}
RESOURCES: Final = {"cpu_cores": "CPU", "gpus": "GPU", "mem_gib": "Memory", "gpu_mem_gib": "GPU memory"}
LEAST_AMOUNT: Final = 0.01
DRAWN: Final = (("cpu_cores", "mean"), ("gpus", "mean"), ("mem_gib", "peak"), ("gpu_mem_gib", "peak"))
"""Measure of use that is drawn for each resource: its request must not shrink below this use."""
COLUMNS: Final = (
    "trace",
    "resource",
    "use",
    "basis",
    "tasks",
    "over_claim_share",
    "mean_request",
    "mean_use",
    "requested_h",
    "slack_h",
    "slack_share",
)


def claims(traces: Traces, price: Price | None) -> Section:
    """Build the section: request and use of each resource, slack by resource and type of work, and its cost."""
    whole = traces.ask("over_claim")
    kinds = traces.ask("over_claim", "task_type")
    parts = whole.figure("slack_share", lambda rows: slack_share(rows, traces.names))
    points = traces.ask("request_and_use")
    for resource, use in DRAWN:
        wanted = (pl.col("resource") == resource, pl.col("use") == use)
        parts += points.where(*wanted).figures("request_and_use-{trace}-" + resource, request_and_use)
    said = (
        "Measured tasks that request some of the resource, per instance; basis: definition of the request; requested_h "
        "and slack_h in core-, GPU- and GiB-hours; slack_h is the request above use, times instances and run time"
    )
    parts += whole.table("over_claim", "Request above use", said, COLUMNS)
    parts += _by_kind(kinds.rows, price)
    return Section(
        name="over-claim",
        title="Over-claim: request against use",
        intro="Requests of jobs next to their measured use. Not all slack is reclaimable: peaks and margins limit how "
        "far a request can shrink. Parameter servers are left out, because traces measure them with their workers' "
        "sensors. Jobs do not request GPU memory; the memory of the requested GPUs counts as the request.",
        parts=(*parts, *whole.notes),
    )


def gpu_slack(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows of the statistic `over_claim` that are about GPUs and have known hours."""
    return rows.filter(pl.col("resource") == "gpus", pl.col("requested_h").is_not_null())


def priced(rows: pl.DataFrame, price: Price | None) -> pl.DataFrame:
    """Add the cost of requested hours and of slack hours to the rows, if a price is given."""
    if price is None:
        return rows
    return rows.with_columns(
        (pl.col(hours) * price.amount).alias(f"{name} ({price.currency})")
        for name, hours in (("requested", "requested_h"), ("slack", "slack_h"))
    )


def _by_kind(kinds: pl.DataFrame, price: Price | None) -> list[Part]:
    if not kinds.width:
        return []
    rows = gpu_slack(kinds).select("trace", "task_type", "tasks", "requested_h", "slack_h", "slack_share")
    unpriced = Note(text='No price given: --price-gpu-hour "2.50 USD" adds the cost of slack.')
    table = Table(
        name="slack_by_kind",
        title="GPU slack by kind" if price is None else f"GPU slack by kind, at {price} per GPU-hour",
        rows=priced(rows, price),
        said="GPU-hours of measured tasks: mean use over a run against request; the price is that of the option",
    )
    return [*([table] if rows.height else []), *([unpriced] if price is None else [])]


def request_and_use(points: pl.DataFrame, trace: str) -> alt.TopLevelMixin:
    """Draw the CDFs of request and use per instance, for one trace, one resource and one measure of use.

    `points` are rows of the statistic `request_and_use`.
    """
    resource, use = points["resource"][0], points["use"][0]
    series = {"request": "requested", "used": f"used ({use})"}
    shown = points.select(
        "probability",
        series=pl.col("series").replace_strict(series),
        value=pl.col("value").clip(lower_bound=LEAST_AMOUNT),
    )
    lines = list(series.values())
    chart = drawn(
        shown,
        "line",
        style={"interpolate": "step-before", "strokeWidth": 2},
        x=alt.X("value:Q").title(f"{UNITS[resource]} per instance (log scale)").scale(type="log").axis(tickCount=5),
        y=share(alt.Y, "probability", "share of tasks at or below"),
        color=alt.Color("series:N").title(None).scale(domain=lines, range=[BLACK, BLUE]),
        strokeDash=alt.StrokeDash("series:N").title(None).scale(domain=lines, range=[[6, 3], [1, 0]]),
        order="probability:Q",
        tooltip=["series:N", *tips(".4~g", "value"), *tips(".0%", "probability")],
    )
    tasks = int(points["tasks"].max())  # type: ignore[arg-type]  # a column of integers
    of = [f"n = {spaced(tasks)} measured tasks; values below {LEAST_AMOUNT:g} drawn at {LEAST_AMOUNT:g}"]
    return panel(chart, f"{RESOURCES[resource]}: request against use, {trace}", of)


def slack_share(rows: pl.DataFrame, every: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the unused share of requested resource-hours by resource and measure of use, one bar per trace."""
    part = pl.concat_str(pl.col("resource").replace_strict(RESOURCES), pl.lit(", "), "use")
    shown = rows.filter(pl.col("slack_share").is_not_null()).select("trace", "tasks", "slack_share", part=part)
    chart = drawn(
        shown,
        "bar",
        y=names("part", shown),
        yOffset=alt.YOffset("trace:N").sort(traces_in(shown)),
        x=share(alt.X, "slack_share", "share of requested resource-hours", whole=True),
        color=trace_colour(shown, every),
        tooltip=["trace:N", "part:N", *tips(".1%", "slack_share"), "tasks:Q"],
    )
    most = shown.group_by("trace", maintain_order=True).agg(pl.col("tasks").max())
    of = [counted(most.iter_rows(), "measured tasks, at most"), "hours: amount x instances x run time"]
    return panel(chart, "Slack: requested but not used", of, height=230)
