"""`taut experiment fgd-...`: fragmentation-aware placement past the paper, one subcommand for each study.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the commands.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipelines.cli.experiment_fgd import FirstSeed, Processes, Trace
from pipelines.cli.options import Format, FormatOption, Lake, emit, say

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake as Source
    from pipelines.studies.study import Findings

Workload = Annotated[str, typer.Option("--workload", help="The pod list.")]
Seeds = Annotated[int, typer.Option("--seeds", help="Runs of each arm.", min=2, max=1000)]
Out = Annotated[Path | None, typer.Option(help="New folder for rows, runs and charts.", show_default="none is written")]


def departures(
    lake: Lake = None,
    trace: Trace = "openb",
    workload: Workload = "default",
    loads: Annotated[
        list[float] | None,
        typer.Option(
            "--load",
            help="GPUs asked for at every moment on average, as a share of all (may be repeated).",
            min=0.05,
            max=2.0,
            show_default="0.7, 0.9, 1.0 and 1.1",
        ),
    ] = None,
    arms: Annotated[
        list[str] | None, typer.Option("--arm", help="Only this arm (may be repeated).", show_default="all")
    ] = None,
    every: Annotated[
        int, typer.Option("--every", help="Loaded clusters have one in so many of the machines.", min=1, max=1000)
    ] = 16,
    seeds: Seeds = 5,
    seed: FirstSeed = 0,
    processes: Processes = None,
    out: Out = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Placements while pods come and go: fragmentation and its reasons over time, waits, targets learnt online."""
    from pipelines.studies.fragmentation.departures import LOADS, Question, ask

    def study(source: "Source", count: int) -> "Findings":
        question = Question(
            trace=trace,
            workload=workload,
            loads=tuple(loads or LOADS),
            arms=arms,
            every=every,
            seed=seed,
            seeds=seeds,
            processes=count,
        )
        return ask(source, question, talk=say)

    _studied(study, lake, processes, out, form)


def _studied(
    study: "Callable[[Source, int], Findings]", lake: Path | None, processes: int | None, out: Path | None, form: Format
) -> None:
    """Run a study on an open lake; write its notes, its folder and its rows."""
    from pipelines.cli.opening import place_of, threads_of
    from pipelines.cli.progress import compiling
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.simulation.results_folder import fresh_folder

    folder = None if out is None else fresh_folder(out)
    with compiling(), OpenLake(place_of(lake).lake) as source:
        findings = study(source, threads_of(processes))
    _told(findings, folder, form)


def _told(findings: "Findings", folder: Path | None, form: Format) -> None:
    """Write a study's notes, its folder if there is to be one, and its rows."""
    from pipelines.studies.study import rendered, write

    for note in findings.notes:
        say(f"note: {note}")
    if folder is not None:
        say(f"written: {', '.join(str(path) for path in write(findings, folder))}")
    if form is not Format.TABLE:
        emit(findings.rows(), form)
        return
    for title, rows in findings.tables.items():
        say(f"\n{title}")
        emit(rendered(rows), form)


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {
    "fgd-departures": departures,
}
"""By the name of the subcommand."""
