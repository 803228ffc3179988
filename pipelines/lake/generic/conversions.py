r"""SQL that converts field texts to values: numbers in several notations, states and times.

Texts of a mapping file enter SQL only through `literal`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from features.vocabulary import Status, TaskType

__all__ = ["SLURM_STATES"]

TEXT_SLOT: Final = "{text}"
EPOCHS: Final = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000}
TIME_PART: Final = re.compile(r"%(-?[dfgHIjmMnSy]|[aAbBpYz%])")
"""Allowed `%` codes of a time pattern; they mean the same in DuckDB, C and Python."""

ISO: Final = r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?)?"
ISO_ZONE: Final = r" ?(Z|UTC|[+-]\d{2}(:?\d{2})?)"
ISO_MOST: Final = r"(19[89]\d|20\d{2}|21[0-8]\d)-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}"
"""Pattern of most times, which are converted first: a cast reads them as they are, in a plausible year in any zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A conversion of a text to a value by two SQL expressions, and a description of the accepted texts for messages.

    Both expressions contain `{text}`. `pick` extracts the relevant part of the text ('' if there is none); `value`
    converts this part to a value. `takes_unit` is true if the value is in the mapping's unit, false if the text defines
    its unit.
    """

    value: str
    expects: str
    pick: str = TEXT_SLOT
    takes_unit: bool = False


def literal(text: str) -> str:
    """Return an SQL text literal that is safe from later replacement of `{text}`, also if the text contains it."""
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
        moment = f"try_cast({plain} AS TIMESTAMP)"
        any_other = _plausible(
            f"""CASE WHEN regexp_full_match({TEXT_SLOT}, '{ISO}') THEN {_from_local(moment, zone)}
            WHEN regexp_full_match({TEXT_SLOT}, '{ISO}{ISO_ZONE}') THEN
                try_cast(regexp_replace({plain}, ' ?(Z|UTC)$', '+00') AS TIMESTAMPTZ) END"""
        )
        moment = f"try_cast({TEXT_SLOT} AS TIMESTAMP)"
        most = f"regexp_full_match({TEXT_SLOT}, '{ISO_MOST}')"
        return f"CASE WHEN {most} THEN {_from_local(moment, zone)} ELSE {any_other} END"
    parsed = f"try_strptime({TEXT_SLOT}, {literal(form)})"
    if "%z" in form:
        return _plausible(f"{parsed}::TIMESTAMPTZ")
    return _plausible(_from_local(f"{parsed}::TIMESTAMP", zone))


def _from_local(moment: str, zone: str) -> str:
    """Return the SQL of the UTC time of a local time; UTC itself needs no calendar, which is slow."""
    return f"make_timestamptz(epoch_us({moment}))" if zone == "UTC" else f"timezone({literal(zone)}, {moment})"


def _plausible(moment: str) -> str:
    """Return the SQL of a time, null outside 1970 to 2199 (wrong patterns give such times)."""
    first, last = (f"TIMESTAMPTZ '{year}-01-01 00:00:00+00'" for year in (1970, 2200))
    return f"CASE WHEN {moment} >= {first} AND {moment} < {last} THEN {moment} END"


def _listed(values: Mapping[str, str]) -> str:
    return ", ".join(values)


DOUBLE: Final = f"try_cast({TEXT_SLOT} AS DOUBLE)"
_WHOLE: Final = f"CASE WHEN abs({DOUBLE}) < 2147483648 AND {DOUBLE} = floor({DOUBLE}) THEN {DOUBLE}::INTEGER END"
AS_TEXT: Final = Conversion(value=TEXT_SLOT, expects="a text")
AS_NUMBER: Final = Conversion(value=f"CASE WHEN isfinite({DOUBLE}) THEN {DOUBLE} END", expects="a number")
AS_COUNT: Final = Conversion(value=_WHOLE, expects="a whole number below 2 147 483 648")
DECIMAL_COMMA: Final = Conversion(
    value=f"""CASE WHEN regexp_full_match({TEXT_SLOT}, '[+-]?[0-9]+(,[0-9]+)?([eE][+-]?[0-9]+)?')
        THEN try_cast(replace({TEXT_SLOT}, ',', '.') AS DOUBLE) END""",
    expects="a number with a decimal comma, without separators of thousands: 1234,5",
    takes_unit=True,
)

_SUFFIXES: Final = {
    suffix: 1000.0**power for suffix, power in zip("numkMGTPE", (-3, -2, -1, 1, 2, 3, 4, 5, 6), strict=True)
} | {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTPE", start=1)}
_FACTORS: Final = " ".join(f"WHEN '{suffix}' THEN {factor!r}" for suffix, factor in _SUFFIXES.items())
_DIGITS: Final = r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})"
KUBERNETES_QUANTITY: Final = Conversion(
    value=f"""CASE WHEN regexp_full_match({TEXT_SLOT}, '{_DIGITS}([eE][+-]?[0-9]{{1,3}})?') THEN {AS_NUMBER.value}
        WHEN regexp_full_match({TEXT_SLOT}, '{_DIGITS}({"|".join(_SUFFIXES)})')
        THEN regexp_extract({TEXT_SLOT}, '^{_DIGITS}')::DOUBLE
            * CASE regexp_extract({TEXT_SLOT}, '[A-Za-z]+$') {_FACTORS} END END""",
    expects="a quantity as Kubernetes writes it: 2, 500m, 1.5k or 1e3",
)
KUBERNETES_BYTES: Final = Conversion(
    value=f"({KUBERNETES_QUANTITY.value}) / {1024.0**3!r}",
    expects="bytes as Kubernetes writes them: 4Gi, 512Mi, 1G or 134217728",
)

_RANDOM: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_UUID: Final = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_WORDS: Final = (  # DuckDB's expressions cannot look around, so each word is looked at alone
    f"regexp_extract_all(regexp_replace({TEXT_SLOT}, '{_UUID}', '#', 'g'), '[0-9A-Za-z]+|[^0-9A-Za-z]+')"
)
_HASHED: Final = f"regexp_full_match(word, '[0-9a-fA-F]{{6,}}|{_RANDOM}{{8,10}}') AND regexp_matches(word, '[0-9]')"
_PLAIN: Final = (
    f"array_to_string(list_transform({_WORDS}, lambda word: CASE WHEN {_HASHED} THEN '#' ELSE word END), '')"
)
NAME_PATTERN: Final = Conversion(
    value=f"regexp_replace(regexp_replace(regexp_replace({_PLAIN}, '-{_RANDOM}{{5}}$', '-#'), '[0-9]+', '#', 'g'), "
    "'#([-_.:]?#)+', '#', 'g')",
    expects="a job's name; numbers, hashes and dates become #, as in `pipelines.connect.names`",
)
_STATUSES: Final = {str(each): str(each) for each in Status}
AS_STATUS: Final = Conversion(
    value=cases(_STATUSES, "NULL"), expects=f"one of {_listed(_STATUSES)}, or a table of `values`, or `slurm_state`"
)
_TYPES: Final = {str(each): str(each) for each in TaskType}
AS_TASK_TYPE: Final = Conversion(
    value=cases(_TYPES, "NULL"), expects=f"one of {_listed(_TYPES)}, or a table of `values` that leads there"
)

# What `sacct` and `sinfo` print.
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
