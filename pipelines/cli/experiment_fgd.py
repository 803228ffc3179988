"""`taut experiment fgd`: placements on shared GPUs by the published inflation protocol, beside the published figures.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the command.
"""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from pipelines.cli.options import Format, FormatOption, Lake, emit, say


class PolicyOption(StrEnum):
    """The placements that share GPUs device by device."""

    RANDOM = "random"
    DOT_PRODUCT = "dot_product"
    GPU_CLUSTERING = "gpu_clustering"
    GPU_PACKING = "gpu_packing"
    BEST_FIT_GPU = "best_fit_gpu"
    FGD = "fgd"


class TiesOption(StrEnum):
    """Which of the nodes with equal scores is taken."""

    FIRST = "first"
    RANDOM = "random"


class NodesOption(StrEnum):
    """The orders in which nodes stand: drawn for each seed, or by their names for all."""

    PERMUTED = "permuted"
    NAME = "name"


Trace = Annotated[str, typer.Option("--trace", help="Name of the trace in the lake.")]
Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload", help="Only this pod list (may be repeated).", show_default="those with published results"
    ),
]
Policies = Annotated[
    list[PolicyOption] | None,
    typer.Option("--policy", help="Only this placement (may be repeated).", show_default="all six"),
]
Popularities = Annotated[
    list[float] | None,
    typer.Option(
        "--popularity",
        help="Share of pods whose specs FGD aims at, above 0 to 1 (may be repeated; the first is drawn).",
        show_default="0.95, as published, and 1",
    ),
]
Ties = Annotated[
    list[TiesOption] | None,
    typer.Option(
        "--ties",
        help="Which of equal nodes is taken (may be repeated).",
        show_default="first, as published, and random",
    ),
]
Nodes = Annotated[
    list[NodesOption] | None,
    typer.Option(
        "--nodes",
        help="Order of the nodes, drawn for each seed or by name (may be repeated).",
        show_default="permuted, as published, and name",
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", help="Inflations of each pod list.", min=2, max=1000)]
FirstSeed = Annotated[int, typer.Option("--seed", help="The first seed.", min=0, max=2**31)]
Published = Annotated[
    Path | None,
    typer.Option(
        "--published",
        help="Folder of the results published with FGD's simulator; without any, what is held to them is not judged.",
        show_default="openb/expected_results below TAUT_TRACES",
    ),
]
Processes = Annotated[
    int | None,
    typer.Option("--processes", help="Processes for the runs.", min=1, max=256, show_default="TAUT_THREADS, else all"),
]
Out = Annotated[
    Path | None, typer.Option(help="New folder for rows, curves and charts.", show_default="none is written")
]


def fgd(
    lake: Lake = None,
    trace: Trace = "openb",
    workloads: Workloads = None,
    policies: Policies = None,
    popularities: Popularities = None,
    ties: Ties = None,
    nodes: Nodes = None,
    seeds: Seeds = 10,
    seed: FirstSeed = 42,
    published: Published = None,
    processes: Processes = None,
    out: Out = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Fill clusters of shared GPUs up under six placements; what stays unallocated, beside the published figures."""
    from pipelines.cli.opening import place_of, threads_of
    from pipelines.cli.progress import compiling
    from pipelines.lake.lake import Lake as OpenLake
    from pipelines.settings import load_settings
    from pipelines.simulation.results_folder import fresh_folder
    from pipelines.studies.fragmentation.arms import POPULARITIES
    from pipelines.studies.fragmentation.experiment import Question, ask
    from pipelines.studies.fragmentation.published import usual_folder

    folder = None if out is None else fresh_folder(out)
    question = Question(
        trace=trace,
        workloads=workloads,
        policies=policies and [policy.value for policy in policies],
        popularities=popularities or POPULARITIES,
        ties=[rule.value for rule in ties or TiesOption],
        orders=[order.value for order in nodes or NodesOption],
        seed=seed,
        seeds=seeds,
        processes=threads_of(processes),
        published=usual_folder(load_settings().traces) if published is None else published,
    )
    with compiling(), OpenLake(place_of(lake).lake) as source:
        answer = ask(source, question, talk=say)
    for note in answer.notes:
        say(f"note: {note}")
    if folder is not None:
        from pipelines.studies.fragmentation.folder import write

        say(f"written: {', '.join(str(path) for path in write(answer, folder))}")
    if form is not Format.TABLE:
        emit(answer.rows(), form)
        return
    say("\nGPUs unallocated where as many were asked for as there are, in percent of all: mean and sd over seeds")
    emit(answer.unallocated, form)
    say("\nThe bars")
    emit(answer.bars, form)


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {"fgd": fgd}
"""By the name of the subcommand."""
