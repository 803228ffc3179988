"""Convert a checked mapping to a `Source`: raw columns, each after those it is derived from, rules, and advice."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Final

from pipelines.errors import MappingError
from pipelines.lake.generic.conversions import EPOCHS, SLURM_STEP, TEXT_SLOT, cases, literal, time_value
from pipelines.lake.generic.kinds import JOB_COLUMNS, MACHINE_COLUMNS, PERCENT, REQUEST_OF, TIME, USAGE_COLUMNS, Kind
from pipelines.lake.generic.mapping import NULLS, ColumnMapping, GenericMapping, RowsMapping, columns_of
from pipelines.lake.generic.records import MOST_RECORD_CHARACTERS, records_of
from pipelines.lake.reading import COLUMN_COUNT, TOO_LONG, UNREADABLE
from pipelines.lake.sources.source import (
    COMPUTED,
    MOST_ASKED,
    MOST_INSTANCES,
    MOST_SPAN_S,
    Column,
    RawTable,
    Records,
    Rule,
    beyond,
    missing,
    negative,
)

JOB_STEP: Final = "job_step"
IMPLIED: Final = {"run_s": "end_ts - start_ts", "queue_s": "start_ts - submit_ts", "end_ts": "start_ts + run_s"}
"""Derivation of a column that is not mapped, used if both of its operands are mapped."""

WHOLE: Final = "_whole"
"""Suffix of the raw column with the value before division by `per` or multiplication by the request (`of`)."""

RESOURCES: Final = ("req_cpu_cores", "req_mem_gib", "req_gpus")
SPANS: Final = ("queue_s", "run_s", "time_limit_s")
RATES: Final = ("net_read_bytes_per_s", "net_write_bytes_per_s")
USED: Final = tuple(name for name in USAGE_COLUMNS if name not in (*RATES, "instances_measured"))


def _wanted_of(columns: Mapping[str, ColumnMapping]) -> list[str]:
    """Return the input columns that a table's mapping names, without duplicates, in order."""
    return list(dict.fromkeys(each.column for each in columns.values() if each.column is not None))


def _records(
    rows: RowsMapping, columns: Mapping[str, ColumnMapping], name: str, plain: Path, target: Path, file: str
) -> Records:
    return records_of(plain, file, rows, _wanted_of(columns), name, target)


def job_table(rows: RowsMapping, usage: dict[str, ColumnMapping], file: str) -> RawTable:
    """Return the raw table of jobs with their use: its columns, and the rules that rows may break."""
    columns = {**rows.columns, **usage}
    made = _columns(rows, columns, {**JOB_COLUMNS, **USAGE_COLUMNS}, implied_of(rows.columns))
    held = {column.name for column in made}
    spans, resources, used, rates = ([n for n in names if n in held] for names in (SPANS, RESOURCES, USED, RATES))
    # A separate rule checks the order of times, so a span of two times is not tested again.
    given = [n for n in spans if n in rows.columns and not rows.columns[n].derive]
    numbers = [n for n in (*resources, *used, "nodes", "attempts") if n in held]
    ordered = (("start_before_submit", "start_ts", "submit_ts"), ("end_before_start", "end_ts", "start_ts"))
    of_slurm = "status" in rows.columns and rows.columns["status"].convert == "slurm_state"
    rules = [
        missing("job_id"),
        *([Rule(name=JOB_STEP, bad=f"regexp_full_match(job_id, '{SLURM_STEP}')")] if of_slurm else []),
        missing("submit_ts", rule="no_submit_time"),
        *(Rule(name=name, bad=f"{late} < {early}") for name, late, early in ordered if {late, early} <= held),
        *([negative(*given, rule="negative_time")] if given else []),
        *([negative(*numbers)] if numbers else []),
        *([negative(*rates, rule="negative_use")] if rates else []),
        *([Rule(name="no_instances", bad="instances < 1")] if "instances" in held else []),
        *([Rule(name="no_instances", bad="instances_measured < 1")] if "instances_measured" in held else []),
        *([beyond(spans, MOST_SPAN_S, "time_beyond_measure")] if spans else []),
        *([beyond(resources, MOST_ASKED, "request_beyond_measure")] if resources else []),
        *([beyond(("instances",), MOST_INSTANCES, "request_beyond_measure")] if "instances" in held else []),
        *([beyond(used, MOST_ASKED, "use_beyond_measure")] if used else []),
        *([beyond(rates, 1e14, "use_beyond_measure")] if rates else []),
    ]
    key = ("job_id", "role") if "role" in held else ("job_id",)
    return _table("job", rows, columns, made, rules, key, file, "jobs")


