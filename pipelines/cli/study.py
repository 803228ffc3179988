"""`taut experiment ...`: experiments as subcommands of their own group; the replay of recorded traces is here.

No logic beyond reading options and writing rows. Called by `pipelines.cli`, which registers the group.
"""

from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.experiment_carbon import EXPERIMENTS as CARBON_EXPERIMENTS
from pipelines.cli.experiment_carbon_gap import EXPERIMENTS as CARBON_GAP_EXPERIMENTS
from pipelines.cli.experiment_cost import EXPERIMENTS as COST_EXPERIMENTS
from pipelines.cli.experiment_cost_gap import EXPERIMENTS as COST_GAP_EXPERIMENTS
from pipelines.cli.experiment_energy import EXPERIMENTS as ENERGY_EXPERIMENTS
from pipelines.cli.experiment_fgd import EXPERIMENTS as FGD_EXPERIMENTS
from pipelines.cli.experiment_grid import EXPERIMENTS as GRID_EXPERIMENTS
from pipelines.cli.experiment_paper import EXPERIMENTS as PAPER_EXPERIMENTS
from pipelines.cli.experiment_savings import EXPERIMENTS as SAVINGS_EXPERIMENTS
from pipelines.cli.experiment_sharing import EXPERIMENTS as SHARING_EXPERIMENTS
from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Seed, Threads, Trace, emit, say

experiment = typer.Typer(no_args_is_help=True, help="Experiments on real and synthetic jobs, net of harm.")


def replay(
    lake: Lake = None,
    trace: Trace = None,
    cluster: Cluster = None,
    readings: Annotated[
        list[str] | None,
        typer.Option(
            "--reading",
            help="How large the cluster is taken to be: machine_list, revised, daily_total, vc_table, vc_inferred or "
            "load (may be repeated).",
            show_default="all that the lake allows",
        ),
    ] = None,
    orders: Annotated[
        list[str] | None,
        typer.Option("--order", help="Only this queue order (may be repeated).", show_default="all that apply"),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--sizes",
            help="Only this source of sizes: predicted, oracle, or a baseline from history (may be repeated).",
            show_default="all that apply",
        ),
    ] = None,
    loads: Annotated[
        list[float] | None,
        typer.Option(
            "--load",
            help="Offered load of the reading `load` (may be repeated).",
            min=0.1,
            max=1.5,
            show_default="0.7 and 0.9",
        ),
    ] = None,
    checkpoint_s: Annotated[
        float, typer.Option("--checkpoint-s", help="Seconds that every start after a preemption costs.", min=0.0)
    ] = 60.0,
    detail: Annotated[bool, typer.Option("--detail", help="Rows by VC and by size of gang as well.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the rows and the charts.", show_default="none is written")
    ] = None,
    seed: Seed = 0,
    threads: Threads = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Replay a trace's own jobs: every queue order with predicted, oracle and history sizes."""
    from pipelines.cli.opening import opened, threads_of
    from pipelines.cli.progress import compiling
    from pipelines.simulation.results_folder import open_folder
    from pipelines.studies.replay.experiment import Question, ask
    from pipelines.studies.replay.shown import shown

    folder = None if out is None else open_folder(out)
    with compiling(), opened(lake, trace) as (source, name):
        question = Question(
            trace=name,
            cluster=cluster,
            readings=readings,
            orders=orders,
            sizes=sizes,
            loads=tuple(loads or (0.7, 0.9)),
            checkpoint_s=checkpoint_s,
            seed=seed,
            threads=threads_of(threads),
        )
        answer = ask(source, question, talk=say)
    rows = answer.rows(detail=detail)
    emit(shown(rows) if form is Format.TABLE else rows, form)
    if folder is not None:
        from pipelines.studies.replay.folder import write

        say(f"written: {', '.join(str(path) for path in write(answer, folder))}")


EXPERIMENTS = {
    **PAPER_EXPERIMENTS,
    **FGD_EXPERIMENTS,
    **SHARING_EXPERIMENTS,
    **ENERGY_EXPERIMENTS,
    **COST_EXPERIMENTS,
    **COST_GAP_EXPERIMENTS,
    **GRID_EXPERIMENTS,
    **CARBON_EXPERIMENTS,
    **CARBON_GAP_EXPERIMENTS,
    **SAVINGS_EXPERIMENTS,
    "replay": replay,
}
"""By the name of the subcommand."""

for _name, _command in EXPERIMENTS.items():
    experiment.command(_name)(_command)


def register(app: typer.Typer) -> None:
    """Add this file's group to the app."""
    app.add_typer(experiment, name="experiment")
