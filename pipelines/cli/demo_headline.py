"""Build what `taut demo` ends with: a table of jobs as requested, with taut, and possible; a picture; a sentence.

The figures come from a simulation under the slowdown model `shared`. Called by `pipelines.cli.demo`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pipelines.simulation.advice import ORACLE, REQUESTED
from pipelines.simulation.reclaiming import RECLAIM
from pipelines.simulation.rows import averaged
from pipelines.simulation.simulate import ALL

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
