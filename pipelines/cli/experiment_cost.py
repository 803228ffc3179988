"""`taut experiment cost`: decisions with due dates and energy prices, beside first-principle methods.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the command.
"""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from pipelines.cli.experiment_carbon import Processes
from pipelines.cli.experiment_energy import Energy, Out
from pipelines.cli.options import Format, FormatOption, emit, say

Zones = Annotated[
    list[str] | None,
    typer.Option(
        "--zone",
        help="Whose prices are paid (may be repeated; all is run with the first, one load with the others).",
        show_default="DE-LU and US-CAL-CISO",
    ),
]
Loads = Annotated[
    list[float] | None,
    typer.Option(
        "--load",
        help="Offered load (may be repeated); bars are judged at those of 0.5 to 0.9.",
        min=0.05,
        max=2.0,
        show_default="0.1, 0.3, 0.5, 0.7, 0.9 and 1.1",
    ),
]


def cost(
    energy: Energy = None,
    zones: Zones = None,
    loads: Loads = None,
    nodes: Annotated[int, typer.Option("--nodes", help="Nodes of each of two types.", min=1, max=100)] = 2,
    jobs: Annotated[int, typer.Option("--jobs", help="Jobs a run.", min=2, max=10_000)] = 100,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", help="Plans changed at random for each decision that looks ahead.", min=1, max=100_000
        ),
    ] = 20,
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each setting.", min=2, max=1000)] = 10,
    seed: Annotated[int, typer.Option("--seed", help="The first seed.", min=0, max=2**31)] = 0,
    processes: Processes = None,
    out: Out = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Place jobs with due dates on node types at hourly prices: cost against FIFO, EDF and priority, and the bars."""
    from pipelines.cli.opening import threads_of
    from pipelines.cli.progress import compiling
    from pipelines.settings import load_settings
    from pipelines.simulation.results_folder import fresh_folder
    from pipelines.studies.cost.experiment import ZONES, Question, ask
    from pipelines.studies.cost.studies import AT_LOADS, LOADS
    from pipelines.studies.study import rendered, write

    folder = None if out is None else fresh_folder(out)
    run = tuple(dict.fromkeys(loads or LOADS))
    question = Question(
        energy=energy or load_settings().energy,
        zones=tuple(zones or ZONES),
        loads=run,
        at_loads=tuple(load for load in run if min(AT_LOADS) <= load <= max(AT_LOADS)),
        nodes=nodes,
        jobs=jobs,
        iterations=iterations,
        seed=seed,
        seeds=seeds,
        processes=threads_of(processes),
    )
    with compiling():
        found = ask(question, talk=say)
    for note in found.notes:
        say(f"note: {note}")
    if folder is not None:
        say(f"written: {', '.join(str(path) for path in write(found, folder))}")
    if form is not Format.TABLE:
        emit(found.rows(), form, kinds=True)
        return
    for title, rows in found.tables.items():
        say(f"\n{title}")
        emit(rendered(rows), form)


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {"cost": cost}
"""By the name of the subcommand."""
