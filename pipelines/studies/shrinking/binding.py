"""Which resource stops waiting jobs, and which floor, or what else, keeps an arm from giving it free.

Puts what runs lack beside where the slack stays; nothing is simulated here. Called by `tables`.
"""

from collections import defaultdict
from collections.abc import Sequence

from pipelines.studies.shrinking.claims import Row
from pipelines.studies.shrinking.goal import BINDS_FROM, TRUTH
from pipelines.studies.shrinking.runs import SHORT
from scheduler_core.types import Reason


def binding_rows(harm: Sequence[Row], slack: Sequence[Row]) -> list[Row]:
    """Return, by population, arm and resource under contention, who lacks it and what holds back its slack.

    `lacked_share` is that of `harm`; `binds` tells whether half of the waiting jobs lack it. `left_share` is how much
    of what is requested beyond need stays, over all types; `left_by` and `left_by_type` name the reason that leaves the
    most of it and the type where it does, `left_by_share` how much that is; `floor_share` is what floors above the need
    leave.
    """
    left: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in slack:
        left[row["gnn"], row["devices"], row["arm"], row["resource"]].append(row)
    rows: list[Row] = []
    for place in (row for row in harm if row["truth"] == TRUTH):
        for resource, short in SHORT.items():
            if kept := left.get((place["gnn"], place["devices"], place["arm"], resource)):
                lacked = _number(place[f"{short}_lacked_share"])
                said = {name: place[name] for name in ("gnn", "devices", "truth", "arm")}
                found = {"resource": resource, "lacked_share": lacked, "binds": lacked >= BINDS_FROM}
                rows.append({**said, **found, **_left(kept)})
    return rows


def _left(kept: Sequence[Row]) -> Row:
    by_reason: dict[str, float] = defaultdict(float)
    for row in kept:
        by_reason[str(row["reason"])] += _number(row["left_share"])
    reason = max(by_reason, key=lambda name: by_reason[name])
    most = max((row for row in kept if row["reason"] == reason), key=lambda row: _number(row["left_share"]))
    return {
        "left_share": sum(by_reason.values()),
        "left_by": reason,
        "left_by_share": by_reason[reason],
        "left_by_type": most["task_type"],
        "floor_share": by_reason.get(Reason.FLOOR, 0.0),
    }


def _number(value: object) -> float:
    return float(str(value))
