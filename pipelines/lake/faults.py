"""SQL of a row's faults: the names of all rules that it breaks, and the values at fault.

The sources declare columns and rules; `pipelines.lake.reading` names the columns' texts `t1`, `t2` and so on.
"""

import re
from dataclasses import dataclass
from typing import Final

from pipelines.lake.sources.source import COMPUTED, RawTable

AS_IT_IS: Final = "{text}"
"""SQL of a column's value that is the text itself, so that no text is unparsable."""

SEPARATOR: Final = ", "
"""Text between the names of the rules that one row breaks."""

DUPLICATE: Final = "duplicate_key"
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """SQL that is true for a row at fault, and the columns at fault then."""

    sql: str
    columns: tuple[str, ...]


def faults_of(table: RawTable) -> dict[str, list[Fault]]:
    """Return the faults that break each rule of a table, by rule name; several rules may have one name."""
    found: dict[str, list[Fault]] = {}
    for column, unread in _unread(table).items():
        end = next(c.fault or c.name for c in table.columns if c.name == column)
        found.setdefault(f"unparsable_{end}", []).append(Fault(sql=unread, columns=(column,)))
    for rule in table.rules:
        for sql in rule.parts or (rule.bad,):
            found.setdefault(rule.name, []).append(Fault(sql=sql, columns=_columns_in(sql, table)))
    for link in table.links:
        own = tuple(dict.fromkeys(re.findall(r"\br\.(\w+)", link.bad)))
        found.setdefault(link.name, []).append(Fault(sql="true", columns=own))
    if table.key:
        found[DUPLICATE] = [Fault(sql="true", columns=table.key)]
    return found


def broken_rules(table: RawTable) -> str:
    """Return an SQL expression: the `fault` of a row, else the names of all rules that it breaks, or null.

    A rule is skipped if a column that it reads could not be parsed: an invalid time breaks only `unparsable_...`, not
    also the rule for a missing time. Rules about other rows and tables come later (`staging`).
    """
    unread, late = _unread(table), {DUPLICATE, *(link.name for link in table.links)}
    named = []
    for name, faults in faults_of(table).items():
        if name not in late:
            held = " OR ".join(_if_read(fault, table, unread) for fault in faults)
            named.append(f"CASE WHEN {held} THEN '{name}' END")
    # Most rows are good: the names are made only where this plain condition holds.
    bad = " OR ".join(f"({sql})" for sql in (*unread.values(), *(rule.bad for rule in table.rules)))
    names = f"WHEN {bad} THEN concat_ws('{SEPARATOR}', {', '.join(named)})" if named else ""
    return f"CASE WHEN fault IS NOT NULL THEN fault {names} END"


def values_at_fault(table: RawTable, rule: str) -> str | None:
    """Return the SQL of the columns at fault and their texts, for rows that break a rule; None if it names no column.

    The result is a text such as `start_time = 20, end_time = 10`.
    """
    faults, shown = faults_of(table).get(rule, []), []
    for position, column in enumerate(table.columns, start=1):
        held = [f"({fault.sql})" for fault in faults if column.name in fault.columns]
        if held:
            text = f'CAST("{column.name}" AS VARCHAR)' if column.text == COMPUTED else f"CAST(t{position} AS VARCHAR)"
            said = f"'{column.name} ' || coalesce('= ' || {text}, 'is missing')"
            shown.append(f"CASE WHEN {' OR '.join(held)} THEN {said} END")
    return f"concat_ws('{SEPARATOR}', {', '.join(shown)})" if shown else None


def _unread(table: RawTable) -> dict[str, str]:
    """Return the SQL that is true where a column's text cannot be read, for each column with such texts."""
    return {
        column.name: f't{position} IS NOT NULL AND "{column.name}" IS NULL'
        for position, column in enumerate(table.columns, start=1)
        if column.value != AS_IT_IS and column.text != COMPUTED
    }


def _if_read(fault: Fault, table: RawTable, unread: dict[str, str]) -> str:
    """Return the SQL of a fault that holds only if all columns that it reads, also through computed ones, were read."""
    if fault.sql in unread.values():
        return f"({fault.sql})"
    read = list(fault.columns)
    computed = {column.name: column for column in table.columns if column.text == COMPUTED}
    for name in read:  # the list grows by the columns that computed columns are made of
        if name in computed:
            read += [other for other in _columns_in(computed[name].value, table) if other not in read]
    guards = [f"NOT ({unread[name]})" for name in read if name in unread]
    return " AND ".join([f"({fault.sql})", *guards])


def _columns_in(sql: str, table: RawTable) -> tuple[str, ...]:
    words = set(re.findall(r"\w+", _QUOTED.sub("", sql)))
    return tuple(column.name for column in table.columns if column.name in words)
