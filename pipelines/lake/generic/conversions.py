r"""SQL that converts field texts to values (numbers, states, times, Slurm's notations), and the kind of every column.

Texts of a mapping file enter SQL only through `literal`. `mapping.py` checks mapping files.
Called by the other modules of `pipelines.lake.generic`, and by the test of docs/own-cluster.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from features.vocabulary import Status, TaskType

TEXT_SLOT: Final = "{text}"
EPOCHS: Final = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000}
TIME_PART: Final = re.compile(r"%(-?[dfgHIjmMnSy]|[aAbBpYz%])")
"""Allowed `%` codes of a time pattern; they mean the same in DuckDB, C and Python."""

_ISO: Final = r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?)?"
_ISO_ZONE: Final = r" ?(Z|UTC|[+-]\d{2}(:?\d{2})?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A conversion of a text to a value by two SQL expressions, and a description of the accepted texts for messages.

    Both expressions contain `{text}`. `pick` extracts the relevant part of the text ('' if there is none); `value`
    converts this part to a value.
    """

    value: str
    expects: str
    pick: str = TEXT_SLOT


def literal(text: str) -> str:
    """Return an SQL text literal that is safe from later replacement of `{text}`, also if the text contains it.

    >>> literal("it's {text}")
    "('it''s ' || '{' || 'text}')"
    """
    parts = text.replace("'", "''").split("{")
    return "('" + "' || '{' || '".join(parts) + "')"


def cases(meanings: Mapping[str, str], otherwise: str, of: str = TEXT_SLOT) -> str:
    """Return the SQL that replaces a text as `meanings` maps it; `otherwise` is the SQL for all other texts."""
    whens = " ".join(f"WHEN {of} = {literal(vendor)} THEN {literal(ours)}" for vendor, ours in meanings.items())
    return f"CASE {whens} ELSE {otherwise} END" if whens else otherwise


def time_value(form: str, zone: str) -> str:
    """Return the SQL that converts a text to a UTC time; a text without an offset is local time in `zone`."""
    if form in EPOCHS:
        number = f"(try_cast({TEXT_SLOT} AS DOUBLE) / {EPOCHS[form]})"
        return f"CASE WHEN {number} >= 0 AND {number} < 1e10 THEN to_timestamp({number}) END"
    if form == "iso":
        plain = f"regexp_replace(replace({TEXT_SLOT}, ',', '.'), '([0-9])T', '\\1 ')"
        return _plausible(
            f"""CASE WHEN regexp_full_match({TEXT_SLOT}, '{_ISO}') THEN timezone({literal(zone)},
                try_cast({plain} AS TIMESTAMP))
            WHEN regexp_full_match({TEXT_SLOT}, '{_ISO}{_ISO_ZONE}') THEN
                try_cast(regexp_replace({plain}, ' ?(Z|UTC)$', '+00') AS TIMESTAMPTZ) END"""
        )
    parsed = f"try_strptime({TEXT_SLOT}, {literal(form)})"
    return _plausible(f"{parsed}::TIMESTAMPTZ" if "%z" in form else f"timezone({literal(zone)}, {parsed}::TIMESTAMP)")


def _plausible(moment: str) -> str:
    """Return the SQL that replaces times outside 1970 to 2199 by null; wrong time patterns give such times."""
    return f"CASE WHEN year(timezone('UTC', {moment})) BETWEEN 1970 AND 2199 THEN {moment} END"


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(values)


_DOUBLE: Final = f"try_cast({TEXT_SLOT} AS DOUBLE)"
_WHOLE: Final = f"CASE WHEN abs({_DOUBLE}) < 2147483648 AND {_DOUBLE} = floor({_DOUBLE}) THEN {_DOUBLE}::INTEGER END"
AS_TEXT: Final = Conversion(value=TEXT_SLOT, expects="a text")
AS_NUMBER: Final = Conversion(value=f"CASE WHEN isfinite({_DOUBLE}) THEN {_DOUBLE} END", expects="a number")
AS_COUNT: Final = Conversion(value=_WHOLE, expects="a whole number below 2 147 483 648")

