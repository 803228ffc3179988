"""`taut experiment energy-fits`: models of speed and watts, judged on the tables they are made of.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the commands.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from pipelines.cli.options import Format, FormatOption, emit, say

Energy = Annotated[
    Path | None,
    typer.Option(
        "--energy",
        help="Folder of measured watts, speeds, grid carbon and prices.",
        show_default="TAUT_ENERGY, else ../shared/energy",
    ),
]
Out = Annotated[Path | None, typer.Option(help="New folder for rows and charts.", show_default="none is written")]


def energy_fits(energy: Energy = None, out: Out = None, form: FormatOption = Format.TABLE) -> None:
    """Fit speed and watts by frequency, power limit and GPU count; errors on what was and was not fitted to."""
    from pipelines.settings import load_settings
    from pipelines.simulation.results_folder import fresh_folder
    from pipelines.studies.energy.fits import found
    from pipelines.studies.study import write

    folder = None if out is None else fresh_folder(out)
    findings = found(load_settings().energy if energy is None else energy)
    for note in findings.notes:
        say(f"note: {note}")
    if folder is not None:
        say(f"written: {', '.join(str(path) for path in write(findings, folder))}")
    if form is not Format.TABLE:
        emit(findings.rows(), form, kinds=True)
        return
    for title, rows in findings.tables.items():
        say(f"\n{title}")
        emit(rows, form)


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {"energy-fits": energy_fits}
"""By the name of the subcommand."""
