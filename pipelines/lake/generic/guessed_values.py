"""A sample of the rows of a table as texts, and how the texts of a column are read: time format, unit, states."""

import csv
import gzip
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import polars as pl

from features.vocabulary import Status, TaskType
from pipelines.errors import SourceError
from pipelines.lake.generic.conversions import ISO, ISO_ZONE, SLURM_STATES
from pipelines.lake.generic.kinds import CORES, COUNT, DURATION, MEMORY, STATUS, TASK_TYPE, TEXT, TIME, Kind

MOST_MISFITS: Final = 0.05
"""Largest share of texts that may not fit a guess; they would go to quarantine."""

PATTERNS: Final = tuple(
    f"{date} {clock}"
    for date in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%b-%Y")
    for clock in ("%H:%M:%S", "%H:%M")
)
EPOCH_OF_SIZE: Final = ((1e8, 1e10, "epoch_s", 1.0), (1e11, 1e13, "epoch_ms", 1e3), (1e14, 1e16, "epoch_us", 1e6))
"""Smallest and largest size of the numbers of 1973 to 2286, their time format, and numbers per second."""

MOST_GPUS: Final = 16
"""Mean use above it is in percent: no machine has more GPUs."""

LETTERED: Final = r"[\d.]+([KMGTP]i?|k)"
BINARY: Final = {"KB": "KiB", "MB": "MiB", "GB": "GiB", "TB": "TiB"}

CLOCK: Final = re.compile(r"(\d+-)?(\d+:)?\d+:\d+(\.\d+)?")
WORDS: Final = {
    "completed": ("complete", "done", "success", "succeeded", "finished", "pass", "passed", "ok"),
    "failed": ("fail", "error", "crashed"),
    "cancelled": ("canceled", "killed", "stopped", "aborted", "preempted"),
    "timeout": ("timed_out", "timedout"),
    "oom": ("oomkilled", "out_of_memory"),
    "running": ("active",),
    "waiting": ("pending", "queued"),
}
"""Usual words for the statuses, in lower case."""


class Reading(NamedTuple):
    """How texts are read: keys of a mapping's column, whether that is certain, and the reason."""

    keys: Mapping[str, object]
    sure: bool
    why: str


def reading(kind: Kind, texts: Sequence[str], unit: str | None, name: str, *, of_slurm: bool = False) -> Reading | None:
    """Return how the texts of a column of this kind are read, None if they do not fit it; there is at least one text.

    `unit` is the unit in the source column's name, if any; `name` is the canonical column; `of_slurm` is true if the
    source column is one of Slurm's.
    """
    if kind is COUNT:
        return Reading({}, True, "whole numbers") if _fit(texts, r"\d+(\.0)?") else None
    if kind is TEXT:
        return Reading({}, True, "texts")
    if kind is TIME:
        return _time(texts)
    if kind is STATUS:
        return _status(texts)
    if kind is TASK_TYPE:
        return _task_type(texts)
    if kind is DURATION:
        return _span(texts, unit)
    if kind is MEMORY:
        return _memory(texts, unit, of_slurm=of_slurm)
    return _cores(texts, unit, name) if kind is CORES else _gpus(texts, unit, name)


def seconds(texts: Sequence[str], form: str) -> list[float | None]:
    """Return times as seconds, None where a text is no time; a time without offset counts as UTC."""
    return [_second(text, form) for text in texts]


def _second(text: str, form: str) -> float | None:
    per_second = {name: per for _, _, name, per in EPOCH_OF_SIZE}
    try:
        if form in per_second:
            return float(text) / per_second[form]
        moment = datetime.fromisoformat(text) if form == "iso" else datetime.strptime(text, form)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _time(texts: Sequence[str]) -> Reading | None:
    if _fit(texts, f"{ISO}({ISO_ZONE})?"):
        return Reading({}, True, f"times like {texts[0]}")
    if numbers := numbers_of(texts):
        middle = median(numbers)
        for least, most, form, _ in EPOCH_OF_SIZE:
            if least <= middle < most:
                return Reading({"time": form}, True, f"numbers of the size of {form}")
        early = Reading({"time": "epoch_s"}, False, "small numbers: seconds from an unknown start, dates are not real")
        return early if min(numbers) >= 0.0 and middle < 1e8 else None
    fitting = [form for form in PATTERNS if _share(s is not None for s in seconds(texts, form)) >= 1 - MOST_MISFITS]
    if not fitting:
        return None
    why = f"times like {texts[0]}" if len(fitting) == 1 else f"day and month may be swapped: also {fitting[1]}"
    return Reading({"time": fitting[0]}, len(fitting) == 1, why)


