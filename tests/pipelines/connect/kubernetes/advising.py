"""Advice as a service would give it, without a service; and answers of the webhook to it."""

import asyncio
import json
import math
from collections.abc import Sequence
from typing import Any

from modelserve.client import Advice
from pipelines.connect.kubernetes.config import KubernetesConfig
from pipelines.connect.kubernetes.webhook import Webhook
from scheduler_core.types import NOTHING, Job, Reason, Request


def advice(job: Job, *, share: float = 0.25, mode: str = "enforce", answer_id: str = "a1", runs: int = 99) -> Advice:
    """Return advice to give a job a share of its CPU and memory, but not less than its minimum."""
    least = job.minimum or NOTHING

    def given(value: float, minimum: float) -> float:
        return value if math.isnan(value) else max(value * share, min(0.0 if math.isnan(minimum) else minimum, value))

    target = Request(
        cpu_cores=given(job.request.cpu_cores, least.cpu_cores),
        mem_gib=given(job.request.mem_gib, least.mem_gib),
        gpus=job.request.gpus,
    )
    return Advice(
        job_id=job.job_id, request=job.request, target=target, lower_bound=target, run_time_p50_s=60.0,
        run_time_p90_s=90.0, run_time_change=0.0, reasons={"cpu_cores": Reason.SHRUNK}, alpha=share,
        model_decided=True, runs=runs, mode=mode, answer_id=answer_id,
    )  # fmt: skip


class Asked:
    """A service that gives each job a share of its request, and remembers the jobs."""

    def __init__(self, **given: Any) -> None:
        self.jobs: list[Job] = []
        self.given = given

    async def __call__(self, jobs: Sequence[Job]) -> list[Advice]:
        self.jobs += jobs
        return [advice(job, **self.given) for job in jobs]


def config(**changes: object) -> KubernetesConfig:
    return KubernetesConfig.model_validate({"trace": "pai", "mode": "enforce", **changes})


def answer(review: object, ask: Any = None, **changes: object) -> bytes:
    """Return the webhook's answer to a review; `changes` are fields of the configuration."""
    body = review if isinstance(review, bytes) else json.dumps(review).encode()
    return asyncio.run(Webhook(config=config(**changes), ask=ask or Asked()).answer(body))
