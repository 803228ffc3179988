"""Write the files of one simulation: settings and metrics as JSON, event log and time series as Parquet.

The same simulation gives the same bytes.
"""

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from pipelines.errors import BadUsage
from pipelines.simulation.energy.tables import FILES as ENERGY_FILES
from pipelines.simulation.engine.schedule import Schedule
from pipelines.simulation.measures.event_log import EVENTS, events
from pipelines.simulation.measures.metrics import Metrics, Uses
from pipelines.simulation.measures.series import fragmentation_series, series
from pipelines.simulation.shared.explaining import explanations
from scheduler_core.cluster import Machine
from scheduler_core.target import TargetWorkload

if TYPE_CHECKING:
    from pipelines.simulation.shared.run import SharedRun

SUMMARY: Final = "simulation.json"
LOG: Final = "events.parquet"
SERIES: Final = "series.parquet"
FRAGMENTATION: Final = "fragmentation.parquet"
TABLES: Final = (LOG, SERIES, FRAGMENTATION, *ENERGY_FILES)

_PARTIAL: Final = ".partial"
_OURS: Final = frozenset(name + suffix for name in (SUMMARY, *TABLES) for suffix in ("", _PARTIAL))
_ROW_GROUP: Final = 100_000
"""Fixed number of rows per row group, so that the bytes do not depend on the number of threads."""


def write_simulation(
    folder: Path,
    schedule: Schedule,
    metrics: Metrics,
    *,
    settings: Mapping[str, object],
    capacity_assumption: str,
    step_s: float,
    notes: Sequence[str] = (),
    names: Mapping[str, Sequence[str | None]] | None = None,
    uses: Uses | None = None,
    target: TargetWorkload | None = None,
    fragmented_gpus: float | None = None,
    extra: Mapping[str, pl.DataFrame] | None = None,
    shared: "SharedRun | None" = None,
) -> Path:
    """Write one simulation's results into its folder; return the summary's path.

    `names` are columns with one value per job (such as `job_id`) that are added to the event log. With a `target`, the
    time series of fragmentation is written too; GPUs must then be shared by devices. The `extra` tables are written as
    CSV files; their names must be in `TABLES`. With a run on shared machines, the event log explains its kills. The
    summary is written last and holds the checksums of the other files, so a folder with a summary is complete. Results
    of an earlier simulation are replaced.
    """
    _check_folder(folder)
    tables = {
        LOG: event_table(schedule, names or {}, shared),
        SERIES: pl.DataFrame(series(schedule, step_s, uses=uses)),
    }
    if target is not None:
        tables[FRAGMENTATION] = pl.DataFrame(dict(fragmentation_series(schedule, target, step_s)))
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.write_parquet(_partial(folder, name), compression="zstd", row_group_size=_ROW_GROUP)
    for name, table in (extra or {}).items():
        table.write_csv(_partial(folder, name), datetime_format="%Y-%m-%dT%H:%M:%SZ")
    tables |= extra or {}
    summary = {
        "settings": settings,
        "capacity": {"assumption": capacity_assumption, **capacity(schedule.machines)},
        "notes": list(notes),
        "end_s": schedule.end_s,
        "metrics": asdict(metrics) | ({} if target is None else {"fragmented_gpus": fragmented_gpus}),
        "files": {
            name: {"rows": table.height, "sha256": _sha256(_partial(folder, name))} for name, table in tables.items()
        },
    }
    text = json.dumps(_plain(summary), sort_keys=True, indent=2, allow_nan=False, ensure_ascii=False)
    _partial(folder, SUMMARY).write_text(text + "\n", encoding="utf-8", newline="\n")
    _publish(folder, list(tables))
    return folder / SUMMARY


def event_table(
    schedule: Schedule, names: Mapping[str, Sequence[str | None]], shared: "SharedRun | None" = None
) -> pl.DataFrame:
    """Return the event log as a frame, with the columns of `names` (one value per job) after the job's serial.

    With a run on shared machines, its `explanations` are the last columns.
    """
    for name, values in names.items():
        if len(values) != len(schedule.workload):
            raise BadUsage(
                f"results: found {len(values)} values of {name}, expected {len(schedule.workload)}, one per job"
            )
    columns = events(schedule)
    columns |= {} if shared is None else explanations(shared, columns)
    frame = pl.DataFrame(
        {
            name: pl.Series(name, column.tolist(), dtype=pl.String) if column.dtype == np.object_ else column
            for name, column in columns.items()
        },
        schema_overrides={"event": pl.Enum(EVENTS)},
    )
    joined = [pl.Series(name, values, dtype=pl.String)[columns["serial"]] for name, values in names.items()]
    first = ("time_s", "event", "serial")
    return frame.select(*first, *joined, pl.exclude(*first))


def capacity(machines: Sequence[Machine]) -> dict[str, object]:
    """Return the capacity of a cluster: its totals, and the number of machines and of GPUs of each GPU type.

    >>> capacity([Machine(name="m0", cpu_cores=96.0, mem_gib=512.0, gpus=8)])["gpus"]
    8
    """
    kinds = Counter(machine.gpu_type or "any" for machine in machines)
    gpus = Counter[str]()
    for machine in machines:
        gpus[machine.gpu_type or "any"] += machine.gpus
    return {
        "machines": len(machines),
        "cpu_cores": math.fsum(machine.cpu_cores for machine in machines),
        "mem_gib": math.fsum(machine.mem_gib for machine in machines),
        "gpus": sum(machine.gpus for machine in machines),
        "gpu_types": {kind: {"machines": count, "gpus": gpus[kind]} for kind, count in kinds.items()},
    }


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise BadUsage(f"results: found a file at {folder}, expected a folder; name another")
    if folder.is_dir():
        foreign = sorted(e.name for e in folder.iterdir() if e.name not in _OURS or e.is_symlink() or not e.is_file())
        if foreign:
            raise BadUsage(
                f"results: found {foreign[0][:80]!r} in {folder}, expected an empty folder or earlier results of a "
                "simulation; name another folder"
            )


def _publish(folder: Path, tables: Sequence[str]) -> None:
    """Rename the temporary files, the summary last, so that a summary is never next to tables of another run."""
    for name in (*tables, SUMMARY):
        with _partial(folder, name).open("rb") as file:
            os.fsync(file.fileno())
    for name in (SUMMARY, *TABLES):
        (folder / name).unlink(missing_ok=True)
    for name in (*tables, SUMMARY):
        _partial(folder, name).replace(folder / name)


def _partial(folder: Path, name: str) -> Path:
    return folder / (name + _PARTIAL)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: object) -> object:
    """Convert a value for JSON: a number that is not finite to null, numpy numbers to numbers, paths to text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    return value
