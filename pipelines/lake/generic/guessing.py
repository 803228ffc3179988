"""Guess the mapping of a table of jobs from its column names and a sample of its rows, and write it as TOML."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from pipelines.errors import SourceError
from pipelines.lake.generic.guessed_values import BINARY, Reading, numbers_of, reading, sampled, seconds
from pipelines.lake.generic.kinds import (
    CORES,
    DURATION,
    JOB_COLUMNS,
    PERCENT,
    REQUEST_OF,
    TIME,
    USAGE_COLUMNS,
    Kind,
)
from pipelines.lake.generic.mapping import DERIVED, NULLS

__all__ = ["guess_mapping"]

MORE_NULLS: Final = ("-", "--", "\\N", "(null)", "Null", "#N/A", "none")
"""Texts that mean missing in exports, beyond those that are always understood."""

_WHEN: Final = "(time|ts|at|date|timestamp)?"
_REQ: Final = "(req|requested|request|alloc|allocated)?"
_NUM: Final = "(num|number|count|request|requested|req)?"
NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "job_id": ("(job|task)(id|idraw|uid|uuid|number)", "id|uuid|job|(pod|run)(id|uid|name)|name"),
    "submit_ts": (f"(submit|submitted|submission){_WHEN}", f"(create|created|creation|queued|arrival){_WHEN}"),
    "start_ts": (f"(start|started|begin|began){_WHEN}", f"(scheduled|launch|launched){_WHEN}"),
    "end_ts": (f"(end|ended|finish|finished|completion|completed){_WHEN}", f"(deletion|deleted|stop|stopped){_WHEN}"),
    "run_s": ("elapsed(raw|time)?|duration|run(time)?|wall(time|clock|clocktime)?|exec(ution)?time", "length"),
    "queue_s": ("(queue|queued|queueing|wait|waiting|pending)(time|delay|duration)", "wait|queue"),
    "time_limit_s": ("(time|walltime|wall)limit(raw)?", "limit"),
    "status": ("(job)?(state|status)|(pod)?phase", "result|outcome|exit(status|state)"),
    "user": ("user(id|name)?|owner|submitter", "account|creator|email"),
    "group": ("(job|group)name|(job)?group(id)?|experiment(name)?", "name|template"),
    "vc": ("vc|virtualcluster|partition|queue(name)?|pool|namespace", "account|project|tenant|team|qos"),
    "instances": ("(n|num)?(instances|replicas|workers)|inst(ance)?num", "tasks|ntasks"),
    "nodes": ("n?nodes|(n|num)nodes|nodes?(num|count)", "hosts"),
    "req_cpu_cores": (f"{_REQ}(n|num)?(cpu|cpus|cores|vcpus?|cpucores){_NUM}", f"{_REQ}tres"),
    "req_mem_gib": (f"{_REQ}(mem|memory|ram){_NUM}", f"{_REQ}tres"),
    "req_gpus": (f"{_REQ}(n|num)?gpus?{_NUM}", f"{_REQ}(tres|gres)|gpu"),
    "gpu_type": ("gpu(type|model|spec|name)|accelerator(type)?", "gres"),
    "workload": ("workload|framework|model(name)?", "application|app"),
    "task_type": ("(task|job)(type|kind)", "type|kind"),
    "used_cpu_cores": (
        "totalcpu|(used|avg|mean)(cpu|cpus|cores|cpucores)(used)?|cpu(cores)?(used|usage|util|utili[sz]ation|avg)",
        "cpu(time|seconds)(used)?",
    ),
    "used_gpus": ("(used|avg|mean)gpus?(util)?|gpus?(used|usage|util|utili[sz]ation|avg)", "gpubusy"),
    "mem_max_gib": ("maxrss|(max|peak)(mem|memory|rss|ram)|(mem|memory|ram)(max|peak)", "(mem|memory|ram)(used|usage)"),
    "mem_avg_gib": ("averss|(avg|mean)(mem|memory|rss|ram)|(mem|memory|ram)(avg|mean)", "rss"),
    "gpu_mem_max_gib": ("(max|peak)gpumem(ory)?|gpumem(ory)?(max|peak)", "gpumem(ory)?(used|usage)?"),
    "gpu_mem_avg_gib": ("(avg|mean)gpumem(ory)?|gpumem(ory)?(avg|mean)", "gpumem"),
}
"""For each canonical column, patterns of the usual names and of names that may also mean something else."""

SLURM_MEMORY_NAMES: Final = ("reqmem", "maxrss", "averss")
SLURM_NAMES: Final = {
    *SLURM_MEMORY_NAMES, "alloctres", "reqtres", "elapsed", "elapsedraw", "jobidraw", "ncpus", "nnodes", "state",
    "totalcpu",
}  # fmt: skip
"""Names of Slurm's columns, in lower case; two of them in one table show that it is Slurm's."""

UNIT_WORDS: Final = {
    **{word: unit for unit, words in {
        "s": "s sec secs second seconds", "ms": "ms millis milliseconds", "us": "us micros", "min": "min mins minutes",
        "h": "h hr hrs hours", "days": "d days", "bytes": "b bytes", "percent": "pct percent", "cores": "cores",
        "millicores": "millicores milli", "milligpus": "milligpus",
    }.items() for word in words.split()},
    **{unit.lower(): unit for unit in ("KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB")},
}  # fmt: skip


MOST_PERCENT: Final = 110.0
"""Largest percentage of a request: a little above 100, by errors of measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A canonical column, the input column it is read from ("" if it is derived), and how."""

    name: str
    source: str
    reading: Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedMapping:
    """A guessed mapping: how the file is read, its columns, and the input columns that are not used, with reasons."""

    settings: Mapping[str, object]
    columns: Sequence[Guess]
    unused: Sequence[str]
    doubts: Sequence[str]

    def rows(self) -> list[dict[str, object]]:
        """Return one row per mapped column: what is read from where, and how sure that is."""
        return [
            {
                "column": each.name,
                "from": each.source,
                "read_as": ", ".join(f"{k} {v}" for k, v in each.reading.keys.items() if k != "values") or "as it is",
                "sure": "yes" if each.reading.sure else "look",
                "why": each.reading.why,
            }
            for each in self.columns
        ]

    def toml(self) -> str:
        """Return the text of the mapping file; uncertain lines end with a comment."""
        lines = [
            "# Guessed by `taut init`; docs/own-cluster.md lists all keys. Lines with LOOK are uncertain.",
            "[jobs]",
        ]
        lines += [f"{name} = {_toml(value)}" for name, value in self.settings.items()]
        lines += [f"# LOOK: {doubt}" for doubt in self.doubts]
        for section, kinds in (("jobs", JOB_COLUMNS), ("usage", USAGE_COLUMNS)):
            chosen = [each for each in self.columns if each.name in kinds]
            lines += ["", f"[{section}.columns]"] if chosen else []
            for each in chosen:
                keys = {"column": each.source, **each.reading.keys} if each.source else each.reading.keys
                value = _toml(each.source if keys == {"column": each.source} else keys)
                lines.append(
                    f"{each.name} = {value}{'' if each.reading.sure else f'  # LOOK: {_printable(each.reading.why)}'}"
                )
        lines += ["", f"# not used: {', '.join(self.unused)}"] if self.unused else []
        return "\n".join([*lines, ""])


def guess_mapping(path: Path) -> GuessedMapping:
    """Guess the mapping of a CSV or Parquet file of jobs from samples of its rows."""
    how, cells = sampled(path)
    names = list(cells)
    nulls = [each for each in MORE_NULLS if any(each in texts for texts in cells.values())]
    texts = {name: [t for t in column if t not in (*NULLS, *nulls)] for name, column in cells.items()}
    columns = _with_percents(_with_binary_units(_matched(texts)), texts)
    columns = _with_start(_with_checked_spans(_with_id(columns, texts), cells))
    lacking = [name for name in ("job_id", "submit_ts") if name not in {each.name for each in columns}]
    if lacking:
        raise SourceError(
            f"{path}: found no column for {' and '.join(lacking)} among {_printable(', '.join(names))[:300]}; "
            "rename it, or write the mapping by hand (docs/own-cluster.md)"
        )
    zone, doubt = _zone(columns, texts)
    return GuessedMapping(
        settings={**how, "zone": zone} | ({"nulls": nulls} if nulls else {}),
        columns=columns,
        unused=[_unused(name, texts[name], columns) for name in names if name not in {each.source for each in columns}],
        doubts=doubt,
    )


def _matched(texts: Mapping[str, Sequence[str]]) -> list[Guess]:
    """Return a guess for each canonical column with a source of a fitting name and fitting texts; usual names first."""
    found: dict[str, Guess] = {}
    slurm_table = len(SLURM_NAMES & {source.lower() for source in texts}) > 1
    kinds = {**JOB_COLUMNS, **USAGE_COLUMNS}
    for usual in (True, False):
        for name, patterns in NAMES.items():
            for source in texts:
                shared = "tres" in source.lower()
                taken = any(each.source == source for each in found.values()) and not shared
                if name in found or taken or not texts[source]:
                    continue
                key, unit = _key(source, kinds[name], patterns[not usual])
                of_slurm = slurm_table or source.lower() in SLURM_MEMORY_NAMES
                read = reading(kinds[name], texts[source], unit, name, of_slurm=of_slurm) if key else None
                if read is not None and _plausible(name, texts[source]):
                    if not (usual or shared):
                        read = read._replace(sure=False, why=f"{read.why}; the name may mean something else")
                    found[name] = Guess(name=name, source=source, reading=read)
    return [found[name] for name in kinds if name in found]


def _key(source: str, kind: Kind, pattern: str) -> tuple[bool, str | None]:
    """Return whether a source's name matches a pattern, with or without a unit at its end, and that unit."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z])(?<![KMGT]i)(?=[A-Z])", " ", source).lower())
    whole = "".join(words)
    named = UNIT_WORDS.get(words[-1]) if len(words) > 1 else None
    unit = "milligpus" if named == "millicores" and "milligpus" in kind.units else named
    if (unit in kind.units or (unit == "s" and kind is CORES)) and re.fullmatch(pattern, "".join(words[:-1])):
        return True, unit
    return re.fullmatch(pattern, whole) is not None, None


