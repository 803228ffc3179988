"""The mapping file (TOML): files, columns and units. It is checked before any row is read."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal, Self
from zoneinfo import available_timezones

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from features.vocabulary import Status, TaskType
from modelserve.wrong_values import fault_of
from pipelines.errors import MappingError
from pipelines.lake.generic.conversions import EPOCHS, TIME_PART
from pipelines.lake.generic.kinds import JOB_COLUMNS, MACHINE_COLUMNS, PERCENT, REQUEST_OF, TIME, USAGE_COLUMNS, Kind
from pipelines.lake.sources.source import CLUSTER

MOST_BYTES: Final = 1 << 16
MOST_DOTS: Final = 10
_LONG_KEY: Final = re.compile(
    rf"""(?:^|[\[{{,])[ \t]*(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MOST_DOTS + 1}}}""", re.MULTILINE
)
"""Pattern of a dotted key with many parts; it is refused because the TOML parser takes quadratic time for it."""

DERIVED: Final = {
    "end_ts": ("start_ts + run_s",),
    "start_ts": ("submit_ts + queue_s", "end_ts - run_s"),
    "submit_ts": ("start_ts - queue_s",),
    "run_s": ("end_ts - start_ts",),
    "queue_s": ("start_ts - submit_ts",),
}
"""Accepted derivations of each column; the result is null if an operand is null."""

NULLS: Final = ("", "NA", "N/A", "None", "NULL", "null", "nan", "NaN", "Unknown")
Text = Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]+$")]
Cell = Text | int | float | bool
_STRICT: Final = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ColumnMapping(BaseModel):
    """Where a canonical column gets its values: an input column, a constant, or other canonical columns."""

    model_config = _STRICT

    column: Text | None = None
    value: Cell | None = None
    derive: Text | None = None
    default: Cell | None = None
    unit: Text | None = None
    convert: Text | None = Field(default=None, alias="as")
    time: Text = "iso"
    zone: Text | None = None
    values: dict[Text, Text] = Field(default_factory=dict, max_length=1000)
    otherwise: Text | None = None
    per: Literal["run_s", "instances"] | None = None
    of: Literal["request"] | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: object) -> object:
        """Accept a name alone as short for `column = ...`."""
        return {"column": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        origins = [n for n in ("column", "value", "derive") if getattr(self, n) is not None]
        if len(origins) != 1:
            raise ValueError(f"found {' and '.join(origins) or 'no origin'}; expected one of column, value, derive")
        return self


class RowsMapping(BaseModel):
    """The mapping of one table: its columns, and the file that gives its rows, with its format."""

    model_config = _STRICT

    format: Literal["csv", "parquet"] = "csv"
    file: Text | None = None
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=1, pattern=r"^[^\r\n\x00\"]$")] = ","
    quote: Annotated[str, StringConstraints(max_length=1, pattern=r"^[^\r\n\x00]?$")] = '"'
    encoding: Literal["utf-8", "utf-16", "latin-1", "cp1252", "gb18030", "shift_jis", "euc_jp", "euc_kr"] = "utf-8"
    nulls: tuple[Text | Literal[""], ...] = Field(default=(), max_length=50, strict=False)
    zone: Text = "UTC"
    columns: dict[str, ColumnMapping]

    @model_validator(mode="after")
    def _file_inside(self) -> Self:
        if self.file is not None:
            inside = PurePosixPath(self.file)
            if inside.is_absolute() or ".." in inside.parts or "\\" in self.file:
                raise ValueError(f"the file {self.file[:80]!r}; expected a path below the folder given with --from")
        return self


class UsageMapping(BaseModel):
    """The measured use of jobs, mapped from columns of the jobs' rows."""

    model_config = _STRICT

    columns: dict[str, ColumnMapping]


class GenericMapping(BaseModel):
    """A mapping file: jobs, their use, and machines.

    `cluster` names the only cluster. If the name of the jobs' file contains `CLUSTER`, every file with such a name is a
    cluster, named by the text in the place of `CLUSTER`.
    """

    model_config = _STRICT

    cluster: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] = "main"
    jobs: RowsMapping
    usage: UsageMapping | None = None
    machines: RowsMapping | None = None

    @property
    def cluster_files(self) -> str | None:
        """Return the name of the jobs' files if it contains `CLUSTER`, else None."""
        file = self.jobs.file
        return file if file is not None and CLUSTER in file else None


