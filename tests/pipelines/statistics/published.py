"""The published numbers of `data/published/*.toml` against a lake; helios.toml describes the form of these files."""

import re
import tomllib
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from pipelines.lake.lake import Lake
from pipelines.lake.manifest import Manifest
from pipelines.statistics import STATISTICS, Answer

FOLDER: Final = Path(__file__).resolve().parents[3] / "data" / "published"
UNITS: Final = {"": 1.0, "%": 100.0, "h": 1 / 3600, "GPU-s": 3600.0}
"""Factor from a statistic's own unit (share, seconds, GPU-hours) to each unit used in print."""
WHOLE_WITHIN: Final = 0.01
"""Maximum relative difference in the number of rows at which a table counts as the published one."""
_NUMBER: Final = re.compile(r"(?P<above>>?) ?(?P<digits>[0-9.,]*[0-9](?:e[+-]?[0-9]+)?) ?(?P<unit>\S*)")


class Compared(NamedTuple):
    """A published number that a lake can give, and the computed one in the printed unit."""

    trace: str
    of: str
    what: str
    published: str
    found: str
    matches: bool
    note: str | None


def read(folder: Path = FOLDER) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the populations by name, and the rows of published numbers."""
    files = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.toml"))]
    populations = {name: each for file in files for name, each in file.get("of", {}).items()}
    return populations, [row for file in files for row in file.get("rows", ())]


def compared(lake: Lake, folder: Path = FOLDER) -> list[Compared]:
    """Compare the published numbers whose rows the lake has; each statistic is computed once."""
    populations, rows = read(folder)

    @cache
    def ask(name: str, trace: str, by: tuple[str, ...], cluster: str | None) -> Answer:
        return STATISTICS[name].answer(lake, trace, by, cluster)

    done = []
    for row in rows:
        population = populations[row["of"]]
        if population["trace"] in lake.traces() and holds(lake.manifest(population["trace"]), population, populations):
            cluster = population.get("cluster")
            answer = ask(row["statistic"], population["trace"], tuple(row.get("by", ())), cluster)
            done += [one for column in row["published"] if (one := _compared(row, column, answer.rows, population))]
    return done


def holds(manifest: Manifest, population: dict[str, Any], populations: dict[str, Any]) -> bool:
    """Return whether a trace has the rows that a population describes, within 1 %, and of parts nothing beside them."""
    parts = [populations[name] for name in population.get("parts", ())]
    if parts and set(manifest.clusters) != {part["cluster"] for part in parts}:
        return False
    cluster = population.get("cluster")
    for table, rows in population.get("rows", {}).items():
        here = sum(a.rows_in for a in manifest.accounts if a.table == table and cluster in (None, a.cluster) and a.file)
        if abs(here - rows) > WHOLE_WITHIN * rows:
            return False
    return all(holds(manifest, part, populations) for part in parts)


def _compared(row: dict[str, Any], column: str, rows: pl.DataFrame, population: dict[str, Any]) -> Compared | None:
    conditions = [_is(name, value) for name, value in row.get("where", {}).items()]
    values = (rows.filter(*conditions) if conditions else rows)[column].drop_nulls().to_list() if rows.height else []
    assert len(values) < 2 or row.get("add"), (row, values)
    if not values:
        return None
    text, number = row["published"][column], _NUMBER.fullmatch(row["published"][column])
    where = ", ".join(f"{name} {value}" for name, value in row.get("where", {}).items())
    what = f"{row['statistic']}.{column}" + (f" ({where})" if where else "")
    if isinstance(values[0], str) or number is None:  # a checksum, or a time
        found, matches = str(values[0]), str(values[0]) == text
    else:
        value = float(sum(values)) * UNITS[number["unit"]]
        found, matches = f"{value:.10g}", _matches(value, number, row.get("about"))
    return Compared(population["trace"], population["what"], what, text, found, matches, row.get("note"))


def _is(name: str, value: Any) -> pl.Expr:
    """Return the condition that a column equals a value or one of several; an empty text means null."""
    if isinstance(value, list):
        return pl.any_horizontal(_is(name, each) for each in value)
    return pl.col(name).is_null() if value == "" else pl.col(name) == value


def _matches(value: float, number: re.Match[str], about: float | None) -> bool:
    """Return whether a value rounds to the printed digits, lies within `about` of them, or above a lower bound."""
    digits = Decimal(number["digits"].replace(",", ""))
    if number["above"]:
        return value > float(digits)
    half_digit = float(Decimal(5).scaleb(int(digits.as_tuple().exponent) - 1))
    tolerance = half_digit if about is None else about * abs(float(digits))
    return abs(value - float(digits)) <= tolerance + 1e-9 * abs(float(digits))
