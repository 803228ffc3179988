"""Build the tables of `taut demo`: feature importance, accuracy, reclaimed resources, cluster metrics.

The tables are made from the results of training and simulation. Called by `pipelines.cli.demo`.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from modelserve.bundle.combination import FITTED
from pipelines.models.judging import COMBINED
from pipelines.models.retrain import Retrained
from pipelines.simulation.rows import averaged
from pipelines.simulation.simulate import ALL, SimulationResult

Row = dict[str, object]

OUTCOME_COLUMNS: Final = ("arm", "truth", "deployed", "completed", "gpu_used_frac", "killed", "stretch_p99")


def accuracy_rows(trained: Sequence[Retrained]) -> list[Row]:
    """Return one row per run-time model: its error, that of the best baseline from history, the gate's result."""
    rows: list[Row] = []
    for each in trained:
        table = each.model.evaluation
        if each.model.kind != "runtime" or table.is_empty():
            continue
        own = table.row(by_predicate=pl.col("model") == COMBINED, named=True)
        remembered = table.filter(~pl.col("model").is_in([COMBINED, *sorted(FITTED)])).sort("pinball", "model")
        best = remembered.row(0, named=True)
        rows.append(
            {
                "type": each.model.task_type,
                "n": own["n"],
                "model": own["pinball"],
                "baseline": best["pinball"],
                "lead_lo": best["lead_lo"],
                "lead_hi": best["lead_hi"],
                "gate": each.version.status,
                "best_baseline": best["model"],
            }
        )
    return rows


def importance_rows(trained: Sequence[Retrained], *, top: int = 1) -> list[Row]:
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
    """Return by how much the recommendations of one arm shrink requests: one row per resource."""
    sums: dict[object, tuple[float, float]] = {}
    for row in result.reclaimed:
        if row["arm"] == arm:
            requested, target = sums.get(row["resource"], (0.0, 0.0))
            sums[row["resource"]] = (requested + float(str(row["requested"])), target + float(str(row["target"])))
    return [
        {"resource": resource, "requested": requested, "target": target, "reclaimed_frac": 1.0 - target / requested}
        for resource, (requested, target) in sums.items()
        if requested > 0.0
    ]


def outcome_rows(result: SimulationResult) -> list[Row]:
    """Return one row per arm and slowdown model, averaged over seeds; one row per arm if all models agree exactly.

    Models agree if every job gets its full request, or at least what it used: it then runs as long as recorded.
    """
    means = [row for row in averaged(result.rows) if row["devices"] == ALL]
    figures = [column for column in OUTCOME_COLUMNS if column != "truth"]
    alike = {row["arm"]: {tuple(r[f] for f in figures) for r in means if r["arm"] == row["arm"]} for row in means}
    rows: dict[tuple[object, ...], Row] = {}
    for row in means:
        truth = "any" if len(alike[row["arm"]]) == 1 else row["truth"]
        rows.setdefault((row["arm"], truth), {column: row[column] for column in OUTCOME_COLUMNS} | {"truth": truth})
    return list(rows.values())