def machine_table(rows: RowsMapping, file: str) -> RawTable:
    """Return the raw table of machines."""
    made = _columns(rows, rows.columns, MACHINE_COLUMNS, set())
    numbers: list[str] = [n for n in ("cpu_cores", "mem_gib", "gpus", "gpu_mem_gib") if n in rows.columns]
    rules = [
        missing("machine"),
        missing("gpus", rule="no_gpu_count"),
        negative(*numbers, rule="negative_capacity"),
        beyond(numbers, MOST_ASKED, "capacity_beyond_measure"),
    ]
    return _table("machine", rows, rows.columns, made, rules, ("machine",), file, "machines")


def _table(
    name: str,
    rows: RowsMapping,
    columns: Mapping[str, ColumnMapping],
    made: list[Column],
    rules: list[Rule],
    key: tuple[str, ...],
    file: str,
    feeds: str,
) -> RawTable:
    return RawTable(
        name=name,
        stems=(file,),
        suffixes=("",),
        columns=tuple(made),
        feeds=feeds,
        required=True,
        key=key,
        rules=tuple(rules),
        passing=tuple(column.name for column in made if column.name.endswith(WHOLE)),
        records=partial(_records, rows, columns, name),
        counted_in="line" if rows.format == "csv" else "row",
    )


def implied_of(columns: Mapping[str, ColumnMapping]) -> set[str]:
    """Return the columns that are not mapped but can be derived from mapped columns."""
    return {n for n, how in IMPLIED.items() if n not in columns and set(_parts(how)) <= set(columns)}


def _parts(derivation: str) -> tuple[str, str]:
    left, _, right = derivation.split(" ")
    return left, right


def _columns(
    rows: RowsMapping, columns: Mapping[str, ColumnMapping], kinds: Mapping[str, Kind], implied: set[str]
) -> list[Column]:
    """Return the raw columns, each after the columns it is derived from."""
    derived = {name: each.derive for name, each in columns.items() if each.derive}
    derived |= {name: IMPLIED[name] for name in implied}
    needs: dict[str, set[str]] = {name: set(_parts(how)) for name, how in derived.items()}
    needs |= {name: {each.per} for name, each in columns.items() if each.per}
    needs |= {name: {REQUEST_OF[name]} for name, each in columns.items() if each.of}
    known = set(columns) | implied
    for name, parts in needs.items():
        if parts - known:
            raise MappingError(f"{name} is made of {min(parts - known)}, which is not mapped; map it, or {name} itself")
    try:
        ordered = list(TopologicalSorter({n: sorted(needs.get(n, ())) for n in sorted(known)}).static_order())
    except CycleError as error:
        raise MappingError(
            f"{' and '.join(sorted(set(error.args[1])))} are derived from each other; map one"
        ) from error
    places = {name: position for position, name in enumerate(_wanted_of(columns), start=1)}
    made = []
    for name in ordered:
        if name in derived:
            made.append(Column(name=name, text=COMPUTED, value=_derived(derived[name])))
        elif columns[name].per or columns[name].of:
            # Two columns, so that a null quotient (a job that did not run) does not count as an unparsable text.
            made.append(replace(_column(name, columns[name], kinds[name], rows, places), name=name + WHOLE, fault=name))
            per = columns[name].per
            by = f"/ nullif({per}, 0)" if per else f"* {REQUEST_OF[name]}"
            made.append(Column(name=name, text=COMPUTED, value=f"{name}{WHOLE} {by}"))
        else:
            made.append(_column(name, columns[name], kinds[name], rows, places))
    return made


