"""Check guessed columns against each other: units of spans and use, and ids and starts that no column's name shows.

`guessed_values.py` interprets a column's texts alone.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from pipelines.lake.generic.guessed_values import BINARY, Reading, numbers_of, seconds
from pipelines.lake.generic.kinds import DURATION, JOB_COLUMNS, PERCENT, REQUEST_OF
from pipelines.lake.generic.mapping import DERIVED

MOST_PERCENT: Final = 110.0
"""Largest percentage of a request: a little above 100, by errors of measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A canonical column, the input column it is read from ("" if it is derived), and how."""

    name: str
    source: str
    reading: Reading


def with_id(columns: Sequence[Guess], texts: Mapping[str, Sequence[str]]) -> list[Guess]:
    """Return the columns with a job id: without a fitting name, the first unused column whose texts never repeat."""
    if not columns or any(each.name == "job_id" for each in columns):
        return list(columns)
    used = {each.source for each in columns}
    for source, found in texts.items():
        distinct = len(found) > 1 and len(set(found)) == len(found)
        if source not in used and distinct and not any(re.search(r"[.:]", text) for text in found):
            read = Reading({}, False, "no text repeats; the name does not say that it is an id")
            return [Guess(name="job_id", source=source, reading=read), *columns]
    return list(columns)


def with_start(columns: Sequence[Guess]) -> list[Guess]:
    """Return the columns with a start: without one, derived from other columns, so that jobs with a run time end."""
    of = {each.name: each for each in columns}
    if "start_ts" in of or "run_s" not in of or "submit_ts" not in of:
        return list(columns)
    derived = next((how for how in DERIVED["start_ts"] if set(how.split()[::2]) <= of.keys()), None)
    if derived is not None:
        read = Reading({"derive": derived}, True, "no column of starts")
        return [*columns, Guess(name="start_ts", source="", reading=read)]
    if "end_ts" in of:
        return list(columns)
    submitted = of["submit_ts"]
    read = Reading(submitted.reading.keys, False, "no column of starts: waits count as unknown")
    return [*columns, Guess(name="start_ts", source=submitted.source, reading=read)]


def with_checked_spans(columns: Sequence[Guess], cells: Mapping[str, Sequence[str]]) -> list[Guess]:
    """Compare spans in numbers with the times they lie between, which gives their unit."""
    of = {each.name: each for each in columns}
    return [_checked_span(each, of, cells) for each in columns]


def _checked_span(each: Guess, of: Mapping[str, Guess], cells: Mapping[str, Sequence[str]]) -> Guess:
    ends = {"run_s": ("start_ts", "end_ts"), "queue_s": ("submit_ts", "start_ts")}.get(each.name, ())
    if "unit" not in each.reading.keys or not ends or not set(ends) <= set(of):
        return each
    early, late = (seconds(cells[of[end].source], str(of[end].reading.keys.get("time", "iso"))) for end in ends)
    ratios = [
        (b - a) / float(text)
        for a, b, text in zip(early, late, cells[each.source], strict=True)
        if a is not None and b is not None and re.fullmatch(r"\d+(\.\d+)?", text) and float(text) > 0
    ]
    middle = median(ratios) if ratios else 0.0
    units = [unit for unit, factor in DURATION.units.items() if abs(middle / factor - 1) < 0.02]
    read = Reading({"unit": units[0]}, True, f"equals {ends[1]} - {ends[0]} in {units[0]}") if units else each.reading
    return replace(each, reading=read)


def with_binary_units(columns: Sequence[Guess]) -> list[Guess]:
    """Return the columns with sizes in MB as MiB if another column of the table is in MiB; the same for other units."""
    units = {str(each.reading.keys.get("unit")): each.source for each in reversed(columns)}

    def checked(each: Guess) -> Guess:
        unit = str(each.reading.keys.get("unit"))
        binary = BINARY.get(unit, "")
        why = f"{unit} in the name, but {units.get(binary)} is in {binary}: {binary}"
        return replace(each, reading=Reading({"unit": binary}, False, why)) if binary in units else each

    return [checked(each) for each in columns]


def with_percents(columns: Sequence[Guess], cells: Mapping[str, Sequence[str]]) -> list[Guess]:
    """Return the columns with a doubt on percentages that can be of one core (or GPU) and of a job's request."""
    of = {each.name: each for each in columns}
    return [_checked_percent(each, of.get(REQUEST_OF.get(each.name, "")), cells) for each in columns]


def _checked_percent(each: Guess, request: Guess | None, cells: Mapping[str, Sequence[str]]) -> Guess:
    highest = max(numbers_of([text.rstrip(" %") for text in cells.get(each.source, ())]), default=0.0)
    one = "core" if each.name == "used_cpu_cores" else "GPU"
    if each.reading.keys.get("unit") != PERCENT or highest > MOST_PERCENT or _all_of_one(request, cells):
        return each
    if request is None:
        why = f"percent of one {one} is assumed; if of the request, map {REQUEST_OF[each.name]}, too, and set `of`"
        return replace(each, reading=Reading({"unit": PERCENT}, False, why))
    why = f"none is above {highest:g}: percent of the request is assumed; if of one {one}, remove `of`"
    return replace(each, reading=Reading({"unit": PERCENT, "of": "request"}, False, why))


def _all_of_one(request: Guess | None, cells: Mapping[str, Sequence[str]]) -> bool:
    """Return whether every job requests one core or GPU, of which a percentage means the same as of the request."""
    if request is None or "unit" not in request.reading.keys:
        return False
    factor = JOB_COLUMNS[request.name].units[str(request.reading.keys["unit"])]
    return {number * factor for number in numbers_of(cells[request.source])} == {1.0}
