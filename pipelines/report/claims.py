"""The report's section on over-claim: request and use, slack in resource-hours, and its cost at a given price."""

import math
from dataclasses import dataclass
from typing import Final

import polars as pl

from pipelines.errors import BadUsage
from pipelines.report.charts.distributions import request_and_use
from pipelines.report.charts.shares import slack_hours, slack_share
from pipelines.report.parts import Figure, Note, Part, Section, Table, Traces

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


DRAWN: Final = (("cpu_cores", "mean"), ("gpus", "mean"), ("mem_gib", "peak"), ("gpu_mem_gib", "peak"))
"""Measure of use that is drawn for each resource: the one below which its request must not shrink."""
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
    for trace in kinds.traces:
        rows = gpu_slack(kinds.of(trace)).sort("requested_h", descending=True)
        if rows.height:
            chart = slack_hours(rows, "task_type", trace)
            parts.append(Figure(name=f"slack_by_kind-{trace}", chart=chart, rows=rows))
    said = (
        "Measured tasks that request some of the resource, per instance; basis: definition of the request; requested_h "
        "and slack_h in core-, GPU- and GiB-hours; slack_h is the request above use, times instances and run time"
    )
    parts += whole.table("over_claim", "Request above use", said, COLUMNS)
    parts += [_cost(kinds.rows, price)] if whole.rows.width else []
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


def priced(rows: pl.DataFrame, price: Price) -> pl.DataFrame:
    """Add the cost of requested hours and of slack hours to the rows."""
    return rows.with_columns(
        (pl.col(hours) * price.amount).alias(f"{name} ({price.currency})")
        for name, hours in (("requested", "requested_h"), ("slack", "slack_h"))
    )


def _cost(kinds: pl.DataFrame, price: Price | None) -> Part:
    rows = gpu_slack(kinds).select("trace", "task_type", "tasks", "requested_h", "slack_h", "slack_share")
    if price is None or not rows.height:
        return Note(text='No price given: --price-gpu-hour "2.50 USD" adds the cost of slack.')
    return Table(
        name="slack_cost",
        title=f"GPU slack by kind, at {price} per GPU-hour",
        rows=priced(rows, price),
        said="GPU-hours of measured tasks, the mean use over a run against the request; the price is as given",
    )
