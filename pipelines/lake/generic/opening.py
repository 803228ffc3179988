"""Open a user's data with a mapping: make a folder or file a source to ingest, with its SELECTs."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from features.vocabulary import GPU_MEM_GIB_OF_TYPE, ROLE_WHOLE_JOB, TASK_TYPE_OF_WORKLOAD, Status, TaskType
from pipelines.errors import MappingError, SourceError
from pipelines.lake.generic.declaration import cures_of, implied_of, job_table, machine_table
from pipelines.lake.generic.kinds import JOB_COLUMNS, MACHINE_COLUMNS, USAGE_COLUMNS
from pipelines.lake.generic.mapping import ColumnMapping, GenericMapping, RowsMapping, read_mapping
from pipelines.lake.manifest import Input
from pipelines.lake.sources.source import CLUSTER, Remark, Source, clusters_by_file, one_cluster, translated

__all__ = ["opened_source"]

NAME: Final = "generic"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSource:
    """A source and the folder with its files."""

    source: Source
    folder: Path


def opened_source(mapping_file: Path, place: str | Path) -> OpenedSource:
    """Open the folder or file at `place`."""
    mapping = read_mapping(mapping_file)
    tables = {"jobs": mapping.jobs} | ({"machines": mapping.machines} if mapping.machines else {})
    path = Path(place)
    if "://" in str(place):  # it may contain a password, so it is not printed
        raise SourceError("--from names an address; expected a folder or file. Export the rows to CSV or Parquet.")
    if not path.exists():
        raise SourceError(f"nothing at {place}; expected the folder of the mapping's files, or its one file")
    folder = path if path.is_dir() else path.absolute().parent
    files = {name: _file_of(name, rows, path) for name, rows in tables.items()}
    return OpenedSource(source=source_of(mapping, files), folder=folder)


def _file_of(table: str, rows: RowsMapping, path: Path) -> str:
    """Return a table's file, relative to the input folder; if `path` is a file, it is the file of the jobs."""
    if rows.file is not None and CLUSTER in rows.file and not path.is_dir():
        raise MappingError(f"[{table}] takes the cluster from the file's name {rows.file!r}; expected --from FOLDER")
    if table == "jobs" and not path.is_dir():
        return path.name
    if rows.file is None:
        raise MappingError(f"[{table}] names no file; expected file = '...', a path below the folder given with --from")
    return rows.file


def source_of(mapping: GenericMapping, files: Mapping[str, str]) -> Source:
    """Return the `Source` of a mapping; `files` maps each table to its file, relative to the input folder."""
    usage = dict(mapping.usage.columns) if mapping.usage else {}
    tables = [job_table(mapping.jobs, usage, files["jobs"])]
    held = set(mapping.jobs.columns) | implied_of(mapping.jobs.columns)
    wait = mapping.jobs.columns.get("queue_s")
    measured = wait is not None and not wait.derive
    outputs = {"jobs": jobs_select(held, waits_measured=measured)}
    if usage:
        outputs["usage"] = usage_select(usage, held)
    if mapping.machines is not None:
        tables.append(machine_table(mapping.machines, files["machines"]))
        outputs["machines"] = machines_select(mapping.machines.columns)
    digest = hashlib.sha256(mapping.model_dump_json().encode()).hexdigest()
    return Source(
        name=NAME,
        clusters=clusters_by_file(mapping.cluster_files) if mapping.cluster_files else one_cluster(mapping.cluster),
        tables=tuple(tables),
        outputs=outputs,
        zone=mapping.jobs.zone,
        declared=(Input(file="the mapping", bytes=len(mapping.model_dump_json()), sha256=digest),),
        remarks=remarks_of(held, waits_measured=measured),
        cures=cures_of(mapping),
    )


_ENDED: Final = f"coalesce(status, '') NOT IN ('{Status.RUNNING}', '{Status.WAITING}')"
_LATEST: Final = "(SELECT max(greatest({times})) FROM job)"
_TAGGED: Final = translated("workload", TASK_TYPE_OF_WORKLOAD, f"'{TaskType.OTHER}'")

# A table in which every job starts when submitted records no waits: they are unknown, not zero.
_WAIT_KNOWN: Final = "(EXISTS (SELECT 1 FROM job WHERE start_ts > submit_ts))"


