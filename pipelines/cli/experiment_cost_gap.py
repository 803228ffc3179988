"""`taut experiment cost-gap`: single decisions with due dates held against the exact optimum, or against the greedy.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the command.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Final

import typer

from pipelines.cli.options import Format, FormatOption, emit, say


class Against(StrEnum):
    """What decisions are held against."""

    OPTIMUM = "optimum"
    GREEDY = "greedy"


def cost_gap(
    against: Annotated[
        Against, typer.Option(help="The exact optimum on 2 to 5 jobs, or the greedy on 50 to 450 jobs.")
    ] = Against.OPTIMUM,
    instances: Annotated[int, typer.Option(help="Decisions of each kind.", min=1, max=10_000)] = 100,
    seed: Annotated[int, typer.Option("--seed", help="The seed that decisions are drawn from.", min=0)] = 0,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare single decisions on drawn jobs with the exact optimum (HiGHS), or with the deterministic greedy."""
    from pipelines.cli.progress import compiling
    from pipelines.studies.cost.cost_gap import gap_rows, improvement_rows

    say(f"deciding {instances} drawn problems of each kind by every method")
    with compiling():
        rows = gap_rows(instances, seed) if against is Against.OPTIMUM else improvement_rows(instances, seed)
    emit(rows, form)


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {"cost-gap": cost_gap}
"""By the name of the subcommand."""
