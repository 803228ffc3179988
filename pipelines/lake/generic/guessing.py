"""Guess the mapping of a CSV file of jobs from its header and a sample of its rows, and write it as TOML.

`guessed_values.py` reads the texts. Called by `taut init`.
"""

import csv
import gzip
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from pipelines.errors import SourceError
from pipelines.lake.generic.guessed_values import Reading, reading, seconds
from pipelines.lake.generic.kinds import DURATION, JOB_COLUMNS, TIME, USAGE_COLUMNS, Kind
from pipelines.lake.generic.mapping import NULLS

__all__ = ["guess_mapping"]

MOST_BYTES: Final = 1 << 20
MOST_ROWS: Final = 2000
DELIMITERS: Final = ",;\t|"
MORE_NULLS: Final = ("-", "--", "\\N", "(null)", "Null", "#N/A", "none")
"""Texts that mean missing in exports, beyond those that are always understood."""

_WHEN: Final = "(time|ts|at|date|timestamp)?"
_REQ: Final = "(req|requested|request|alloc|allocated)?"
_NUM: Final = "(num|number|count|request|requested|req)?"
NAMES: Final[Mapping[str, tuple[str, str]]] = {
    "job_id": ("(job|task)(id|idraw|uid|uuid|number)", "id|uuid|job|(pod|run)(id|uid|name)|name"),
    "submit_ts": (f"(submit|submitted|submission){_WHEN}", f"(create|created|creation|queued|arrival){_WHEN}"),
    "start_ts": (f"(start|started|begin){_WHEN}", f"(scheduled|launch|launched){_WHEN}"),
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
    "req_cpu_cores": (f"{_REQ}(n|num)?(cpu|cpus|cores|vcpus?){_NUM}", f"{_REQ}tres"),
    "req_mem_gib": (f"{_REQ}(mem|memory|ram){_NUM}", f"{_REQ}tres"),
    "req_gpus": (f"{_REQ}(n|num)?gpus?{_NUM}", f"{_REQ}(tres|gres)|gpu"),
    "gpu_type": ("gpu(type|model|spec|name)|accelerator(type)?", "gres"),
    "workload": ("workload|framework|model(name)?", "application|app"),
    "task_type": ("(task|job)(type|kind)", "type|kind"),
    "used_cpu_cores": ("totalcpu|(used|avg|mean)(cpu|cpus|cores)|cpu(used|usage|util|utili[sz]ation|avg)", "cputime"),
    "used_gpus": ("(used|avg|mean)gpus?(util)?|gpus?(used|usage|util|utili[sz]ation|avg)", "gpubusy"),
    "mem_max_gib": ("maxrss|(max|peak)(mem|memory|rss)|(mem|memory)(max|peak)", "(mem|memory)(used|usage)"),
    "mem_avg_gib": ("averss|(avg|mean)(mem|memory|rss)|(mem|memory)(avg|mean)", "rss"),
    "gpu_mem_max_gib": ("(max|peak)gpumem(ory)?|gpumem(ory)?(max|peak)", "gpumem(ory)?(used|usage)?"),
    "gpu_mem_avg_gib": ("(avg|mean)gpumem(ory)?|gpumem(ory)?(avg|mean)", "gpumem"),
}
"""For each canonical column, patterns of the usual names and of names that may also mean something else."""