def remarks_of(held: set[str], *, waits_measured: bool) -> tuple[Remark, ...]:
    """Return the remarks on missing ends and waits of the rows; the parameters are those of `jobs_select`."""
    over = _ENDED if "status" in held else "true"
    ended = f"EXISTS (SELECT 1 FROM job WHERE end_ts IS NOT NULL AND {over})" if "end_ts" in held else "false"
    without_end = Remark(
        text=f"no row has an end, and only ended jobs teach run times: {_end_cure(held)}", holds=f"NOT {ended}"
    )
    if "start_ts" not in held or waits_measured:
        return (without_end,)
    without_wait = Remark(
        text="every job starts when submitted: the queueing delay is unknown, queue_s is null",
        holds=f"NOT {_WAIT_KNOWN} AND EXISTS (SELECT 1 FROM job WHERE start_ts IS NOT NULL)",
    )
    return (without_end, without_wait)


def _end_cure(held: set[str]) -> str:
    if "end_ts" in held:
        return "are its texts all missing, or is every job running?"
    if "start_ts" in held:
        return "map end_ts, or run_s"
    if "run_s" in held:
        return "map start_ts, too; if waits are unknown, to the column of submit_ts. The end is then start_ts + run_s"
    return "map end_ts, or start_ts and run_s"


def jobs_select(held: set[str], *, waits_measured: bool) -> str:
    """Return the SELECT of the table `jobs` from the mapped and derived columns `held`.

    Running jobs get a null end, waiting jobs a null start. The run time of a running job, if not given, ends at the
    latest time in the table. Waits that are derived from times (not `waits_measured`) are null if no job waited.
    """
    status = "status" if "status" in held else "NULL"
    run = "run_s" if "run_s" in held else "NULL::DOUBLE"
    if {"run_s", "start_ts"} <= held:
        run = "CASE WHEN start_ts IS NOT NULL THEN run_s END"
    if {"status", "start_ts"} <= held:
        latest = _LATEST.format(times=", ".join(n for n in ("submit_ts", "start_ts", "end_ts") if n in held))
        run = f"coalesce({run}, CASE WHEN status = '{Status.RUNNING}' THEN epoch({latest} - start_ts) END)"
    begun = f"coalesce(status, '') <> '{Status.WAITING}'" if "status" in held else "true"
    waited = begun if waits_measured else f"{begun} AND {_WAIT_KNOWN}"
    made: dict[str, str] = {}
    if "start_ts" in held:
        made["start_ts"] = f"CASE WHEN {begun} THEN start_ts END"
    if "queue_s" in held:
        made["queue_s"] = f"CASE WHEN {waited} THEN queue_s END"
    made |= {
        "role": _role(held),
        "task_type": f"coalesce(task_type, '{TaskType.OTHER}')" if "task_type" in held else f"'{TaskType.OTHER}'",
        "instances": "coalesce(instances, 1)" if "instances" in held else "1",
        "run_s": f"CASE WHEN {begun} THEN {run} END",
        "run_s_censored": f"coalesce({status} IN ('{Status.RUNNING}', '{Status.TIMEOUT}'), false)",
    }
    if "workload" in held and "task_type" not in held:
        made["task_type"] = _TAGGED
    if "end_ts" in held and "status" in held:
        made["end_ts"] = f"CASE WHEN {_ENDED} THEN end_ts END"
    kept = [f'"{name}"' for name in JOB_COLUMNS if name in held and name not in made]
    return f"SELECT {', '.join([*kept, *(f'{value} AS {name}' for name, value in made.items())])} FROM job"


def usage_select(usage: Mapping[str, ColumnMapping], held: set[str]) -> str:
    """Return the SELECT of the table `usage`: one row for each job with at least one measured value."""
    measured = [name for name in USAGE_COLUMNS if name in usage and name != "instances_measured"]
    counts = [name for name in ("instances_measured", "instances") if name in usage or name in held]
    return f"""SELECT job_id, {_role(held)} AS role, {", ".join(measured)},
        coalesce({", ".join([*counts, "1"])}) AS instances_measured
        FROM job WHERE coalesce({", ".join(measured)}) IS NOT NULL"""


def _role(held: set[str]) -> str:
    return f"coalesce(role, '{ROLE_WHOLE_JOB}')" if "role" in held else f"'{ROLE_WHOLE_JOB}'"


def machines_select(columns: Mapping[str, ColumnMapping]) -> str:
    """Return the SELECT of the table `machines`; GPU memory that is not mapped is derived from the GPU type."""
    kept = [f'"{name}"' for name in MACHINE_COLUMNS if name in columns]
    if "gpu_type" in columns and "gpu_mem_gib" not in columns:
        kept.append(f"CAST({translated('gpu_type', GPU_MEM_GIB_OF_TYPE)} AS DOUBLE) AS gpu_mem_gib")
    return f"SELECT {', '.join(kept)} FROM machine"
