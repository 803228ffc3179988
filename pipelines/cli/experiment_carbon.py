"""`taut experiment carbon`: counts, then frequencies, under energy and carbon budgets, beside simpler schedulers.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the commands.
"""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from pipelines.cli.experiment_energy import Energy, Out
from pipelines.cli.options import Format, FormatOption, Lake, Threads, emit, say

Recorded = Annotated[
    str | None,
    typer.Option(
        "--trace",
        help="Take this trace's jobs of the lake instead, with run times predicted from earlier months.",
        show_default="drawn jobs, and real grids",
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", help="Seeds of every setting.", min=2, max=1000)]
FirstSeed = Annotated[int, typer.Option("--seed", help="The first seed.", min=0, max=2**31)]
Processes = Annotated[
    int | None,
    typer.Option("--processes", help="Processes for the runs.", min=1, max=256, show_default="TAUT_THREADS, else all"),
]


def carbon(
    energy: Energy = None,
    lake: Lake = None,
    trace: Recorded = None,
    seeds: Seeds = 10,
    seed: FirstSeed = 200,
    threads: Threads = None,
    processes: Processes = None,
    out: Out = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Elastic jobs under energy budgets: mean completion time at equal kWh; and carbon on real grids."""
    from pipelines.cli.opening import opened, threads_of
    from pipelines.settings import load_settings
    from pipelines.simulation.results_folder import fresh_folder
    from pipelines.studies.carbon.experiment import Question, ask
    from pipelines.studies.carbon.months import ask_months, together
    from pipelines.studies.carbon.recorded import recorded
    from pipelines.studies.study import rendered, write

    folder = None if out is None else fresh_folder(out)
    found = None
    if trace is not None:
        with opened(lake, trace) as (source, name):
            found = recorded(source, name, seed=seed, threads=threads_of(threads), talk=say)
    question = Question(
        energy=load_settings().energy if energy is None else energy,
        seed=seed,
        seeds=seeds,
        processes=threads_of(processes),
        recorded=found,
    )
    findings = ask(question, talk=say)
    if found is None:
        findings = together(findings, ask_months(question, talk=say))
    for note in findings.notes:
        say(f"note: {note}")
    if folder is not None:
        say(f"written: {', '.join(str(path) for path in write(findings, folder))}")
    if form is not Format.TABLE:
        emit(findings.rows(), form, kinds=True)
        return
    for title, rows in findings.tables.items():
        say(f"\n{title}")
        emit(rendered(rows), form)


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {"carbon": carbon}
"""By the name of the subcommand."""
