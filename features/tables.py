"""Frame schemas of the canonical tables: `validate` raises on bad rows, and `filter` separates them."""

from types import new_class
from typing import Any, Final

import dataframely as dy
import polars as pl

from features.canonical import CANONICAL, STATUSES, TASK_TYPES, Column, Table

__all__ = ["STATUSES", "TABLES", "TASK_TYPES", "Capacity", "Jobs", "Machines", "Usage"]


def _column(column: Column) -> dy.Column:
    """Return the schema column of a declared column."""
    # The parameters have different types, hence Any.
    options: dict[str, Any] = {"nullable": column.nullable, "primary_key": column.key, "description": column.says}
    match column.kind:
        case "VARCHAR":
            allowed = column.one_of
            return dy.String(**options, check=(lambda c: c.is_in(allowed)) if allowed else None)
        case "DOUBLE":
            return dy.Float64(**options, min=column.least)
        case "INTEGER":
            return dy.Int32(**options, min=column.least)
        case "BIGINT":
            return dy.Int64(**options, min=column.least)
        case "BOOLEAN":
            return dy.Bool(**options)
        case "DATE":
            return dy.Date(**options)
        case "TIMESTAMPTZ":
            return dy.Datetime(**options, time_unit="us", time_zone="UTC")


def _schema(name: str, table: Table, **rules: object) -> type[dy.Schema]:
    columns = {column: _column(declared) for column, declared in table.columns.items()}
    body = {**columns, **rules, "__doc__": table.says, "__module__": __name__}
    return new_class(name, (dy.Schema,), exec_body=lambda namespace: namespace.update(body))


@dy.rule()
def _end_after_start(_: type[dy.Schema]) -> pl.Expr:
    """Require that a job does not end before it starts."""
    return pl.col("end_ts") >= pl.col("start_ts")


RULES: Final = {"jobs": {"end_after_start": _end_after_start}}

TABLES: Final[dict[str, type[dy.Schema]]] = {
    name: _schema(name.title().replace("_", ""), table, **RULES.get(name, {})) for name, table in CANONICAL.items()
}
Jobs, Usage, Machines, Capacity = (TABLES[name] for name in ("jobs", "usage", "machines", "capacity"))
