"""The tables that models are trained on: those of the lake, and the finished jobs reported to a service."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import polars as pl

from features.frames import has_ended, needed_mem_gib
from features.tables import TABLES, TASK_TYPES
from features.vocabulary import TASK_TYPE_OF_WORKLOAD, Status, TaskType
from modelserve.contract.feedback_rules import STATUS_OF_OUTCOME, shrunk_resources, teachable_use
from modelserve.errors import StoreError
from modelserve.store import Store
from modelserve.store.finished import Finished, newest_finished
from pipelines.errors import TrainingError
from pipelines.lake.lake import Lake
from pipelines.models import NEWEST

__all__ = ["Tables", "newest_tables", "read_tables"]

Talk = Callable[[str], None]

IDENTITY: Final = ("trace", "cluster", "job_id", "role")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_JOBS: Final = TABLES["jobs"].create_empty().schema
_USAGE: Final = TABLES["usage"].create_empty().schema
_KEY: Final = dict.fromkeys(IDENTITY, pl.String())


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The canonical tables of one trace that models are trained on; `usage` may be empty."""

    jobs: pl.DataFrame
    usage: pl.DataFrame

    @property
    def measured(self) -> pl.DataFrame | None:
        """Return the table of use, None if it is empty."""
        return None if self.usage.is_empty() else self.usage

    @property
    def seen(self) -> datetime | None:
        """Return the time of the latest submission or end, None without jobs."""
        latest = self.jobs.select(pl.max_horizontal(pl.col("submit_ts", "end_ts").max())).item()
        return latest if isinstance(latest, datetime) else None


def read_tables(
    lake: Lake,
    trace: str,
    *,
    cluster: str | None = None,
    feedback: str | None = None,
    newest: int = NEWEST,
    talk: Talk = lambda _: None,
) -> Tables:
    """Read the newest jobs of a trace from the lake, and the finished jobs from a service's store (URL `feedback`).

    To bound the memory, at most `newest` jobs are read from each: the last submitted of the lake, the last reported of
    the store.
    """
    tables = newest_tables(lake, trace, cluster, newest, talk)
    jobs, usage = tables.jobs, with_kills(tables.jobs, tables.usage)
    if feedback is not None:
        finished = read_feedback(feedback, trace, cluster, newest)
        jobs, usage = with_feedback(jobs, usage, finished)
        talk(f"training on {len(finished)} jobs of feedback as well")
    return Tables(jobs=jobs, usage=usage)


def newest_tables(lake: Lake, trace: str, cluster: str | None, newest: int, talk: Talk = lambda _: None) -> Tables:
    """Read the jobs of a trace that were submitted last, at most `newest`, and their use; say if some are left out."""
    jobs, usage = lake.table("jobs", trace, cluster), lake.table("usage", trace, cluster)
    held = int(jobs.select(pl.len()).collect().item())
    if held <= newest:
        return Tables(jobs=jobs.collect(), usage=usage.collect())
    oldest = jobs.select(pl.col("submit_ts").top_k(newest).min()).collect(engine="streaming").item()
    later = jobs.filter(pl.col("submit_ts") > oldest).collect(engine="streaming")
    ties = jobs.filter(pl.col("submit_ts") == oldest).head(newest - later.height).collect()
    kept = pl.concat([ties, later])
    talk(f"using the newest {kept.height} of {held} jobs of {trace}; --newest takes more, and more memory")
    used = usage.join(kept.lazy().select(IDENTITY), on=IDENTITY, how="semi", maintain_order="left")
    return Tables(jobs=kept, usage=used.collect(engine="streaming"))


def with_kills(jobs: pl.DataFrame, usage: pl.DataFrame) -> pl.DataFrame:
    """Return the table of use, in which a job that was killed for memory used at least its request.

    Killed jobs that were not measured are added, with their memory alone. An empty table stays empty.
    """
    killed = jobs.filter(pl.col("status") == Status.OOM).select(*IDENTITY, "status", "req_mem_gib", "instances")
    if usage.is_empty() or killed.is_empty():
        return usage
    raised = usage.join(killed, on=IDENTITY, how="left", maintain_order="left").with_columns(needed_mem_gib())
    added = killed.join(usage, on=IDENTITY, how="anti", maintain_order="left").filter(
        pl.col("req_mem_gib").is_not_null()
    )
    memory = added.select(*IDENTITY, mem_max_gib="req_mem_gib", instances_measured="instances")
    return pl.concat([raised.select(usage.columns), memory], how="diagonal")