_STATUSES: Final = {str(each): str(each) for each in Status}
AS_STATUS: Final = Conversion(
    value=cases(_STATUSES, "NULL"), expects=f"one of {_listed(_STATUSES)}, or a table of `values`, or `slurm_state`"
)
_TYPES: Final = {str(each): str(each) for each in TaskType}
AS_TASK_TYPE: Final = Conversion(
    value=cases(_TYPES, "NULL"), expects=f"one of {_listed(_TYPES)}, or a table of `values` that leads there"
)

SLURM_STATES: Final = {
    "BOOT_FAIL": Status.NODE_FAIL,
    "CANCELLED": Status.CANCELLED,
    "COMPLETED": Status.COMPLETED,
    "COMPLETING": Status.RUNNING,
    "CONFIGURING": Status.WAITING,
    "DEADLINE": Status.TIMEOUT,
    "FAILED": Status.FAILED,
    "NODE_FAIL": Status.NODE_FAIL,
    "OUT_OF_MEMORY": Status.FAILED,
    "PENDING": Status.WAITING,
    "PREEMPTED": Status.CANCELLED,
    "REQUEUED": Status.WAITING,
    "RESIZING": Status.RUNNING,
    "REVOKED": Status.CANCELLED,
    "RUNNING": Status.RUNNING,
    "SUSPENDED": Status.RUNNING,
    "TIMEOUT": Status.TIMEOUT,
}
SLURM_STATE: Final = Conversion(
    pick=f"regexp_extract(upper({TEXT_SLOT}), '^[A-Z_]+')",  # Slurm may write "CANCELLED by 1000"
    value=cases({k: str(v) for k, v in SLURM_STATES.items()}, "NULL"),
    expects="a state of Slurm's, like COMPLETED or CANCELLED by 1000",
)

SLURM_STEP: Final = r"[0-9]+(_[0-9]+)?(\+[0-9]+)?\.(batch|extern|interactive|[0-9]+)(\+[0-9]+)?"
"""Pattern of the ids of Slurm job steps, such as 123_4.batch and 123.0."""

_CLOCK: Final = f"string_split(regexp_replace({TEXT_SLOT}, '^[0-9]+-', ''), ':')"
_DAYS: Final = f"coalesce(try_cast(nullif(regexp_extract({TEXT_SLOT}, '^([0-9]+)-', 1), '') AS DOUBLE), 0)"
_CLOCK_SECONDS: Final = f"""{_DAYS} * 86400 + coalesce({_CLOCK}[-3]::DOUBLE, 0) * 3600
    + {_CLOCK}[-2]::DOUBLE * 60 + {_CLOCK}[-1]::DOUBLE"""
_CLOCK_FORM: Final = r"([0-9]{1,6}-[0-9]{1,2}:|([0-9]{1,6}:)?)[0-9]{1,6}:[0-9]{1,2}(\.[0-9]{1,6})?"
SLURM_TIME: Final = Conversion(
    value=f"CASE WHEN regexp_full_match({TEXT_SLOT}, '{_CLOCK_FORM}') THEN {_CLOCK_SECONDS} END",
    expects="a span as Slurm writes it: 1-02:03:04, 02:03:04 or 03:04.5",
)
SLURM_TIME_LIMIT: Final = Conversion(
    pick=f"CASE WHEN upper({TEXT_SLOT}) NOT IN ('UNLIMITED', 'PARTITION_LIMIT') THEN {TEXT_SLOT} END",
    value=f"CASE WHEN isfinite({_DOUBLE}) THEN {_DOUBLE} * 60 ELSE {SLURM_TIME.value} END",
    expects="minutes (Slurm's TimelimitRaw), a span as Slurm writes it, UNLIMITED or Partition_Limit (both null)",
)