def _plausible(name: str, texts: Sequence[str]) -> bool:
    """Return whether the texts fit a column: ids do not repeat, and names of queues are no numbers."""
    if name == "job_id":
        return len(set(texts)) >= 0.95 * len(texts)
    return name != "vc" or not all(re.fullmatch(r"[\d.]+", text) for text in texts)


def _unused(source: str, texts: Sequence[str], columns: Sequence[Guess]) -> str:
    """Return the name of a column that is not used, with the reason if a canonical column may have its name."""
    kinds = {**JOB_COLUMNS, **USAGE_COLUMNS}
    named = [
        name for name, patterns in NAMES.items() if any(_key(source, kinds[name], pattern)[0] for pattern in patterns)
    ]
    if not named:
        return _printable(source)
    if not texts:
        return _printable(f"{source} (no row has a value)")
    used = {each.name: each.source for each in columns}
    unread = next((name for name in named if not used.get(name)), None)
    if unread is None:
        return _printable(f"{source} ({named[0]} is read from {used[named[0]]})")
    example = next((text for text in texts if re.fullmatch(r"[\d.]*", text) is None), texts[0])
    return _printable(f"{source} ({unread} cannot be read from texts like {example[:40]})")


def _with_id(columns: Sequence[Guess], texts: Mapping[str, Sequence[str]]) -> list[Guess]:
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


