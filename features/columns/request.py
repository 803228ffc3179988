"""Features of the job's own row: its request and its categories.

The column `nodes` is not a feature, since it is known only after placement. Neither are date, hour and weekday: trees
would use them to memorise single days, and fail when the workload drifts.
"""

from typing import Final

from features.columns.feature import Feature, OwnNumber, Text
from features.history import REQUEST_COLUMNS

_UNITS: Final = dict(zip(REQUEST_COLUMNS, ("cores", "GiB", "GPUs"), strict=True))
_CATEGORIES: Final = {
    "gpu_type": "requested device type",
    "vc": "virtual cluster",
    "role": "role in the job",
    "task_type": "kind of work",
    "workload": "raw workload tag",
}


def _number(name: str, unit: str, doc: str, source: OwnNumber) -> Feature:
    needs = tuple(column for column in (source.above, source.times, source.over) if column is not None)
    requested = not set(REQUEST_COLUMNS).isdisjoint(needs)
    return Feature(name=name, unit=unit, doc=doc, source=source, needs=needs, from_request=requested)


def _amount(name: str, unit: str, doc: str) -> Feature:
    return _number(name, unit, doc, OwnNumber(above=name))


def _total(name: str, unit: str, doc: str, column: str) -> Feature:
    return _number(name, unit, doc, OwnNumber(above=column, times="instances"))


def _ratio(name: str, unit: str, doc: str, above: str, below: str) -> Feature:
    return _number(name, unit, doc, OwnNumber(above=above, over=below))


_DEFINED: Final = (
    *(_amount(column, unit, f"requested {unit} per instance") for column, unit in _UNITS.items()),
    _amount("instances", "count", "size of the gang"),
    _total("total_gpus", "GPUs", "GPUs of the whole gang", "req_gpus"),
    _total("total_cpu_cores", "cores", "cores of the whole gang", "req_cpu_cores"),
    _total("total_mem_gib", "GiB", "memory of the whole gang", "req_mem_gib"),
    _ratio("cpu_cores_per_gpu", "cores", "cores requested per GPU", "req_cpu_cores", "req_gpus"),
    _ratio("mem_gib_per_gpu", "GiB", "memory requested per GPU", "req_mem_gib", "req_gpus"),
    _ratio("mem_gib_per_cpu_core", "GiB", "memory requested per core", "req_mem_gib", "req_cpu_cores"),
    *(
        Feature(name=column, unit="", doc=doc, source=Text(column=column), needs=(column,), kind="c")
        for column, doc in _CATEGORIES.items()
    ),
)

REQUEST: Final[dict[str, Feature]] = {feature.name: feature for feature in _DEFINED}
