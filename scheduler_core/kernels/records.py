"""Records of scheduling rounds: one job, kind of gang, run, heap entry, and the totals; and their uncompiled form.

The arrays of these records are in `state`.
"""

from types import SimpleNamespace
from typing import Any, Final

import numpy as np

__all__ = [
    "ACTIVE",
    "BUCKET",
    "DRF",
    "ENTRY",
    "EXPECTED",
    "FIXED",
    "FRONT",
    "JOB",
    "LAS",
    "NONE",
    "RUN",
    "SRTF",
    "TALLY",
    "Records",
    "Rows",
]

Records = Any  # an array with one of the dtypes below, or its `Rows`; mypy cannot check its fields

NONE: Final = -1
"""Code for no job, no bucket, no machine or no head of the queue."""

FIXED: Final = 0
SRTF: Final = 1
LAS: Final = 2
DRF: Final = 3
"""How queue keys depend on what a job has attained; see `queueing.QUEUE_POLICIES`."""

JOB: Final = np.dtype(
    [
        ("arrive_s", "f8"),
        ("run_s", "f8"),
        ("granted_run_s", "f8"),
        ("predicted_s", "f8"),  # infinity if unknown
        ("owed_s", "f8"),  # seconds of restart at the start of the next run, without progress
        ("granted_key", "f8"),  # constant part of the queue key, with the granted amounts
        ("full_key", "f8"),  # constant part of the queue key, with the full request
        ("rank", "f8"),  # queue key while the job waits
        ("left_s", "f8"),  # duration of the next start
        ("attained_s", "f8"),  # run time in earlier starts, without lost work and restarts
        ("finished_s", "f8"),
        ("user", "i8"),
        ("granted_bucket", "i8"),
        ("full_bucket", "i8"),
        ("child", "i8"),  # links of the job in its bucket's heap
        ("sibling", "i8"),
        ("slot", "i8"),  # position of the job's run in `Log.active`
        ("full", "?"),
        ("dies", "?"),
        ("fails", "?"),
        ("never_fits", "?"),
    ],
    align=True,
)

BUCKET: Final = np.dtype(
    [
        ("instances", "i8"),
        ("gpu_type", "i8"),
        ("count", "i8"),  # devices of an instance, and milli-GPUs of each
        ("milli", "i8"),
        ("user", "i8"),  # user of the jobs, if the policy orders by users' shares
        ("shape", "i8"),  # number of the demand, equal for buckets that differ only by user
        ("top", "i8"),  # first job of the bucket's heap
        ("waiting", "i8"),  # number of waiting jobs, in the heap or in `Queue.front`
        ("place", "i8"),  # position of the bucket in `Queue.filled`
        ("possible", "?"),  # whether the gang fits the empty cluster
        ("passed", "i1"),  # state of the bucket in the current round
        ("stuck_at", "i8"),  # value of `changes` when the gang was stuck (see `preemption`); NONE: not known
        ("stuck_missing", "i8"),  # lower bound of the number of instances that did not fit when the gang was stuck
        ("stuck_rank", "f8"),  # queue key of the bucket's first job when the gang was stuck
        ("stuck_until_s", "f8"),  # earliest time at which a run's queue key may become worse than `stuck_rank`
    ],
    align=True,
)

RUN: Final = np.dtype(
    [
        ("start_s", "f8"),
        ("end_s", "f8"),
        ("job", "i8"),
        ("bucket", "i8"),  # bucket of the job when it started
        ("first_host", "i8"),  # index of the run's first machine in `Log.hosts`; the next run's index ends the range
        ("full", "?"),
        ("ending", "i1"),
    ],
    align=True,
)

ACTIVE: Final = np.dtype(
    [
        ("start_s", "f8"),
        ("attained_s", "f8"),  # of the job, before this run; so are the fields below
        ("owed_s", "f8"),
        ("base", "f8"),  # constant part of the queue key
        ("arrive_s", "f8"),
        ("run", "i8"),
        ("bucket", "i8"),
    ],
    align=True,
)

EXPECTED: Final = np.dtype([("end_s", "f8"), ("run", "i8")], align=True)
FRONT: Final = np.dtype([("job", "i8"), ("bucket", "i8")], align=True)
ENTRY: Final = np.dtype([("value", "f8"), ("tie", "i8"), ("what", "i8")], align=True)

TALLY: Final = np.dtype(
    [
        ("now_s", "f8"),
        ("waiting", "i8"),
        ("waiting_hosts", "i8"),  # upper bound of the number of machines that all waiting jobs would use
        ("filled", "i8"),
        ("changes", "i8"),  # number of times so far that a machine gained free capacity
        ("ripe", "i8"),  # number of runs that have run for a quantum; they are the first in order of start
        ("running", "i8"),
        ("runs", "i8"),
        ("ends", "i8"),  # number of runs in `Log.ends`
        ("hosts", "i8"),
        ("arrivals", "i8"),
        ("aim_at", "i8"),  # number of arrivals from which on placements have a new target workload
        ("head", "i8"),
        ("overtaken", "i8"),
        ("offers", "i8"),
        ("aside", "i8"),
        ("front", "i8"),  # number of jobs in `Queue.front`
        ("seen", "i8"),  # number of arrivals when backfill last tried the front and started nothing
        ("lent", "i8"),  # number of first entries of `Log.expected` whose runs the reservation counts as ended
        ("reserved_for", "i8"),  # head of the last reservation; the fields below were set with it
        ("reserved_changes", "i8"),
        ("reserved_runs", "i8"),
        ("shadow_s", "f8"),
        ("heaped", "i8"),  # number of `Scratch.picks` still in the heap
    ],
    align=True,
)


class Rows(list[SimpleNamespace]):
    """The records of an array as Python objects: uncompiled code reads their fields ten times as fast.

    As with an array, an assignment copies the record.
    """

    def __init__(self, records: np.ndarray[Any, Any]) -> None:
        names = records.dtype.names or ()
        super().__init__(SimpleNamespace(**dict(zip(names, row, strict=True))) for row in records.tolist())

    def __setitem__(self, at: Any, row: Any) -> None:
        vars(self[at]).update(vars(row))

    def write(self, records: np.ndarray[Any, Any]) -> None:
        """Write the records back to their array."""
        records[:] = [tuple(vars(row).values()) for row in self]
