"""`taut experiment fgd-...`: fragmentation-aware placement past the paper, one subcommand for each study.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the commands.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipelines.cli.experiment_fgd import FirstSeed, Processes, Trace, Workloads
from pipelines.cli.experiment_paper import Folds, PredictorOption, Who, advised
from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Offline, Threads, emit, say
from pipelines.cli.options import Trace as PaperTrace

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


def large_jobs(
    lake: Lake = None,
    trace: Trace = "openb",
    workloads: Workloads = None,
    rules: Annotated[
        list[str] | None, typer.Option("--rule", help="Only this rule (may be repeated).", show_default="all")
    ] = None,
    seeds: Seeds = 10,
    seed: FirstSeed = 42,
    processes: Processes = None,
    out: Out = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Room for jobs of whole machines: what ties have to do with it, and rules that keep such machines whole."""
    from pipelines.studies.fragmentation.large_jobs import RULES, Question, ask

    def study(source: "Source", count: int) -> "Findings":
        question = Question(
            trace=trace,
            workloads=workloads,
            rules=tuple(rules or RULES),
            seed=seed,
            seeds=seeds,
            processes=count,
        )
        return ask(source, question, talk=say)

    _studied(study, lake, processes, out, form)


def online(
    lake: Lake = None,
    trace: Trace = "openb",
    workloads: Workloads = None,
    windows: Annotated[
        list[int] | None,
        typer.Option(
            "--window",
            help="Last arrivals that a target is learnt from (may be repeated).",
            min=1,
            show_default="30, 100, 300, 1000 and 10000",
        ),
    ] = None,
    seeds: Seeds = 10,
    seed: FirstSeed = 42,
    processes: Processes = None,
    out: Out = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Targets learnt from the pods that arrive, against one that knows all of them beforehand."""
    from pipelines.studies.fragmentation.online import WINDOWS, Question, ask

    def study(source: "Source", count: int) -> "Findings":
        question = Question(
            trace=trace,
            workloads=workloads,
            windows=tuple(windows or WINDOWS),
            seed=seed,
            seeds=seeds,
            processes=count,
        )
        return ask(source, question, talk=say)

    _studied(study, lake, processes, out, form)


def shrinking(
    lake: Lake = None,
    trace: PaperTrace = None,
    cluster: Cluster = None,
    rate_per_h: Annotated[float, typer.Option("--load", help="Jobs per hour.", min=0.1, max=10_000.0)] = 70.0,
    cpu_times: Annotated[
        list[float] | None,
        typer.Option(
            "--cpu-times",
            help="Times the CPU of the paper's machines (may be repeated).",
            min=0.1,
            max=100.0,
            show_default="1 and 3",
        ),
    ] = None,
    seeds: Seeds = 20,
    predictor: Who = PredictorOption.OUT_OF_FOLD,
    folds: Folds = 10,
    offline: Offline = False,
    seed: FirstSeed = 0,
    threads: Threads = None,
    processes: Processes = None,
    out: Out = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Smaller requests and placement against fragmentation, each alone and both, with the harm beside."""
    from pipelines.cli.opening import threads_of
    from pipelines.simulation.results_folder import fresh_folder
    from pipelines.studies.fragmentation.shrinking import CPU_TIMES, Question, ask

    folder = None if out is None else fresh_folder(out)
    pool, who, notes = advised(
        lake, trace, cluster, predictor, folds=folds, offline=offline, seed=seed, threads=threads_of(threads)
    )
    question = Question(
        pool=pool,
        predictor=who,
        rate_per_h=rate_per_h,
        cpu_times=tuple(cpu_times or CPU_TIMES),
        seed=seed,
        seeds=seeds,
        processes=threads_of(processes),
        notes=notes,
    )
    _told(ask(question, talk=say), folder, form)


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
    "fgd-shrinking": shrinking,
    "fgd-online": online,
    "fgd-large-jobs": large_jobs,
}
"""By the name of the subcommand."""
