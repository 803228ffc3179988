"""Hold calls: until when each job waits, within its slack, for an hour with cleaner or cheaper energy.

The decision is `scheduler_core.planning.release`; this module converts rows and gives reasons. No HTTP and no models
here. Called by the service, by `modelserve.calls.replay` for logged calls, and by `taut plan hold`.
"""

import numpy as np

from modelserve.calls.logged_context import Answered, Call
from modelserve.calls.plans import Values, moment_of, reason_counts, utc_text, with_modes
from modelserve.calls.request_context import RequestContext
from modelserve.contract.holds import HoldBody
from modelserve.contract.writing import written
from modelserve.errors import BadRequest
from scheduler_core.planning.hourly import HOUR_S, HourlySeries
from scheduler_core.planning.release import CLAIRVOYANT, foreseen, released_s
from scheduler_core.types import BoolArray

__all__ = ["hold_rows", "holds"]


def holds(context: RequestContext, body: HoldBody, call: Call) -> Answered:
    """Return the response to a hold call."""
    rows = with_modes(context, body.jobs, hold_rows(body, moment_of(body, call)), call)
    return Answered(body=written({"answer_id": call.answer_id, "holds": rows}), counts=reason_counts("hold", rows))


def hold_rows(body: HoldBody, now: float) -> list[Values]:
    """Return until when to hold each job at `now` (Unix time), as the fields of `Held` without modes.

    Raises
    ------
    BadRequest
        The series has no value of the current hour.
    """
    unit = "g/kWh" if body.by == "carbon" else "USD/kWh"
    known = HourlySeries(start_s=body.hours.start_ts.timestamp(), values=np.array(body.hours.values), unit=unit)
    if not known.start_s <= now < known.until_s:
        raise BadRequest(f"hours: found none of {utc_text(now)}, expected the value of the current hour among them")
    run_s, slack_s = (np.array([getattr(row, name) for row in body.jobs]) for name in ("run_s", "slack_s"))
    arrive_s = np.full(len(run_s), now)
    series = foreseen(known, now + float((run_s + slack_s).max()) + 2 * HOUR_S)
    until_s = released_s(arrive_s, slack_s, run_s, series, 0.0, CLAIRVOYANT)
    now_mean, then_mean = (series.integral(at, at + run_s) / (run_s / HOUR_S) for at in (arrive_s, until_s))
    held: BoolArray = until_s > arrive_s
    rows = []
    for at, row in enumerate(body.jobs):
        mean, then = float(now_mean[at]), float(then_mean[at])
        reason = "better_hour" if held[at] else "now_is_best" if row.slack_s >= HOUR_S else "no_slack"
        note = f"{mean:.4g} {unit} now" + (f", {then:.4g} from {utc_text(float(until_s[at]))} on" if held[at] else "")
        rows.append(
            {
                "job_id": row.job_id,
                "until_ts": utc_text(float(until_s[at])) if held[at] else None,
                "mean_now": mean,
                "mean_then": then,
                "reason": reason,
                "note": note,
            }
        )
    return rows
