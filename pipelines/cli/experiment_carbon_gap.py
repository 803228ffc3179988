"""`taut experiment carbon-gap`: plans under a carbon budget held against the best of all plans, on small rounds.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the command.
"""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from pipelines.cli.options import Format, FormatOption, emit, say


def carbon_gap(
    rounds: Annotated[int, typer.Option(help="Rounds of each kind.", min=1, max=10_000)] = 300,
    seed: Annotated[int, typer.Option("--seed", help="The first round's seed.", min=0, max=2**31)] = 0,
    form: FormatOption = Format.TABLE,
) -> None:
    """Compare plans within a carbon budget with the exhaustive optimum: up to 4 jobs, 8 GPUs, 5 frequencies."""
    from pipelines.studies.carbon.carbon_gap import gap_rows

    say(f"trying every plan of {rounds} rounds of each kind")
    emit(gap_rows(rounds, seed), form)


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {"carbon-gap": carbon_gap}
"""By the name of the subcommand."""
