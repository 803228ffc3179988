"""One known job through the whole path of a model, so that the first caller waits for no compiling and no cache.

An answer that is no number shows a model that must not serve. Called by `modelserve.loading.models` before a model
serves.
"""

import math

import numpy as np

from features.online import JobAsked
from features.vocabulary import ROLE_WHOLE_JOB
from modelserve.bundle.bundle import Bundle
from modelserve.errors import BundleError
from modelserve.loading.served import ServedModel


def warm(model: ServedModel) -> None:
    """Answer the newest job of the model's history, by the compiled trees and by the library.

    Raises
    ------
    BundleError
        The answer is no number.
    """
    job = known_job(model.bundle)
    rows = model.rows.rows([job], model.history)
    asked = np.array([[job.req_cpu_cores, job.req_mem_gib, job.req_gpus]])
    matrix = model.rows.with_requests(rows, [job], np.zeros(1, dtype=np.int64), asked)
    model.history.measured_runs(job)
    for target in model.trees:
        answer = model.margins(target, matrix)
        if not np.isfinite(answer).all():
            raise BundleError(f"{model.reference}/{target}: a known job is answered {answer}, expected numbers")


def known_job(bundle: Bundle) -> JobAsked:
    """Return the newest job of a bundle's history as it would be asked for, or one that nothing is known of."""
    newest = bundle.history.frame.tail(1).to_dicts()
    held = newest[0] if newest else {}
    gpus = held.get("req_gpus")
    submitted = held.get("submit_ts") or bundle.card.until
    return JobAsked(
        trace=bundle.card.trace,
        cluster=held.get("cluster"),
        job_id="warm",
        role=held.get("role") or ROLE_WHOLE_JOB,
        user=held.get("user"),
        vc=held.get("vc"),
        group=held.get("group"),
        workload=None,
        task_type=bundle.card.task_type,
        gpu_type=None,
        submit_us=round(submitted.timestamp() * 1e6),
        instances=held.get("instances") or 1,
        req_cpu_cores=1.0,
        req_mem_gib=1.0,
        req_gpus=math.nan if gpus is None else float(gpus),
        time_limit_s=math.nan,
        priority=math.nan,
    )
