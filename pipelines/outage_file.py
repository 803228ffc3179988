"""Machine outages of a simulation, as a CSV file tells them: `machine,down_s,up_s`, an empty end is for ever.

Outages drawn at random are `pipelines.simulation.engine.outages`'. Called by `taut simulate`.
"""

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.errors import BadUsage
from pipelines.simulation.engine.workload import Outages
from scheduler_core.cluster import Machine

COLUMNS: Final = ("machine", "down_s", "up_s")


def outage_file(path: Path, machines: Sequence[Machine]) -> Outages:
    """Read when machines, by name, are away: seconds of the simulation, which starts at 0.

    Raises
    ------
    BadUsage
        If there is no such file, or a line names no machine or no span; the line is named.
    """
    index = {machine.name: at for at, machine in enumerate(machines)}
    spans: list[tuple[float, float, int]] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:  # spreadsheets begin a file with a mark of UTF-8
            lines = csv.reader(text)
            header = next(lines, [])
            if tuple(header) != COLUMNS:
                raise BadUsage(f"{path}: found the columns {','.join(header)!r}, expected {','.join(COLUMNS)}")
            for fields in lines:
                spans.append(_span(fields, index, f"{path}, line {lines.line_num}"))
    except OSError as error:
        raise BadUsage(f"{path}: {error.strerror}; expected a CSV file of outages: {','.join(COLUMNS)}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadUsage(f"{path} is no CSV text: {error}; expected the columns {','.join(COLUMNS)}") from error
    spans.sort()
    return Outages(
        machine=np.array([machine for _, _, machine in spans], dtype=np.int64),
        down_s=np.array([down_s for down_s, _, _ in spans], dtype=np.float64),
        up_s=np.array([up_s for _, up_s, _ in spans], dtype=np.float64),
    )


def _span(fields: Sequence[str], index: dict[str, int], where: str) -> tuple[float, float, int]:
    if len(fields) != len(COLUMNS):
        raise BadUsage(f"{where}: found {len(fields)} fields, expected {len(COLUMNS)}: {','.join(COLUMNS)}")
    name, down, up = fields
    if name not in index:
        raise BadUsage(f"{where}: found the machine {name!r}, expected one of the cluster, as {next(iter(index))!r}")
    try:
        down_s, up_s = float(down), float(up) if up else math.inf
    except ValueError:
        raise BadUsage(f"{where}: found {down!r} to {up!r}, expected seconds") from None
    if not (0.0 <= down_s < up_s and math.isfinite(down_s)):
        raise BadUsage(f"{where}: found {down!r} to {up!r}, expected a begin of at least 0 and a later end")
    return down_s, up_s, index[name]