_MEMORY_UNITS: Final = "CASE regexp_extract({text}, '[KMGTP]') " + " ".join(
    f"WHEN '{name}' THEN {1024.0**power}" for name, power in {"K": -2, "": -1, "M": -1, "G": 0, "T": 1, "P": 2}.items()
)
SLURM_MEMORY: Final = Conversion(
    pick=f"CASE WHEN contains({TEXT_SLOT}, '=') THEN regexp_extract({TEXT_SLOT}, '(?:^|,)mem=([^,]+)', 1) "
    f"ELSE {TEXT_SLOT} END",
    value=rf"""CASE WHEN regexp_full_match({TEXT_SLOT}, '[0-9]{{1,15}}(\.[0-9]{{1,9}})?[KMGTP]?')
        THEN regexp_extract({TEXT_SLOT}, '^[0-9.]+')::DOUBLE * {_MEMORY_UNITS} END END""",
    expects="memory as Slurm writes it: 4G, 4096M, 1.5T, or the mem= of a list of resources; without a letter MiB. "
    "4Gn is per node and 4000Mc per core: take ReqTRES instead",
)
_RESOURCES: Final = rf"string_split(regexp_replace({TEXT_SLOT}, '\([^)]*\)', '', 'g'), ',')"
"""SQL list of the items in Slurm's list of resources, without device numbers in brackets."""

_OF_GPUS: Final = "regexp_matches(one, '(?i)^(gres[/:])?gpu([:=]|$)')"
_GPU_FORM: Final = "(?i)(gres[/:])?gpu(:[^:=,]+)?[:=][0-9]{1,6}"  # a GPU type may consist of digits: gpu:3090:4
_OTHER_FORM: Final = "[A-Za-z][A-Za-z0-9_./-]*([:=][^:=,]+){1,3}"
_OTHERWISE_WRITTEN: Final = f"""list_filter({_RESOURCES}, lambda one: one <> '' AND NOT
    regexp_full_match(one, CASE WHEN {_OF_GPUS} THEN '{_GPU_FORM}' ELSE '{_OTHER_FORM}' END))"""
_GPU_COUNTS: Final = f"""list_transform(list_filter({_RESOURCES}, lambda one: {_OF_GPUS}),
    lambda one: regexp_extract(one, '[0-9]+$')::DOUBLE)"""
_GPU_TOTAL: Final = f"nullif(regexp_extract({TEXT_SLOT}, '(?:^|,)gres/gpu=([0-9]{{1,6}})(?:,|$)', 1), '')"
_GPUS: Final = f"""CASE WHEN {TEXT_SLOT} = '(null)' THEN 0
    WHEN len({_OTHERWISE_WRITTEN}) = 0 AND len(list_filter({_RESOURCES}, lambda one: one <> '')) > 0
        THEN coalesce({_GPU_TOTAL}::DOUBLE, list_sum({_GPU_COUNTS}), 0) END"""
SLURM_GPUS: Final = Conversion(
    value=_GPUS, expects="GPUs as Slurm writes them: gres/gpu:a100=4, gres/gpu=4 or gpu:a100:4; a list without any is 0"
)
SLURM_GPU_COUNT: Final = Conversion(value=f"({_GPUS})::INTEGER", expects=SLURM_GPUS.expects)
SLURM_GPU_TYPE: Final = Conversion(
    pick=f"coalesce(nullif(regexp_extract({TEXT_SLOT}, 'gpu:([^:=,()]+)[:=][0-9]', 1), ''), "
    f"regexp_extract({TEXT_SLOT}, 'gpu:([^:=,()]*[A-Za-z][^:=,()]*)', 1))",
    value=TEXT_SLOT,
    expects="a list of resources with a named GPU: gres/gpu:a100=4",
)
SLURM_CPUS: Final = Conversion(
    pick=f"CASE WHEN contains({TEXT_SLOT}, '=') THEN regexp_extract({TEXT_SLOT}, '(?:^|,)cpu=([^,]+)', 1) "
    f"ELSE {TEXT_SLOT} END",
    value=AS_NUMBER.value,
    expects="a number, or the cpu= of a list of resources",
)


