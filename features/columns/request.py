"""Features of the request itself: what was asked for, and of what kind.

Known at submission; `nodes` is left out, since it is known only after placement.
Called through `features.sets`.
"""

from collections.abc import Callable
from typing import Final

import polars as pl

from features.columns.feature import Feature

_AMOUNTS: Final = {"req_cpu_cores": "cores", "req_mem_gib": "GiB", "req_gpus": "GPUs"}
_CATEGORIES: Final = {
    "gpu_type": "device type asked for",
    "vc": "virtual cluster",
    "role": "role in the job",
    "task_type": "kind of work",
    "workload": "raw workload tag",
}


def amount(column: str) -> pl.Expr:
    """Return a canonical number as it stands."""
    return pl.col(column).cast(pl.Float64)


def category(column: str) -> pl.Expr:
    """Return a canonical text as it stands."""
    return pl.col(column).cast(pl.String)


def total(column: str) -> pl.Expr:
    """Return the request of the whole gang."""
    return amount(column) * amount("instances")


def ratio(above: str, below: str) -> pl.Expr:
    """Return one request over another; null where the lower is zero or unknown."""
    return pl.when(amount(below) > 0).then(amount(above) / amount(below))


def _plain(name: str, unit: str, doc: str, expression: Callable[[], pl.Expr], *needs: str) -> Feature:
    requested = any(column in _AMOUNTS for column in needs)
    return Feature(name=name, unit=unit, doc=doc, source=expression, needs=needs, from_request=requested)


_DEFINED: Final = (
    *(
        _plain(c, unit, f"requested {unit} per instance", lambda c=c: amount(c), c)  # type: ignore[misc]  # c is bound now
        for c, unit in _AMOUNTS.items()
    ),
    _plain("instances", "count", "size of the gang", lambda: amount("instances"), "instances"),
    _plain("total_gpus", "GPUs", "GPUs of the whole gang", lambda: total("req_gpus"), "req_gpus", "instances"),
    _plain(
        "total_cpu_cores",
        "cores",
        "cores of the whole gang",
        lambda: total("req_cpu_cores"),
        "req_cpu_cores",
        "instances",
    ),
    _plain(
        "total_mem_gib", "GiB", "memory of the whole gang", lambda: total("req_mem_gib"), "req_mem_gib", "instances"
    ),
    _plain(
        "cpu_cores_per_gpu",
        "cores",
        "cores asked for per GPU",
        lambda: ratio("req_cpu_cores", "req_gpus"),
        "req_cpu_cores",
        "req_gpus",
    ),
    _plain(
        "mem_gib_per_gpu",
        "GiB",
        "memory asked for per GPU",
        lambda: ratio("req_mem_gib", "req_gpus"),
        "req_mem_gib",
        "req_gpus",
    ),
    _plain(
        "mem_gib_per_cpu_core",
        "GiB",
        "memory asked for per core",
        lambda: ratio("req_mem_gib", "req_cpu_cores"),
        "req_mem_gib",
        "req_cpu_cores",
    ),
    _plain("time_limit_s", "s", "the user's own limit on the run", lambda: amount("time_limit_s"), "time_limit_s"),
    _plain("priority", "rank", "priority given at submission", lambda: amount("priority"), "priority"),
    *(
        Feature(name=c, unit="", doc=doc, source=lambda c=c: category(c), needs=(c,), kind="c")  # type: ignore[misc]  # c is bound now
        for c, doc in _CATEGORIES.items()
    ),
)

REQUEST: Final[dict[str, Feature]] = {feature.name: feature for feature in _DEFINED}
