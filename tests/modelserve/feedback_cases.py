"""A service around a real store, and finished jobs to report; models are the small bundles', or none."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from features.online import EndedRun
from modelserve.callers import ANYONE, Caller
from modelserve.contract.feedback import FeedbackBody
from modelserve.learning.feed import Feed
from modelserve.loading.models import Snapshot
from modelserve.scopes import Scope
from modelserve.service import Service
from modelserve.settings import ServeSettings
from modelserve.store import Store
from modelserve.store.answers import AnswerLog, AnswerRecord
from modelserve.store.finished import Finished

NOW = 1_600_000_000.0
ACCOUNTING = Caller(name="slurm", scopes=frozenset({Scope.ACCOUNTING}))
"""The caller whose reports are believed."""
ABOUT = ("trace", "cluster", "job_id", "role", "user", "group")
NO_MODELS = Snapshot(champions={}, failures={}, generation=0)

JOB = Finished(
    trace="pai",
    cluster="east",
    job_id="a1",
    role="worker",
    task_type="ctr",
    user="u7",
    group="g3",
    vc=None,
    workload="ctr",
    gpu_type="T4",
    answer_id=None,
    instances=2,
    submit_us=1_000_000,
    start_us=2_000_000,
    end_us=62_000_000,
    run_s=60.0,
    outcome="completed",
    req_cpu_cores=6.0,
    req_mem_gib=20.0,
    req_gpus=0.5,
    alloc_cpu_cores=6.0,
    alloc_mem_gib=20.0,
    alloc_gpus=0.5,
    used_cpu_cores=2.0,
    used_gpus=0.1,
    mem_max_gib=8.0,
    gpu_mem_max_gib=3.0,
    peak_cpu_cores=3.0,
    peak_mem_gib=9.0,
    peak_gpus=0.2,
    peak_gpu_mem_gib=4.0,
    digest="d",
    caller="tester",
    at=1.0,
)


@dataclass(kw_only=True)
class FakeModels:
    """What the feed teaches, written down."""

    current: Snapshot = NO_MODELS
    runs: list[EndedRun] = field(default_factory=list)

    def learn(self, runs: Sequence[EndedRun]) -> None:
        self.runs += runs

    def weigh(self, scored: object, upto: int) -> None:
        """Ignore what weights would be learnt from."""

    def ids(self) -> list[str]:
        return [run.job_id for run in self.runs]


def service_of(url: str | Path, models: Any = None, **settings: Any) -> Any:
    """Return a service as the logic knows it; a path stands for a file of SQLite."""
    store = Store.open(url if isinstance(url, str) else f"sqlite:///{url}")
    said = ServeSettings(**{"trace": "pai", **settings})
    taught = FakeModels() if models is None else models
    log = AnswerLog(store, said.answers_kept, said.answers_kept_bytes)
    return Service(
        settings=said,
        models=taught,
        store=store,
        log=log,
        feed=Feed(store, taught, said),
        clock=lambda: NOW,
    )


def row(job_id: str = "a1", **changes: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "job_id": job_id,
        "task_type": "ctr",
        "cluster": "pai",
        "user": "u1",
        "group": "g0",
        "role": "worker",
        "workload": "ctr",
        "gpu_type": "T4",
        "instances": 2,
        "submit_ts": "2020-07-20T00:00:00Z",
        "start_ts": "2020-07-20T00:01:00Z",
        "end_ts": "2020-07-20T01:01:00Z",
        "outcome": "completed",
        "request": {"cpu_cores": 6.0, "mem_gib": 20.0, "gpus": 0.5},
        "used": {"cpu_cores": 2.0, "gpus": 0.1, "mem_max_gib": 8.0, "gpu_mem_max_gib": 3.0},
    }
    return {**said, **changes}


def finished(job_id: str, minutes: int = 0, run_s: float = 30.0, **changes: Any) -> dict[str, Any]:
    """Return a job submitted some minutes after the small models' history ended, which started at once."""
    submit = datetime(2020, 8, 2, tzinfo=UTC) + timedelta(minutes=minutes)
    times = {"submit_ts": submit, "start_ts": submit, "end_ts": submit + timedelta(seconds=run_s)}
    return row(job_id, **{name: at.isoformat() for name, at in times.items()}, **changes)


def body(rows: Iterable[dict[str, Any]], **said: Any) -> FeedbackBody:
    return FeedbackBody.model_validate({"feedback": list(rows), **said})


def context_of(*jobs: dict[str, Any]) -> bytes:
    """Return what is logged of a call about jobs."""
    return json.dumps({"body": {"jobs": jobs}}, ensure_ascii=False).encode()


def answer_record(answer_id: str, **changes: Any) -> AnswerRecord:
    """Return a logged answer: a prediction that says nothing, unless changed."""
    said: dict[str, Any] = {"at": 1.0, "kind": "prediction", "caller": "tester", "trace": "pai", "models": ""}
    said |= {"context": b"{}", "response": b"{}"}
    return AnswerRecord(answer_id=answer_id, **{**said, **changes})


def answered(service: Any, answer_id: str, *job_ids: str, caller: str = ANYONE.name, **job: Any) -> str:
    """Log an answer to a caller about jobs as those of `row`; return its id."""
    asked = [{name: value for name, value in row(job_id, **job).items() if name in ABOUT} for job_id in job_ids]
    service.log.put(answer_record(answer_id, kind="recommendation", caller=caller, context=context_of(*asked)))
    service.log.flush()
    return answer_id