def _with_start(columns: Sequence[Guess]) -> list[Guess]:
    """Return the columns with a start, derived if it is missing, so that jobs with a run time have an end."""
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


def _with_checked_spans(columns: Sequence[Guess], cells: Mapping[str, Sequence[str]]) -> list[Guess]:
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


def _with_binary_units(columns: Sequence[Guess]) -> list[Guess]:
    """Return the columns with sizes in MB as MiB if another column of the table is in MiB; the same for other units."""
    units = {str(each.reading.keys.get("unit")): each.source for each in reversed(columns)}

    def checked(each: Guess) -> Guess:
        unit = str(each.reading.keys.get("unit"))
        binary = BINARY.get(unit, "")
        why = f"{unit} in the name, but {units.get(binary)} is in {binary}: {binary}"
        return replace(each, reading=Reading({"unit": binary}, False, why)) if binary in units else each

    return [checked(each) for each in columns]


def _with_percents(columns: Sequence[Guess], cells: Mapping[str, Sequence[str]]) -> list[Guess]:
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
    """Return whether every job requests one core or GPU; then a percentage of one and of the request are the same."""
    if request is None or "unit" not in request.reading.keys:
        return False
    factor = JOB_COLUMNS[request.name].units[str(request.reading.keys["unit"])]
    return {number * factor for number in numbers_of(cells[request.source])} == {1.0}


def _zone(columns: Sequence[Guess], texts: Mapping[str, Sequence[str]]) -> tuple[str, list[str]]:
    """Return the time zone, and what is uncertain about it."""
    moments = [each.source for each in columns if each.source and JOB_COLUMNS.get(each.name) is TIME]
    times = [text for source in moments for text in texts[source]]
    offsets = {match[1] for text in times if (match := re.search(r"\d ?([+-]\d{2}):?(00)?$", text)) and ":" in text}
    if len(offsets) == 1 and (hours := int(min(offsets))):
        return f"Etc/GMT{-hours:+d}", ["the offset of the times; a zone like Europe/Berlin also has its clock changes"]
    return "UTC", [
        "zone: the file does not name the cluster's; set it, like Europe/Berlin. Times without an offset are read in it"
    ]


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        keys = (k if re.fullmatch(r"[A-Za-z0-9_-]+", k) else json.dumps(k, ensure_ascii=False) for k in value)
        return "{ " + ", ".join(f"{key} = {_toml(v)}" for key, v in zip(keys, value.values(), strict=True)) + " }"
    return json.dumps(value, ensure_ascii=False)