UNIT_WORDS: Final = {
    **{word: unit for unit, words in {
        "s": "s sec secs second seconds", "ms": "ms millis milliseconds", "us": "us micros", "min": "min mins minutes",
        "h": "h hr hrs hours", "days": "d days", "bytes": "b bytes", "percent": "pct percent", "cores": "cores",
        "millicores": "millicores milli", "milligpus": "milligpus",
    }.items() for word in words.split()},
    **{unit.lower(): unit for unit in ("KiB", "MiB", "GiB", "TiB", "KB", "MB", "GB", "TB")},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """A canonical column, the input column it is read from, and how."""

    name: str
    source: str
    reading: Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedMapping:
    """A guessed mapping: how the file is read, its columns, and the input columns that are not used."""

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
                keys = {"column": each.source, **each.reading.keys}
                value = _toml(each.source if len(keys) == 1 else keys)
                lines.append(
                    f"{each.name} = {value}{'' if each.reading.sure else f'  # LOOK: {_printable(each.reading.why)}'}"
                )
        lines += ["", f"# not used: {', '.join(self.unused)}"] if self.unused else []
        return "\n".join([*lines, ""])


def guess_mapping(path: Path) -> GuessedMapping:
    """Guess the mapping of a CSV file of jobs from samples of its rows.

    Raises
    ------
    SourceError
        If the file cannot be read, has no header, or has no column of job ids or submission times.
    """
    text, encoding = _sample(path)
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    header, *rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row] or [[]]
    rows = rows[:: 1 + len(rows) // MOST_ROWS]
    names = [name.strip() for name in header]
    if not rows or len(set(names)) < len(names) or any(re.fullmatch(r"[\d.]*", name) for name in names):
        raise SourceError(
            f"{path}: found no header with a name for each column and rows below it; write the mapping by hand, with "
            "header = false and positions (docs/own-cluster.md)"
        )
    cells = {name: [row[i].strip() for row in rows if len(row) == len(names)] for i, name in enumerate(names)}
    nulls = [each for each in MORE_NULLS if any(each in texts for texts in cells.values())]
    texts = {name: [t for t in column if t not in (*NULLS, *nulls)] for name, column in cells.items()}
    columns = _checked_spans(_matched(texts), cells)
    lacking = [name for name in ("job_id", "submit_ts") if name not in {each.name for each in columns}]
    if lacking:
        raise SourceError(
            f"{path}: found no column for {' and '.join(lacking)} among {_printable(', '.join(names))[:300]}"
        )
    zone, doubt = _zone(columns, texts)
    settings = {"format": "csv", "delimiter": delimiter, "encoding": encoding, "zone": zone, "nulls": nulls}
    return GuessedMapping(
        settings={k: v for k, v in settings.items() if v and (k, v) not in (("delimiter", ","), ("encoding", "utf-8"))},
        columns=columns,
        unused=[_printable(name) for name in names if name not in {each.source for each in columns}],
        doubts=doubt,
    )


def _sample(path: Path) -> tuple[str, str]:
    """Return whole lines of a file, from its begin, middle and end if it is long and not packed, and its encoding."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = stream.read(MOST_BYTES)
            parts = [data if len(data) < MOST_BYTES else data[: data.rfind(b"\n") + 1]]
            if path.suffix != ".gz" and len(data) == MOST_BYTES:
                size = path.stat().st_size
                for place in (size // 2, size - MOST_BYTES // 2):
                    stream.seek(max(place, MOST_BYTES))
                    part = stream.read(MOST_BYTES // 2)
                    parts.append(part[part.find(b"\n") + 1 : part.rfind(b"\n") + 1])
    except (OSError, EOFError) as error:
        raise SourceError(f"{path}: cannot be read ({_reason(error)}); expected a CSV file of jobs") from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data[: len(data) // 2 * 2].decode("utf-16", "replace"), "utf-16"
    whole = b"".join(parts)
    if b"\0" in whole:
        raise SourceError(f"{path}: found bytes that are no text; expected a CSV file of jobs")
    try:
        return whole.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return whole.decode("latin-1"), "latin-1"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "damaged"


def _matched(texts: Mapping[str, Sequence[str]]) -> list[Guess]:
    """Return a guess for each canonical column with a source of a fitting name and fitting texts; usual names first."""
    found: dict[str, Guess] = {}
    kinds = {**JOB_COLUMNS, **USAGE_COLUMNS}
    for usual in (True, False):
        for name, patterns in NAMES.items():
            for source in texts:
                shared = "tres" in source.lower()
                taken = any(each.source == source for each in found.values()) and not shared
                if name in found or taken or not texts[source]:
                    continue
                key, unit = _key(source, kinds[name], patterns[not usual])
                read = reading(kinds[name], texts[source], unit, name) if key else None
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
    if unit in kind.units and re.fullmatch(pattern, "".join(words[:-1])):
        return True, unit
    return re.fullmatch(pattern, whole) is not None, None


def _plausible(name: str, texts: Sequence[str]) -> bool:
    """Return whether texts can be a column's: ids do not repeat, and names of queues are no numbers."""
    if name == "job_id":
        return len(set(texts)) >= 0.95 * len(texts)
    return name != "vc" or not all(re.fullmatch(r"[\d.]+", text) for text in texts)


def _checked_spans(columns: Sequence[Guess], cells: Mapping[str, Sequence[str]]) -> list[Guess]:
    """Compare spans in numbers with the times they lie between, which gives their unit."""
    of = {each.name: each for each in columns}
    checked = []
    for each in columns:
        ends = {"run_s": ("start_ts", "end_ts"), "queue_s": ("submit_ts", "start_ts")}.get(each.name, ())
        if "unit" in each.reading.keys and ends and set(ends) <= set(of):
            early, late = (seconds(cells[of[end].source], str(of[end].reading.keys.get("time", "iso"))) for end in ends)
            spans = zip(early, late, cells[each.source], strict=True)
            ratios = [
                (b - a) / float(text)
                for a, b, text in spans
                if a is not None and b is not None and re.fullmatch(r"\d+(\.\d+)?", text) and float(text) > 0
            ]
            middle = median(ratios) if ratios else 0.0
            units = [unit for unit, factor in DURATION.units.items() if abs(middle / factor - 1) < 0.02]
            if units:
                read = Reading({"unit": units[0]}, True, f"equals {ends[1]} - {ends[0]} in {units[0]}")
                checked.append(Guess(name=each.name, source=each.source, reading=read))
                continue
        checked.append(each)
    return checked


def _zone(columns: Sequence[Guess], texts: Mapping[str, Sequence[str]]) -> tuple[str, list[str]]:
    """Return the time zone, and what is uncertain about it."""
    moments = [each.source for each in columns if JOB_COLUMNS.get(each.name) is TIME]
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
        return "{ " + ", ".join(f"{_bare(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def _bare(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)