def read_feedback(url: str, trace: str, cluster: str | None, newest: int = NEWEST) -> list[Finished]:
    """Read the newest finished jobs of a trace from the store of a service, in the order they were reported."""
    clusters = None if cluster is None else (cluster, "")
    try:
        store = Store.open(url, create=False)
        try:
            found = newest_finished(store, traces=(trace,), clusters=clusters, limit=newest)
        finally:
            store.close()
    except StoreError as error:
        raise TrainingError(f"feedback: {error}") from error
    if not found:
        raise TrainingError(f"feedback: found no finished job of {trace}, expected some; is it the service's store?")
    return list({each.identity: each for each in found}.values())  # a kill is reported beside another outcome


def with_feedback(
    jobs: pl.DataFrame, usage: pl.DataFrame, finished: Sequence[Finished]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the training tables, jobs and usage, with the finished jobs appended.

    Of a job that also ended in the lake, the lake's row is kept. A shrunk job cannot use more than its allocation, so
    its measured use may be too low. It is used only if above the peak predicted for the job, and the job's usage row
    in the lake is dropped. So training on shrunk jobs can raise floors, but never lower them.
    """
    if not finished:
        return jobs, usage
    home = _usual_cluster(jobs)
    reported = pl.DataFrame([_job(row, home) for row in finished], schema=_JOBS)
    measured = pl.DataFrame([each for row in finished if (each := _use(row, home))], schema=_USAGE)
    over = jobs.filter(has_ended()).select(IDENTITY)
    open_jobs = jobs.join(over, on=IDENTITY, how="anti").join(reported.select(IDENTITY), on=IDENTITY, how="anti")
    known = jobs.join(over, on=IDENTITY, how="semi")
    fresh = reported.join(over, on=IDENTITY, how="anti")

    # The use of shrunk jobs is taken from feedback, where it is compared with the predicted peak.
    capped = pl.DataFrame([_identity(row, home) for row in finished if shrunk_resources(row)], schema=_KEY)
    kept = usage.join(capped, on=IDENTITY, how="anti")
    new = measured.join(kept.select(IDENTITY), on=IDENTITY, how="anti")
    return pl.concat([known, open_jobs, fresh]), pl.concat([kept, new])


def _usual_cluster(jobs: pl.DataFrame) -> str:
    """Return the most frequent cluster; it is assumed for reported jobs that name no cluster."""
    counted = jobs["cluster"].drop_nulls().value_counts().sort("count", "cluster")
    return str(counted["cluster"][-1]) if counted.height else ""


def _identity(row: Finished, home: str) -> dict[str, str]:
    return {"trace": row.trace, "cluster": row.cluster or home, "job_id": row.job_id, "role": row.role}


def _job(row: Finished, home: str) -> dict[str, object]:
    known = row.task_type in TASK_TYPES
    by_tag = TASK_TYPE_OF_WORKLOAD.get(row.workload or "", TaskType.OTHER)
    return {
        **dict.fromkeys(_JOBS),
        **_identity(row, home),
        "user": row.user,
        "vc": row.vc,
        "group": row.group,
        "workload": row.workload,
        "task_type": row.task_type if known else str(by_tag),
        "gpu_type": row.gpu_type,
        "submit_ts": _moment(row.submit_us),
        "start_ts": None if row.start_us is None else _moment(row.start_us),
        "end_ts": _moment(row.end_us),
        "queue_s": None if row.start_us is None else (row.start_us - row.submit_us) / 1e6,
        "run_s": row.run_s,
        # A job stopped at its time limit would have run longer: its run time is a lower bound.
        "run_s_censored": row.outcome == "timeout",
        "status": str(STATUS_OF_OUTCOME[row.outcome]),
        "instances": row.instances,
        "req_cpu_cores": row.req_cpu_cores,
        "req_mem_gib": row.req_mem_gib,
        "req_gpus": row.req_gpus,
    }


def _use(row: Finished, home: str) -> dict[str, object] | None:
    use = teachable_use(row)
    if not use.measured:
        return None
    return {
        **dict.fromkeys(_USAGE),
        **_identity(row, home),
        "used_cpu_cores": use.cpu_cores,
        "used_gpus": use.gpus,
        "mem_max_gib": use.mem_max_gib,
        "gpu_mem_max_gib": use.gpu_mem_max_gib,
        "instances_measured": row.instances,
    }


def _moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)