def _derived(how: str) -> str:
    left, sign, right = how.split(" ")
    if right.endswith("_ts"):
        return f"epoch({left} - {right})"
    # Adding longer spans would overflow; another rule quarantines rows with such spans.
    return f"CASE WHEN {right} BETWEEN 0 AND {MOST_SPAN_S:g} THEN {left} {sign} to_seconds({right}) END"


def _column(name: str, mapped: ColumnMapping, kind: Kind, rows: RowsMapping, places: Mapping[str, int]) -> Column:
    conversion = kind.named[mapped.convert] if mapped.convert else kind.plain
    nulls = ("",) if name in ("job_id", "machine") else (*NULLS, *rows.nulls)
    if mapped.column is None:
        text = literal(_written(mapped.value))
    else:
        field = f"trim(w{places[mapped.column]})"
        listed = " OR ".join(f"{field} = {literal(each.strip())}" for each in nulls)
        text = f"CASE WHEN NOT ({listed}) THEN {field} END"
        if mapped.default is not None:
            text = f"coalesce({text}, {literal(_written(mapped.default))})"
    text = f"nullif({conversion.pick.replace(TEXT_SLOT, text)}, '')"
    return Column(name=name, text=text, value=_value(mapped, kind, rows), missing=())


def _written(cell: object) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def _value(mapped: ColumnMapping, kind: Kind, rows: RowsMapping) -> str:
    if kind is TIME:
        return time_value(mapped.time, mapped.zone or rows.zone)
    if mapped.convert:
        value = kind.named[mapped.convert].value
    elif mapped.values or mapped.otherwise:
        otherwise = literal(mapped.otherwise) if mapped.otherwise else kind.plain.value
        value = cases(mapped.values, otherwise)
    else:
        value = kind.plain.value
    if mapped.unit == PERCENT:
        value = value.replace(TEXT_SLOT, f"regexp_replace({TEXT_SLOT}, ' *%$', '')")
    factor = kind.units[mapped.unit] if mapped.unit else 1
    return value if factor == 1 else f"({value}) * {factor!r}"


def cures_of(mapping: GenericMapping) -> dict[str, str]:
    """Return advice for each rule whose correction depends on the mapping, by rule name."""
    cures = {
        UNREADABLE: "the line cannot be read: an open quote, or bytes of another encoding; "
        "set quote, delimiter or encoding, or export the row again",
        COLUMN_COUNT: "the row has more or fewer fields than the others: quote fields that contain the delimiter",
        JOB_STEP: "the row is a step of a job: export with sacct -X, and join the use of steps to their jobs",
        TOO_LONG: f"the row has more than {MOST_RECORD_CHARACTERS} characters: export it again",
    }
    for columns, kinds in columns_of(mapping).values():
        for name, mapped in columns.items():
            if name in kinds:
                cures[f"unparsable_{name}"] = _unparsable(name, mapped, kinds[name])
    return cures


def _unparsable(name: str, mapped: ColumnMapping, kind: Kind) -> str:
    where = f"column {mapped.column!r}" if mapped.column is not None else "the constant"
    if kind is TIME:
        expected = "a time like 2024-01-31T12:00:00" if mapped.time == "iso" else f"a time by {mapped.time!r}"
        other = "another time format" if mapped.time in EPOCHS else f"another time format ({', '.join(EPOCHS)})"
        return f"{where} should be {expected}; give {name} {other}, or add the text that means no time to nulls"
    expects = kind.named[mapped.convert].expects if mapped.convert else kind.plain.expects
    if mapped.unit == PERCENT:
        expects += ", with or without a percent sign"
    if mapped.values:
        expects = f"one of {', '.join(list(mapped.values)[:12])}"
        return f"{where} should be {expects}; add the word to values of {name}, or set otherwise"
    return f"{where} should be {expects}; add the text that means missing to nulls, or correct the file"
