"""Build the tables of `taut demo` and the picture and sentence it ends with, from training and simulation results.

The last table compares jobs as requested, with taut, and possible; its figures come from a simulation under the
slowdown model `shared`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from modelserve.bundle.card import FITTED
from pipelines.models.judging import COMBINED
from pipelines.models.retrain import Retrained
from pipelines.simulation.advice import ORACLE, RECLAIM, REQUESTED
from pipelines.simulation.rows import averaged
from pipelines.simulation.simulate import ALL, SimulationResult

Row = Mapping[str, object]

NAMES: Final = {REQUESTED: "requested", RECLAIM: "taut", ORACLE: "possible"}
"""Arms in the order of the table, and what the table calls them."""

FINISHED: Final = "jobs finished"
BAR: Final = 50
"""Length of the longest bar, so that lines fit 80 columns."""


def headline_rows(rows: Sequence[Row], *, gpus: int) -> list[dict[str, object]]:
    """Return one row per arm, averaged over seeds, from result rows of one slowdown model on `gpus` GPUs.

    A GPU's use is that recorded for the jobs, for as long as they ran. A job is slowed if it runs more than 1 % longer.
    """
    by_arm = {row["arm"]: row for row in averaged([row for row in rows if row["devices"] == ALL])}
    return [
        {
            "requests": name,
            FINISHED: round(_number(by_arm[arm], "completed"), 1),
            "GPUs truly used": f"{gpus * _number(by_arm[arm], 'gpu_used_frac'):.1f} of {gpus}",
            "jobs slowed": f"{_number(by_arm[arm], 'stretched_share'):.1%}",
            "jobs killed": round(_number(by_arm[arm], "killed"), 1),
        }
        for arm, name in NAMES.items()
    ]


def bars(table: Sequence[Row]) -> list[str]:
    """Return a line per row of the table, with a bar as long as its finished jobs.

    >>> table = [{"requests": "requested", FINISHED: 5.0}, {"requests": "taut", FINISHED: 10.0}]
    >>> [line.count("#") for line in bars(table)]
    [25, 50]
    """
    most = max(_number(row, FINISHED) for row in table) or 1.0
    width = max(len(str(row["requests"])) for row in table)
    return [
        f"{row['requests']:<{width}}  {'#' * round(BAR * _number(row, FINISHED) / most)} {_number(row, FINISHED):.0f}"
        for row in table
    ]


def sentence(table: Sequence[Row]) -> str:
    """Return in words what the table means."""
    requested, taut, possible = (_number(row, FINISHED) for row in table)
    found = f"With taut {taut:.0f} jobs finish on the same machines instead of {requested:.0f}"
    if requested > 0.0:
        found += f" ({taut / requested - 1.0:+.0%})"
    if possible > requested:
        share = (taut - requested) / (possible - requested)
        found += f", {share:.0%} of what sizing each job by its true mean use would add"
    killed = _number(table[1], "jobs killed")
    harm = f"{killed:g} are" if killed else "none is"
    return f"{found}; {table[1]['jobs slowed']} of the jobs are slowed, {harm} killed."


def _number(row: Row, name: str) -> float:
    return float(str(row[name]))


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
                "gate": each.version.verdict,
                "best_baseline": best["model"],
            }
        )
    return rows


def importance_rows(trained: Sequence[Retrained], *, top: int = 1) -> list[Row]:
    """Return the `top` features of each run-time model, by permutation importance."""
    rows: list[Row] = []
    for each in trained:
        if each.model.no_importances:
            rows.append({"type": each.model.task_type, "feature": each.model.matters_most})
        elif each.model.kind == "runtime":
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