def read_mapping(path: Path) -> GenericMapping:
    """Read and check a mapping file."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise MappingError(f"{path.name} is larger than {MOST_BYTES} bytes; expected a mapping, not the table")
        text = data.decode("utf-8-sig")
        if _LONG_KEY.search(text):
            raise MappingError(f"{path.name} has a key of more than {MOST_DOTS} dots; expected what the page shows")
        mapping = GenericMapping.model_validate(tomllib.loads(text))
    except OSError as error:
        raise MappingError(f"cannot read the mapping {path}: {error.strerror}; see docs/own-cluster.md") from error
    except ValidationError as error:
        raise MappingError(f"{path.name}: {_fault_texts(error)}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise MappingError(
            f"{path.name} is no TOML ({str(error)[:200]}); expected what docs/own-cluster.md shows"
        ) from error
    faults = list(_faults(mapping))
    if faults:
        raise MappingError(f"{path.name}: {'; '.join(faults[:5])}")
    return mapping


def columns_of(mapping: GenericMapping) -> dict[str, tuple[Mapping[str, ColumnMapping], Mapping[str, Kind]]]:
    """Return, for every section of the file, its mapped columns and the kinds of all columns that it may map."""
    usage = mapping.usage.columns if mapping.usage else {}
    machines = mapping.machines.columns if mapping.machines else {}
    return {
        "jobs": (mapping.jobs.columns, JOB_COLUMNS),
        "usage": (usage, USAGE_COLUMNS),
        "machines": (machines, MACHINE_COLUMNS),
    }


def _faults(mapping: GenericMapping) -> list[str]:
    faults = [f"[jobs.columns] lacks {name}" for name in ("job_id", "submit_ts") if name not in mapping.jobs.columns]
    if mapping.usage and not set(mapping.usage.columns) - {"instances_measured"}:
        faults.append("[usage.columns] names nothing measured; name a column of usage, or leave [usage] out")
    if mapping.machines:
        held = mapping.machines.columns
        faults += [f"[machines.columns] lacks {name}" for name in ("machine", "gpus") if name not in held]
        faults += [f"[machines] has the zone {mapping.machines.zone!r}"] if not _is_zone(mapping.machines.zone) else []
    if not _is_zone(mapping.jobs.zone):
        faults.append(f"[jobs] has the time zone {mapping.jobs.zone!r}; expected one like Europe/Berlin or UTC")
    faults += _file_faults(mapping)
    for section, (columns, kinds) in columns_of(mapping).items():
        for name, column in columns.items():
            where = f"[{section}.columns] {name[:80]}"
            if name not in kinds:
                faults.append(f"{where} is no column of {section}; expected one of {', '.join(kinds)}")
                continue
            faults += [f"{where}: {fault}" for fault in _column_faults(name, column, kinds[name], section)]
    return faults


def _file_faults(mapping: GenericMapping) -> list[str]:
    faults = []
    if mapping.cluster_files and "cluster" in mapping.model_fields_set:
        faults.append(f"both cluster = {mapping.cluster!r} and {CLUSTER} in a file's name; expected one")
    for name, rows in (("jobs", mapping.jobs), ("machines", mapping.machines)):
        file = (rows.file if rows else None) or ""
        if file.count(CLUSTER) > 1:
            faults.append(f"[{name}] has the file {file[:80]!r} with {CLUSTER} twice; expected it once")
        if rows is not None and (CLUSTER in file) != (mapping.cluster_files is not None):
            wanted = "in its name, too" if mapping.cluster_files else "in the name of the jobs' file, too"
            faults.append(f"[{name}] has the file {file[:80]!r}; expected {CLUSTER} {wanted}")
    return faults


def _column_faults(name: str, column: ColumnMapping, kind: Kind, section: str) -> list[str]:
    faults = []
    if column.unit is not None and column.unit not in kind.units:
        faults.append(f"the unit {column.unit!r}; expected {_one_of(kind.units)}")
    if column.convert is not None and column.convert not in kind.named:
        faults.append(f"as = {column.convert!r}; expected {_one_of(kind.named)}")
    elif column.convert is not None and column.unit is not None and not kind.named[column.convert].takes_unit:
        faults.append(f"both unit and as; expected one: texts of {column.convert} define their unit")
    if column.derive is not None and (section != "jobs" or column.derive not in DERIVED.get(name, ())):
        faults.append(f"derive = {column.derive!r}; expected {_one_of(DERIVED.get(name, ()))}")
    if column.zone is not None and not _is_zone(column.zone):
        faults.append(f"the time zone {column.zone!r}; expected one like Europe/Berlin or UTC")
    if (column.time != "iso" or column.zone) and kind is not TIME:
        faults.append("a time format or zone, but this column is no time")
    if kind is TIME and not _is_time(column.time):
        faults.append(f"time = {column.time!r}; expected iso, {', '.join(EPOCHS)}, or a pattern like %d.%m.%Y %H:%M:%S")
    if column.per is not None and (not kind.units or section == "machines" or name == column.per):
        faults.append(f"per = {column.per!r}; expected it on a resource or a duration of a job")
    if column.of is not None and (name not in REQUEST_OF or column.unit != PERCENT or column.per is not None):
        faults.append(f"of = 'request'; expected it with unit = 'percent', without per, on {' or '.join(REQUEST_OF)}")
    return faults + _translation_faults(name, column, kind)


def _translation_faults(name: str, column: ColumnMapping, kind: Kind) -> list[str]:
    targets = [*column.values.values(), *([column.otherwise] if column.otherwise else [])]
    if targets and (kind.units or kind is TIME or column.convert):
        return ["values, which only texts, states and task types have, without `as`"]
    closed = {"status": [str(s) for s in Status], "task_type": [str(t) for t in TaskType]}.get(name)
    return [f"values lead to {each!r}; expected {_one_of(closed)}" for each in targets if closed and each not in closed]


def _one_of(names: Mapping[str, object] | tuple[str, ...] | list[str]) -> str:
    return f"one of {', '.join(names)}" if names else "none for this column"


def _is_zone(name: str) -> bool:
    return name == "UTC" or ("/" in name and not name.startswith("posix/") and name in _zones())


@cache
def _zones() -> set[str]:
    return available_timezones()  # reads a folder of hundreds of files


def _is_time(form: str) -> bool:
    if form == "iso" or form in EPOCHS:
        return True
    return "%" in form and "%" not in TIME_PART.sub("", form)


def _fault_texts(error: ValidationError) -> str:
    """Describe the first faults, each with its place in the file."""
    faults = []
    for each in error.errors()[:5]:
        place = ".".join(str(part) for part in each["loc"])[:120]
        faults.append(f"{place or 'the file'}: {fault_of(each)}")
    return "; ".join(faults)
