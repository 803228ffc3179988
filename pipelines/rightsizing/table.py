"""Terminal tables of `taut rightsize` and `taut recommend`: one line per requested resource, with its severity."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from pipelines.rightsizing.rows import By
from scheduler_core.types import RESOURCES, Reason

__all__ = ["advice_rows", "table_rows"]

FIRST_AMOUNTS: Final = {"request": ("", 7), "target": ("_target", 6)}
MORE_AMOUNTS: Final = {"p95": ("_p95", 4), "peak": ("_peak", 4)}
"""Headings of measured use, each with its column suffix and width. They are the last columns, which a narrow terminal
leaves out first."""

NAME_LENGTH: Final = 8
"""Minimum length to which names of users and groups are cut; more if they would look alike."""
ROLE_LENGTH: Final = 10

RAISE: Final = "raise"
HIGH_SAVING: Final = 0.5
MEDIUM_SAVING: Final = 0.2
"""Share of a request from which a recommendation that saves it has this severity."""

MOST_LACKED: Final = 9.0
"""Multiple of the request from which a lack is not printed exactly."""

Named = Mapping[str, Any]  # a row has texts, numbers and times


def table_rows(rows: pl.DataFrame, by: By) -> list[dict[str, object]]:
    """Return one line per row and requested resource; amounts are formatted as texts, because units differ.

    Names are cut to the fewest characters (at least `NAME_LENGTH`) that keep them distinct, so each can be copied to
    `--only`.
    """
    length = _distinct([_name(row, by) for row in rows.iter_rows(named=True)])
    return [
        {
            "severity": RAISE if row[f"{resource}_reason"] == Reason.TOO_LITTLE else row["severity"],
            by: _name(row, by)[:length],
            "role": _short(row["role"], ROLE_LENGTH),
            "resource": resource,
            **_amounts(row, resource, FIRST_AMOUNTS),
            "slack_h": _amount(_slack_h(row, resource), 7),
            "slack": _percent(_slack_h(row, resource), row[f"{resource}_requested_h"]),
            "reason": row[f"{resource}_reason"],
            "rests_on": _evidence(row),
            "runs": row["runs"],
            **_amounts(row, resource, MORE_AMOUNTS),
        }
        for row in rows.iter_rows(named=True)
        for resource in RESOURCES
        if row[resource] is not None
    ]


def advice_rows(answers: Sequence[Named]) -> list[dict[str, object]]:
    """Return one line per job and requested resource of the flat rows of `taut recommend`.

    Severity is `raise` if measured use exceeds the request, else by the share that the target saves: `high` from 50 %,
    `medium` from 20 %.
    """
    return [
        {"severity": severity, "job_id": row["job_id"], "resource": resource}
        | {"request": _amount(row[resource], 7), "target": _amount(target, 6)}
        | {"saves": _percent(row[resource] - target, row[resource]), "reason": row[f"{resource}_reason"]}
        | {"floor": _amount(row[f"{resource}_lower_bound"], 6), "runs": row["measured_runs"]}
        for row in answers
        for resource in RESOURCES
        if row[resource] is not None
        for target, severity in [_advised(row, resource)]
    ]


def _advised(row: Named, resource: str) -> tuple[float, str | None]:
    """Return the amount to ask for, and its severity."""
    request, raised = float(row[resource]), row.get(f"{resource}_raise_to")
    if raised is not None:
        return float(raised), RAISE
    target = request if row[f"{resource}_target"] is None else float(row[f"{resource}_target"])
    saved = 1.0 - target / request if request else 0.0
    low = "low" if saved > 0.0 else None
    return target, "high" if saved >= HIGH_SAVING else "medium" if saved >= MEDIUM_SAVING else low


def _distinct(names: Sequence[str]) -> int:
    """Return the smallest length, at least `NAME_LENGTH`, to which different names can be cut and stay different."""
    different, longest = len(set(names)), max(map(len, names), default=NAME_LENGTH)
    lengths = range(NAME_LENGTH, longest)
    return next((length for length in lengths if len({name[:length] for name in names}) == different), longest)


def _amounts(row: Named, resource: str, shown: Mapping[str, tuple[str, int]]) -> dict[str, object]:
    return {heading: _amount(row[f"{resource}{of}"], width) for heading, (of, width) in shown.items()}


def _name(row: Named, by: By) -> str:
    if by == "group" and row["group"] is None and row["user"] is not None:
        return f"@{row['user']}"  # a row of a user's jobs that have no group
    return str(row["task_type" if by == "type" else by] or "-")


def _short(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _amount(value: float | None, width: int) -> str:
    """Return an amount with three digits or two decimals, right-aligned."""
    if value is None:
        return "-".rjust(width)
    decimals = 0 if abs(value) >= 100.0 else 1 if abs(value) >= 10.0 else 2
    text = f"{value:.{decimals}f}"
    return (text.rstrip("0").rstrip(".") if decimals else text).rjust(width)


def _slack_h(row: Named, resource: str) -> float:
    """Return the hours that the targets free, negative if they add more than they free."""
    return float(row[f"{resource}_reclaimable_h"] - row[f"{resource}_missing_h"])


def _percent(slack_h: float, requested_h: float) -> str:
    if not requested_h > 0.0:
        return "-".rjust(len("slack"))
    share = slack_h / requested_h if abs(slack_h) >= 0.005 * requested_h else 0.0
    return (f"{share:.0%}" if share > -MOST_LACKED else f"<-{MOST_LACKED:.0f}x").rjust(len("slack"))


def _evidence(row: Named) -> str:
    """Return the evidence for a row's targets as text: group or user, and the number of runs."""
    return f"{row['evidence'] or 'too few'} {row['evidence_runs']}"
