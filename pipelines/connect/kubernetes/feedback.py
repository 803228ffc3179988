"""Report ended pods to the service, once or as they end."""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from modelserve.client import Client
from modelserve.contract.feedback import FeedbackRow
from modelserve.errors import ClientError

__all__ = ["follow_pods", "report_pods"]

TOGETHER: Final = 500
WAITING: Final = 10_000
"""Most reports that wait for a service that is away; the oldest are dropped, since a restart reads all pods again."""

REMEMBERED: Final = 100_000

Object = dict[str, Any]  # Any: JSON of Kubernetes
Report = Callable[[Object], FeedbackRow | None]
log = logging.getLogger("taut.kubernetes")


def report_pods(pods: Sequence[Object], report: Report, client: Client) -> dict[str, int]:
    """Report all pods of a list that have ended; return the numbers of pods, reports, and how the service took them."""
    rows = [row for row in map(report, pods) if row is not None]
    counts = {"pods": len(pods), "reports": len(rows), "accepted": 0, "duplicates": 0, "conflicts": 0}
    for at in range(0, len(rows), TOGETHER):
        answer = client.feedback(rows[at : at + TOGETHER])
        for name in ("accepted", "duplicates", "conflicts"):
            counts[name] += getattr(answer, name)
    return counts


def follow_pods(changes: Iterable[tuple[str, Object]], report: Report, client: Client) -> None:
    """Report each pod of a stream of changes when it has ended; return at the end of the stream.

    Reports that the service does not take wait until a later change. A job is reported once.
    """
    told: OrderedDict[str, None] = OrderedDict()
    waiting: list[FeedbackRow] = []
    for change, pod in changes:
        row = None if change == "RESET" else report(pod)
        if row is not None and row.job_id not in told:
            told[row.job_id] = None
            waiting.append(row)
        while len(told) > REMEMBERED:
            told.popitem(last=False)
        waiting = _sent(waiting[-WAITING:], client)


def _sent(rows: list[FeedbackRow], client: Client) -> list[FeedbackRow]:
    """Send reports and return those that still wait."""
    if not rows:
        return []
    try:
        answer = client.feedback(rows[:TOGETHER])
    except ClientError as error:
        log.warning("%s reports wait: %s", len(rows), error)
        return rows
    log.info("reported %s: %s new", len(answer.results), answer.accepted)
    return rows[TOGETHER:]
