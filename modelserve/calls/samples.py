"""Samples and running statistics of a reservation call, as arrays, with a list of the refused values of each job.

The rules for a single sample are in `scheduler_core.reserve`.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np

from features.vocabulary import GPU_MEM_GIB_OF_TYPE
from modelserve.contract.reservations import InputFault, RunningJob, SampleColumns, Statistics
from scheduler_core.reserve import Running, SampleFault, Samples
from scheduler_core.types import FloatArray, IntArray

__all__ = ["USES", "Refusal", "device_gib", "refused_cells", "samples_of", "statistics_of", "whole"]

USES: Final = ("cpu_cores", "gpus", "mem_gib", "gpu_mem_gpus")
"""Sampled amounts, in the order of `Samples.use`."""
GIB: Final = "gpu_mem_gib"

Refusal = tuple[str, str, tuple[int, ...]]
"""A field, why it is refused, and the indices of its refused samples (none: the field as a whole)."""
Column = tuple[float | None, ...] | None


def whole(field: str, why: InputFault | SampleFault) -> Refusal:
    """Return the refusal of a field as a whole."""
    return (field, str(why), ())


def device_gib(row: RunningJob) -> float:
    """Return the memory of one of a job's GPUs in GiB; NaN if unknown."""
    return row.device_mem_gib or GPU_MEM_GIB_OF_TYPE.get(row.gpu_type or "", math.nan)


def samples_of(rows: Sequence[RunningJob], refused: Sequence[list[Refusal]]) -> Samples:
    """Return the samples of n jobs; GPU memory in GiB is converted to GPUs if the device's memory is known.

    Faults of a column as a whole are added to `refused`; the column then counts as not sampled.
    """
    times: list[Column] = []
    columns: dict[str, list[Column]] = {name: [] for name in (*USES, GIB)}
    for row, faults in zip(rows, refused, strict=True):
        given = row.samples
        times.append(None if given is None else given.at_s)
        for name, found in columns.items():
            column: Column = None if given is None else getattr(given, name)
            if column is not None and given is not None and len(column) != len(given.at_s):
                faults.append(whole(f"samples.{name}", "length"))
                column = None
            found.append(column)
        if given is not None:
            faults += _clashes(given, row.statistics)
    count = np.array([0 if column is None else len(column) for column in times], dtype=np.int64)
    device = np.array([device_gib(row) for row in rows])
    in_gib = np.array([column is not None for column in columns[GIB]])
    gpu_mem = _matrix(columns["gpu_mem_gpus"], count)
    gpu_mem[in_gib] = (_matrix(columns[GIB], count) / device[:, None])[in_gib]
    use = np.stack([*(_matrix(columns[name], count) for name in USES[:3]), gpu_mem], axis=2)
    sent = np.array([[column is not None for column in columns[name]] for name in USES]).T
    sent[:, 3] |= in_gib & np.isfinite(device)
    return Samples(count=count, at_s=_matrix(times, count), use=use, sent=sent)


def _matrix(columns: Sequence[Column], count: IntArray) -> FloatArray:
    """Return columns of unequal length as the rows of a matrix, with NaN for null and for places without a value."""
    matrix = np.full((len(columns), int(count.max())), np.nan)
    given = np.array([column is not None for column in columns])
    places = (np.arange(matrix.shape[1]) < count[:, None]) & given[:, None]
    values = chain.from_iterable(column for column in columns if column is not None)
    try:
        matrix[places] = np.fromiter(values, dtype=np.float64)
    except TypeError:  # a null, which only the slower conversion takes
        values = chain.from_iterable(column for column in columns if column is not None)
        matrix[places] = np.array(list(values), dtype=np.float64)
    return matrix