def _status(texts: Sequence[str]) -> Reading | None:
    words = list(dict.fromkeys(texts))
    if all(re.split(r"[ +]", word.upper())[0] in SLURM_STATES for word in words):
        return Reading({"as": "slurm_state"}, True, "states of Slurm")
    if len(words) > 50:
        return None
    ours = {word: name for name in Status for word in (str(name), *WORDS.get(str(name), ()))}
    found = {word: str(ours[word.lower()]) for word in words if word.lower() in ours}
    foreign = [word for word in words if word not in found]
    if not found or len(foreign) > len(words) / 2:
        return None
    why = f"add a meaning for {', '.join(foreign[:5])}" if foreign else "words for statuses"
    plain = all(word == meaning for word, meaning in found.items())
    return Reading({} if plain else {"values": found}, not foreign, why)


def _task_type(texts: Sequence[str]) -> Reading | None:
    words = list(dict.fromkeys(texts))
    known = [word for word in words if word in list(TaskType)]
    if not known or len(words) > 50:
        return None
    if len(known) == len(words):
        return Reading({}, True, "task types")
    why = f"{', '.join(word for word in words if word not in known)[:80]}: count as other"
    return Reading({"values": {word: word for word in known}, "otherwise": str(TaskType.OTHER)}, False, why)


def _span(texts: Sequence[str], unit: str | None) -> Reading | None:
    if _fit(texts, CLOCK.pattern):
        return Reading({"as": "slurm_time"}, True, f"spans like {texts[0]}")
    return _amount(texts, unit, "s")


def _memory(texts: Sequence[str], unit: str | None, *, of_slurm: bool) -> Reading | None:
    if _fit(texts, r"(.*,)?mem=[^,]+(,.*)?"):
        return Reading({"as": "slurm_memory"}, True, f"memory like {texts[0][:40]}")
    sizes = [text for text in texts if not re.fullmatch(r"0+(\.0*)?", text)]  # zero is zero in every notation
    if any(re.fullmatch(LETTERED, text) for text in sizes):
        return _lettered(sizes, of_slurm=of_slurm)
    if unit in BINARY:
        return _of_decimal_unit(texts, unit)
    numbers = numbers_of(texts)
    middle = median([n for n in numbers if n > 0] or [0]) if numbers else 0
    return _amount(texts, unit, "bytes" if middle >= 2**27 else "MiB" if middle >= 2**10 else "GiB")


def _lettered(sizes: Sequence[str], *, of_slurm: bool) -> Reading | None:
    """Return a reading of sizes, at least one with a letter; numbers without a letter are MiB in Slurm, else bytes."""
    example = next(text for text in sizes if re.fullmatch(LETTERED, text))
    numbers = [float(text) for text in sizes if re.fullmatch(r"\d+(\.\d*)?", text)]
    bare = f"{median(numbers):.0f}" if numbers else ""
    of_kubernetes = _fit(sizes, r"[\d.]+([KMGTP]i|[kMGTP])?")
    if _fit(sizes, r"[\d.]+[KMGTP]?") and not (of_kubernetes and numbers and median(numbers) >= 2**27):
        sure = of_slurm or not numbers
        why = f"memory like {example}"
        doubt = f"{bare} without a letter: MiB is assumed; kubernetes_quantity reads bytes"
        return Reading({"as": "slurm_memory"}, sure, why if sure else doubt)
    if not of_kubernetes:
        return None
    sure = not numbers or (median(numbers) >= 2**20 and not _fit(sizes, r"[\d.]+[KMGTP]?"))
    doubt = f"{bare} without a letter: bytes are assumed; slurm_memory reads MiB"
    return Reading({"as": "kubernetes_quantity"}, sure, f"memory like {example}" if sure else doubt)


def _of_decimal_unit(texts: Sequence[str], unit: str) -> Reading | None:
    """Return a reading in the decimal unit of the name, or in the binary unit that many tools call by the same name."""
    if not (numbers := numbers_of(texts)):
        return None
    if _share(number % 512 == 0 and number % 1000 > 0 for number in numbers if number > 0) >= 0.5:
        return Reading({"unit": BINARY[unit]}, False, f"{unit} in the name, but multiples of 512: {BINARY[unit]}")
    return Reading({"unit": unit}, False, f"{unit} in the name: {BINARY[unit]} if it counts in 1024s")


def _cores(texts: Sequence[str], unit: str | None, name: str) -> Reading | None:
    if _fit(texts, r"(.*,)?cpu=[^,]+(,.*)?"):
        return Reading({"as": "slurm_cpus"}, True, "the cpu= of a list of resources")
    if name == "used_cpu_cores" and _fit(texts, CLOCK.pattern):
        return Reading({"as": "slurm_time", "per": "run_s"}, True, "CPU time over run time")
    if _fit(texts, r"\d+m?") and not _fit(texts, r"\d+"):
        return Reading({"as": "kubernetes_quantity"}, True, f"cores like {texts[0]}")
    if unit == "s":  # CPU time
        used = name == "used_cpu_cores" and numbers_of(texts)
        return Reading({"per": "run_s"}, True, "CPU seconds over run time") if used else None
    return _amount(texts, unit, "cores", certain=name == "req_cpu_cores")


