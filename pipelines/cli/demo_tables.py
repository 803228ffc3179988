"""Build the tables of `taut demo`: feature importance, accuracy, reclaimed resources, cluster metrics.

The tables are made from the results of training and simulation. Called by `pipelines.cli.demo`.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from pipelines.models.judging import FITTED_BASELINES, MODEL
from pipelines.models.retrain import Retrained
from pipelines.simulation.rows import averaged
from pipelines.simulation.simulate import SimulationResult

Row = dict[str, object]

OUTCOME_COLUMNS: Final = (
    "trace",
    "arm",
    "truth",
    "devices",
    "deployed",
    "completed",
    "complete_rate",
    "cpu_used_frac",
    "mem_used_frac",
    "gpu_used_frac",
    "killed",
    "stretched_share",
    "stretch_p99",
)


def accuracy_rows(trained: Sequence[Retrained]) -> list[Row]:
    """Return one row per run-time model: its error, its lead over the best history baseline, the gate's result."""
    rows: list[Row] = []
    for each in trained:
        table = each.model.evaluation
        if each.model.kind != "runtime" or table.is_empty():
            continue
        own = table.row(by_predicate=pl.col("model") == MODEL, named=True)
        remembered = table.filter(~pl.col("model").is_in([MODEL, *FITTED_BASELINES])).sort("pinball", "model")
        best = remembered.row(0, named=True)
        rows.append(
            {
                "trace": each.model.trace,
                "type": each.model.task_type,
                "n": own["n"],
                "pinball": own["pinball"],
                "best_baseline": best["model"],
                "its_pinball": best["pinball"],
                "lead_lo": best["lead_lo"],
                "lead_hi": best["lead_hi"],
                "coverage_p90": own["coverage_p90"],
                "within_2x": own["within_2x"],
                "gate": each.version.status,
            }
        )
    return rows


def importance_rows(trained: Sequence[Retrained], *, top: int = 3) -> list[Row]:
    """Return the `top` features of each run-time model, by permutation importance."""
    rows: list[Row] = []
    for each in trained:
        if each.model.kind == "runtime" and each.model.importances:
            first = pl.DataFrame(each.model.importances).sort("mean", "feature", descending=[True, False]).head(top)
            rows += [
                {
                    "type": each.model.task_type,
                    "feature": row["feature"],
                    "importance": row["mean"],
                    "sign": row["sign"],
                }
                for row in first.iter_rows(named=True)
            ]
    return rows


def reclaimed_rows(result: SimulationResult, *, arm: str = "shrunk") -> list[Row]:
    """Return the amounts by which the recommendations of one arm shrink requests, by resource and reason."""
    return [{key: value for key, value in row.items() if key != "arm"} for row in result.reclaimed if row["arm"] == arm]


def outcome_rows(result: SimulationResult) -> list[Row]:
    """Return one row per arm and slowdown model, averaged over seeds; one row per arm if all models agree exactly.

    Models agree if every job gets its full request, or at least what it used: it then runs as long as recorded.
    """
    means = averaged(result.rows)
    figures = [column for column in OUTCOME_COLUMNS if column != "truth"]
    alike = {
        (row["arm"], row["devices"]): {tuple(r[f] for f in figures) for r in means if _same(r, row)} for row in means
    }
    rows: dict[tuple[object, ...], Row] = {}
    for row in means:
        truth = "any" if len(alike[row["arm"], row["devices"]]) == 1 else row["truth"]
        shown = {column: row[column] for column in OUTCOME_COLUMNS} | {"truth": truth}
        rows.setdefault((row["arm"], row["devices"], truth), shown)
    return list(rows.values())


def _same(one: Row, other: Row) -> bool:
    return (one["arm"], one["devices"]) == (other["arm"], other["devices"])