def _clashes(samples: SampleColumns, known: Statistics | None) -> list[Refusal]:
    """Return the contradictions between two columns, or between samples and statistics."""
    in_gib, in_gpus = samples.gpu_mem_gib is not None, samples.gpu_mem_gpus is not None
    found = [whole("samples.gpu_mem_gib", "ambiguous")] if in_gib and in_gpus else []
    if known is not None and known.count:
        # Statistics of a resource that is no longer sampled would pass for its present use.
        lapsed = [
            name
            for name in ("cpu_cores", "gpus", "mem_gib")
            if getattr(samples, name) is None and getattr(known, name) is not None
        ]
        lapsed += ["gpu_mem_gpus"] if known.gpu_mem_gpus is not None and not (in_gib or in_gpus) else []
        found += [whole(f"samples.{name}", "missing") for name in lapsed]
    return found


def refused_cells(rows: Sequence[RunningJob], codes: IntArray, refused: Sequence[list[Refusal]]) -> None:
    """Add the faults of single samples to `refused`; `codes` (n, m, 5) is what `faults_of` returned."""
    cells: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for job, sample, value in np.argwhere(codes).tolist():
        cells[job, value, int(codes[job, sample, value])].append(sample)
    faults = tuple(SampleFault)
    for (job, value, code), places in cells.items():
        name = ("at_s", *USES)[value]
        sampled = rows[job].samples
        if name == "gpu_mem_gpus" and sampled is not None and sampled.gpu_mem_gpus is None:
            name = GIB
        refused[job].append((f"samples.{name}", str(faults[code - 1]), tuple(places)))


def statistics_of(rows: Sequence[RunningJob], age_s: FloatArray, refused: Sequence[list[Refusal]]) -> Running:
    """Return the statistics that the jobs of a call contain; refused statistics count as absent.

    Valid memory of refused statistics still counts, so that a fault does not let a reservation fall below a known peak.
    """
    known = Running.none(len(rows))
    for i, row in enumerate(rows):
        if (given := row.statistics) is not None:
            faults = list(_statistics_faults(given, float(age_s[i])))
            refused[i].extend(faults)
            memory = ((given.mem_gib, "mem_gib"), (given.gpu_mem_gpus, "gpu_mem_gpus"))
            unsound = {field for field, _, _ in faults}
            known.memory[i] = [
                math.nan if value is None or f"statistics.{name}" in unsound else value for value, name in memory
            ]
            if not faults:
                _put_compute(known, i, given)
    return known


def _statistics_faults(given: Statistics, age_s: float) -> Iterator[Refusal]:
    if given.count and given.at_s is None:
        yield whole("statistics.at_s", "missing")
    uses = {"mem_gib": given.mem_gib, "gpu_mem_gpus": given.gpu_mem_gpus}
    times = {"at_s": given.at_s}
    for name, use in {"cpu_cores": given.cpu_cores, "gpus": given.gpus}.items():
        if use is not None:
            # A sum of squares has another limit: its root is checked like one deviation.
            spread = math.copysign(math.sqrt(abs(use.squares) / max(given.count, 1)), use.squares)
            uses |= {f"{name}.mean": use.mean, f"{name}.recent": use.recent, f"{name}.squares": spread}
            times[f"{name}.pressed_s"] = use.pressed_s
    faults = {name: SampleFault.of_use(value) for name, value in uses.items() if value is not None}
    faults |= {name: SampleFault.of_time(value, age_s) for name, value in times.items() if value is not None}
    yield from (whole(f"statistics.{name}", fault) for name, fault in faults.items() if fault is not None)


def _put_compute(known: Running, job: int, given: Statistics) -> None:
    known.count[job] = given.count
    known.at_s[job] = -math.inf if given.at_s is None else given.at_s
    for place, use in enumerate((given.cpu_cores, given.gpus)):
        if given.count and use is None:
            known.mean[job, place] = known.squares[job, place] = known.recent[job, place] = math.nan
        elif given.count and use is not None:
            known.mean[job, place], known.recent[job, place] = use.mean, use.recent
            known.squares[job, place] = use.squares
            known.pressed_s[job, place] = -math.inf if use.pressed_s is None else use.pressed_s
