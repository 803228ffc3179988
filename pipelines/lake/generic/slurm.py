"""SQL that converts what `sacct` and `sinfo` print: states, spans, lists of resources and memory."""

from typing import Final

from features.vocabulary import Status
from pipelines.lake.generic.conversions import AS_NUMBER, DOUBLE, TEXT_SLOT, Conversion, cases

__all__ = ["SLURM_STATES"]

SLURM_STATES: Final = {
    "BOOT_FAIL": Status.NODE_FAIL,
    "CANCELLED": Status.CANCELLED,
    "COMPLETED": Status.COMPLETED,
    "COMPLETING": Status.RUNNING,
    "CONFIGURING": Status.WAITING,
    "DEADLINE": Status.TIMEOUT,
    "FAILED": Status.FAILED,
    "NODE_FAIL": Status.NODE_FAIL,
    "OUT_OF_MEMORY": Status.OOM,
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
    value=f"CASE WHEN isfinite({DOUBLE}) THEN {DOUBLE} * 60 ELSE {SLURM_TIME.value} END",
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