def _gpus(texts: Sequence[str], unit: str | None, name: str) -> Reading | None:
    if not _fit(texts, r"[\d.]+ *%?") and any("gpu" in text.lower() for text in texts):
        return Reading({"as": "slurm_gpus"}, True, "the GPUs of a list of resources")
    used = name == "used_gpus"
    numbers = numbers_of([text.rstrip(" %") for text in texts])
    of_percent = used and max(numbers, default=0.0) > MOST_GPUS
    return _amount([text.rstrip(" %") for text in texts], unit, "percent" if of_percent else "gpus", certain=not used)


def _amount(texts: Sequence[str], unit: str | None, assumed: str, *, certain: bool = False) -> Reading | None:
    """Return a reading as numbers in the unit of the name; without a unit in the name, in an assumed unit."""
    if not numbers_of(texts):
        return None
    if unit is not None:
        return Reading({"unit": unit}, True, f"{unit}, as the name says")
    return Reading({"unit": assumed}, certain, f"numbers of {assumed}" if certain else f"{assumed} is assumed")


def numbers_of(texts: Sequence[str]) -> list[float]:
    """Return the numbers of texts, empty if too many are none."""
    found = [float(text) for text in texts if re.fullmatch(r"[+-]?\d+(\.\d*)?([eE][+-]?\d{1,3})?", text)]
    return found if texts and len(found) >= (1 - MOST_MISFITS) * len(texts) else []


def _fit(texts: Sequence[str], pattern: str) -> bool:
    return bool(texts) and _share(re.fullmatch(pattern, text) is not None for text in texts) >= 1 - MOST_MISFITS


def _share(hits: Iterable[bool]) -> float:
    found = list(hits)
    return sum(found) / len(found) if found else 0.0


MOST_BYTES: Final = 1 << 20
MOST_ROWS: Final = 2000
DELIMITERS: Final = ",;\t|"
JSON_START: Final = re.compile(r'\s*(\{\s*"|\[\s*[\[{])')
PARQUET: Final = b"PAR1"

Sample = tuple[dict[str, object], dict[str, list[str]]]
"""The keys of a mapping's `[jobs]` that say how the file is read, and the texts of each column."""


def sampled(path: Path) -> Sample:
    """Return a sample of a file's rows."""
    try:
        with path.open("rb") as stream:
            head = stream.read(len(PARQUET))
    except OSError as error:
        raise _unreadable(path, error) from error
    return _of_parquet(path) if head == PARQUET else _of_text(path)


def _of_parquet(path: Path) -> Sample:
    try:
        table = pl.scan_parquet(path)
        plain = [name for name, kind in table.collect_schema().items() if not kind.is_nested() and kind != pl.Binary]
        rows = table.select(pl.col(plain).cast(pl.String)).head(MOST_ROWS).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise SourceError(f"{path}: cannot be read as Parquet ({str(error)[:200]})") from error
    if not rows.height:
        raise SourceError(f"{path}: found no rows; expected a table of jobs")
    texts = {name: ["" if each is None else each.strip() for each in rows[name].to_list()] for name in plain}
    return {"format": "parquet"}, texts


def _of_text(path: Path) -> Sample:
    text, encoding = _decoded(path)
    _check_no_json(path, text)
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    header, *rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row] or [[]]
    rows = rows[:: 1 + len(rows) // MOST_ROWS]
    names = [name.strip() for name in header]
    if not rows or len(set(names)) < len(names) or any(re.fullmatch(r"[\d.]*", name) for name in names):
        raise SourceError(
            f"{path}: found no header with a name for each column and rows below it; write the header above the rows"
        )
    how: dict[str, object] = {"format": "csv"}
    how |= {"delimiter": delimiter} if delimiter != "," else {}
    how |= {"encoding": encoding} if encoding != "utf-8" else {}
    return how, {name: [row[i].strip() for row in rows if len(row) == len(names)] for i, name in enumerate(names)}


def _check_no_json(path: Path, text: str) -> None:
    """Raise SourceError with what to do about a text of JSON."""
    if JSON_START.match(text):
        raise SourceError(
            f"{path}: found JSON; expected CSV or Parquet. Convert it in Python: "
            f"polars.read_ndjson({path.name!r}).write_parquet('jobs.parquet'); read_json for an array"
        )


def _decoded(path: Path) -> tuple[str, str]:
    """Return whole lines of a text file and its encoding; of a long file, lines of its begin, middle and end."""
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
        raise _unreadable(path, error) from error
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data[: len(data) // 2 * 2].decode("utf-16", "replace"), "utf-16"
    whole = b"".join(parts)
    if b"\0" in whole:
        raise SourceError(f"{path}: found bytes that are no text; expected a CSV or Parquet file of jobs")
    try:
        return whole.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return whole.decode("latin-1"), "latin-1"


def _unreadable(path: Path, error: Exception) -> SourceError:
    reason = (error.strerror if isinstance(error, OSError) else None) or "damaged"
    return SourceError(f"{path}: cannot be read ({reason}); expected a CSV or Parquet file of jobs")