_KIB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The kind of a column's values: accepted units with their factors, default conversion, and named conversions."""

    units: Mapping[str, float] = field(default_factory=dict)
    named: Mapping[str, Conversion] = field(default_factory=dict)
    plain: Conversion = AS_TEXT


TEXT: Final = Kind(named={"slurm_gpu_type": SLURM_GPU_TYPE})
STATUS: Final = Kind(plain=AS_STATUS, named={"slurm_state": SLURM_STATE})
TASK_TYPE: Final = Kind(plain=AS_TASK_TYPE)
TIME: Final = Kind()
COUNT: Final = Kind(plain=AS_COUNT)
MACHINE_GPUS: Final = Kind(plain=AS_COUNT, named={"slurm_gpus": SLURM_GPU_COUNT})
DURATION: Final = Kind(
    plain=AS_NUMBER,
    units={"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600, "days": 86400},
    named={"slurm_time": SLURM_TIME, "slurm_minutes": SLURM_TIME_LIMIT},
)
CORES: Final = Kind(
    plain=AS_NUMBER,
    units={"cores": 1, "millicores": 1e-3, "percent": 1e-2},
    # With `per = "run_s"`, CPU time divided by run time gives cores.
    named={"slurm_cpus": SLURM_CPUS, "slurm_time": SLURM_TIME},
)
GPUS: Final = Kind(
    plain=AS_NUMBER,
    units={"gpus": 1, "milligpus": 1e-3, "percent": 1e-2},
    named={"slurm_gpus": SLURM_GPUS},
)
MEMORY: Final = Kind(
    plain=AS_NUMBER,
    units={
        "bytes": _KIB**-3,
        "KiB": _KIB**-2,
        "MiB": _KIB**-1,
        "GiB": 1,
        "TiB": _KIB,
        **{name: power / _KIB**3 for name, power in {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}.items()},
    },
    named={"slurm_memory": SLURM_MEMORY},
)
RATE: Final = Kind(
    plain=AS_NUMBER,
    units={"bytes_per_s": 1, "KiB_per_s": _KIB, "MiB_per_s": _KIB**2, "MB_per_s": 1e6, "Mbit_per_s": 1.25e5},
)

JOB_COLUMNS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("job_id", "role", "user", "vc", "group", "workload", "gpu_type"), TEXT),
    "task_type": TASK_TYPE,
    **dict.fromkeys(("submit_ts", "start_ts", "end_ts"), TIME),
    **dict.fromkeys(("queue_s", "run_s", "time_limit_s"), DURATION),
    "status": STATUS,
    **dict.fromkeys(("instances", "nodes", "attempts", "priority"), COUNT),
    "req_cpu_cores": CORES,
    "req_mem_gib": MEMORY,
    "req_gpus": GPUS,
}
USAGE_COLUMNS: Final[dict[str, Kind]] = {
    "used_cpu_cores": CORES,
    "used_gpus": GPUS,
    **dict.fromkeys(("mem_avg_gib", "mem_max_gib", "gpu_mem_avg_gib", "gpu_mem_max_gib"), MEMORY),
    **dict.fromkeys(("net_read_bytes_per_s", "net_write_bytes_per_s"), RATE),
    "instances_measured": COUNT,
}
MACHINE_COLUMNS: Final[dict[str, Kind]] = {
    **dict.fromkeys(("machine", "gpu_type"), TEXT),
    "cpu_cores": CORES,
    "mem_gib": MEMORY,
    "gpus": MACHINE_GPUS,
    "gpu_mem_gib": MEMORY,
}
