"""The SQL that makes values of a row's texts and names the first rule the row breaks, however the texts were read.

Reading texts is `pipelines.lake.line_rows`' and `pipelines.lake.typed_rows`'; the rules are the sources' declarations.
Called by both, and by `pipelines.lake.staging` for rows that it looks at a second time.
"""

from collections.abc import Sequence
from typing import Final

from pipelines.lake.sources.source import COMPUTED, Column, RawTable

AS_IT_IS: Final = "{text}"
"""The value of a column of which every text is one."""


def classified(table: RawTable, rows: str, texts: Sequence[str], broken_first: Sequence[str] = ()) -> str:
    """Return the SELECT of `row`, every column and `rule` (null: good) over `rows`, given the SQL of each text.

    Parameters
    ----------
    rows
        SQL of a table with `row` and whatever `texts` and `broken_first` use.
    broken_first
        `WHEN` clauses that come before the table's own rules.
    """
    named = ", ".join(f"{text} AS t{position}" for position, text in enumerate(texts, start=1))
    values, broken = [], list(broken_first)
    for position, column in enumerate(table.columns, start=1):
        values.append(f'{column.value.replace("{text}", f"t{position}")} AS "{column.name}"')
        fault = f"unparsable_{column.fault or column.name}"
        if column.value != AS_IT_IS and column.text != COMPUTED:
            broken.append(f"WHEN t{position} IS NOT NULL AND \"{column.name}\" IS NULL THEN '{fault}'")
    broken += [f"WHEN {rule.bad} THEN '{rule.name}'" for rule in table.rules]
    columns = ", ".join(f'"{c.name}"' for c in table.columns)
    case = f"CASE {' '.join(broken)} END" if broken else "NULL::VARCHAR"
    return f"""(WITH texts AS (SELECT *, {named} FROM {rows}),
        parsed AS (SELECT *, {", ".join(values)} FROM texts)
        SELECT row, {columns}, {case} AS rule FROM parsed)"""


def loaded(table: RawTable, rows: str) -> str:
    """Return the SELECT of what is loaded of classified rows: the kept columns, the hash of a key, the rule."""
    kept = ", ".join(f'"{name}"' for name in table.kept)
    # Rows of equal keys have equal hashes; that rows of equal hashes have equal keys is checked where there are any.
    key = ", ".join(f'"{name}"' for name in table.key)
    return f"SELECT row, {kept}, {f'hash({key}) AS key_hash, ' if key else ''}rule FROM {rows}"


def known_text(column: Column, text: str) -> str:
    """Return the SQL of a text, null where it stands for nothing."""
    missing = ", ".join(f"'{t}'" for t in column.missing)
    return f"CASE WHEN {text} NOT IN ({missing}) THEN {text} END"
