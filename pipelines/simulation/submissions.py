"""The submissions of a trace as recorded: which of its jobs are replayed, and what is said of those that are not.

Nothing is simulated here. Called by `taut simulate --arrivals recorded` and by `pipelines.studies.replay`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import polars as pl

from features.tables import has_ended
from pipelines.errors import BadUsage, LakeError

KEYS: Final = ("trace", "cluster", "job_id", "role")
SHOWN: Final = 8
"""How many names an error lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submissions:
    """Canonical jobs (n rows) by submission, then key; each has a run time.

    `dropped` counts the jobs left out by why. `lower_bounds` counts the jobs whose run time is only known to be longer
    (cut, clamped or still running): they run as long as was seen.
    """

    jobs: pl.DataFrame
    dropped: Mapping[str, int]
    lower_bounds: int

    def notes(self) -> list[str]:
        """Say what a reader of any figure has to know of the jobs."""
        said = [f"{self.jobs.height} recorded jobs, by their own submissions"]
        if any(self.dropped.values()):
            said.append("left out: " + ", ".join(f"{count} {why}" for why, count in self.dropped.items() if count))
        if self.lower_bounds:
            said.append(f"{self.lower_bounds} run times are lower bounds (cut, clamped or running): taken as they are")
        return said


def submissions(
    jobs: pl.DataFrame, *, since: datetime | None = None, until: datetime | None = None, vc: str | None = None
) -> Submissions:
    """Take the jobs submitted in [since, until) to one VC, or to all; leave out and count what never ran.

    Raises
    ------
    BadUsage
        If the jobs are of several clusters, or there is no such VC.
    LakeError
        If no job is left.
    """
    clusters = jobs["cluster"].unique().sort().to_list()
    if len(clusters) > 1:
        raise BadUsage(
            f"found jobs of the clusters {', '.join(clusters)}, expected those of one: name it with --cluster"
        )
    if vc is not None and vc not in jobs["vc"]:
        held = jobs["vc"].drop_nulls().unique().sort().to_list()
        known = ", ".join([*held[:SHOWN], *(["..."] if len(held) > SHOWN else [])])
        raise BadUsage(f"no VC {vc!r} among the jobs; they name {known or 'none'}")
    wanted = [
        pl.lit(value=True),
        *([] if vc is None else [pl.col("vc") == vc]),
        *([] if since is None else [pl.col("submit_ts") >= since]),
        *([] if until is None else [pl.col("submit_ts") < until]),
    ]
    asked = jobs.filter(*wanted)
    ran = pl.col("run_s").fill_null(0.0) > 0.0
    kept = asked.filter(ran).sort("submit_ts", *KEYS)
    if kept.is_empty():
        raise LakeError(
            f"found no job with a run time among {asked.height} in the window, of {jobs.height} in all; "
            "expected at least one: widen --since and --until, or name another --vc"
        )
    bounds = kept.select((pl.col("run_s_censored") | ~has_ended()).sum()).item()
    return Submissions(jobs=kept, dropped={"without a run time": asked.height - kept.height}, lower_bounds=int(bounds))
