"""`taut experiment savings|slack`: what right-sizing and waiting for a cleaner hour save, in kWh, grams and money.

No logic beyond reading options and writing rows. Called by `pipelines.cli.study`, which registers the commands.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipelines.cli.experiment_grid import GridFolder
from pipelines.cli.experiment_paper import Folds, Out, PredictorOption, Seeds, Who
from pipelines.cli.options import Cluster, Format, FormatOption, Lake, Offline, Seed, Threads, Trace, emit, say

if TYPE_CHECKING:
    from pipelines.simulation.energy.meters import Meters
    from pipelines.studies.study import Findings

Zones = Annotated[
    list[str] | None,
    typer.Option("--zone", help="Zone of the grid (may be repeated).", show_default="DE-LU and US-CAL-CISO"),
]
Power = Annotated[
    Path | None,
    typer.Option(
        "--power",
        help="TOML file of what machines draw, laid over the shipped table.",
        show_default="the shipped table",
    ),
]
Pue = Annotated[
    float | None,
    typer.Option(
        "--pue", help="The site's energy over that of its machines.", min=1.0, max=10.0, show_default="the power file's"
    ),
]
Replayed = Annotated[
    list[str] | None,
    typer.Option(
        "--replay",
        help="Replay this trace's own jobs beside, of which no use is known (may be repeated).",
        show_default="none",
    ),
]
ReplayedCluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", help="Only this cluster of the traces replayed (with --replay).", show_default="all of them"
    ),
]
Slacks = Annotated[
    list[float] | None,
    typer.Option(
        "--slack-h",
        help="Hours that a job may be held (may be repeated).",
        min=0.25,
        max=168.0,
        show_default="1, 3, 6 and 12",
    ),
]


def savings(
    lake: Lake = None,
    trace: Trace = None,
    replayed: Replayed = None,
    cluster: ReplayedCluster = None,
    grid: GridFolder = None,
    zones: Zones = None,
    power: Power = None,
    pue: Pue = None,
    seeds: Seeds = 20,
    predictor: Who = PredictorOption.OUT_OF_FOLD,
    folds: Folds = 10,
    offline: Offline = False,
    out: Out = None,
    seed: Seed = 0,
    threads: Threads = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Tell what right-sizing alone saves in kWh, grams and money per finished job, empty machines on or off."""
    from pipelines.cli.experiment_paper import advised
    from pipelines.cli.opening import opened, threads_of
    from pipelines.cli.progress import compiling
    from pipelines.errors import BadUsage
    from pipelines.simulation.results_folder import fresh_folder
    from pipelines.studies.energy.savings import Question, ask
    from pipelines.studies.energy.savings_recorded import recorded

    if cluster is not None and not replayed:
        raise BadUsage(
            f"found --cluster {cluster} without --replay, expected a trace to replay, as drawn jobs are of all "
            "clusters: add --replay, or leave --cluster out"
        )
    folder = None if out is None else fresh_folder(out)
    meters = _meters(grid, zones, power, pue)
    with compiling():
        found = {}
        for name in dict.fromkeys(replayed or ()):
            with opened(lake, name) as (source, _):
                found[name] = recorded(source, name, cluster, meters, say)
        pool, who, notes = advised(
            lake, trace, None, predictor, folds=folds, offline=offline, seed=seed, threads=threads_of(threads)
        )
        question = Question(
            pool=pool,
            predictor=who,
            meters=meters,
            seeds=range(seed, seed + seeds),
            recorded=found,
            notes=notes,
        )
        findings = ask(question, talk=say)
    _tell(findings, folder, form)


def slack(
    lake: Lake = None,
    trace: Trace = None,
    cluster: Cluster = None,
    grid: GridFolder = None,
    zones: Zones = None,
    slacks_h: Slacks = None,
    power: Power = None,
    pue: Pue = None,
    out: Out = None,
    seed: Seed = 0,
    threads: Threads = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Hold recorded jobs for a cleaner or cheaper hour: savings against waits, by forecast and with hindsight."""
    from pipelines.cli.opening import opened, threads_of
    from pipelines.cli.progress import compiling
    from pipelines.simulation.results_folder import fresh_folder
    from pipelines.studies.energy.shifting import SLACKS_H, ask

    folder = None if out is None else fresh_folder(out)
    meters = _meters(grid, zones, power, pue)
    with compiling(), opened(lake, trace) as (source, name):
        findings = ask(
            source,
            name,
            cluster,
            meters,
            slacks_h=tuple(slacks_h or SLACKS_H),
            seed=seed,
            nthread=threads_of(threads),
            talk=say,
        )
    _tell(findings, folder, form)


def _meters(grid: Path | None, zones: Sequence[str] | None, power: Path | None, pue: float | None) -> "Meters":
    from pipelines.settings import load_settings
    from pipelines.simulation.energy.meters import Meters

    return Meters.of(grid or load_settings().energy / "grid", zones, power, pue).priced()


def _tell(findings: "Findings", folder: Path | None, form: Format) -> None:
    from pipelines.studies.study import rendered, write

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


EXPERIMENTS: Final[dict[str, Callable[..., None]]] = {"savings": savings, "slack": slack}
"""By the name of the subcommand."""
