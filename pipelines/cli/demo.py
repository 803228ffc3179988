"""`taut demo`: ingest, train, recommend and simulate in one run, on a synthetic trace or on real files.

The demo calls the functions behind the other commands, with its own folder for the lake and the models. Its tables are
built in `pipelines.cli.demo_tables`.
"""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Final

from pipelines.cli.commands import named
from pipelines.cli.options import SEED, THREADS, emit, place_of, say, threads_of
from pipelines.errors import BadUsage
from pipelines.options import option

if TYPE_CHECKING:
    from pipelines.lake.lake import Lake
    from pipelines.models.retrain import Retrained
    from pipelines.simulation.job_pool import Pool
    from pipelines.simulation.settings import SimulationSettings
    from pipelines.simulation.simulate import SimulationResult

LEAST_TASKS = 20_000
REPLICATIONS = 5
WIDTH = 80
TAGGED_SHARE = 0.6
"""Share of jobs with a workload tag in the demo's trace.

The published trace has 0.1, which would leave too few jobs to train six models.
"""


def demo(
    traces: Path | None = option(None, "Folder of real traces (uses its `pai`).", shown="a synthetic trace"),
    into: Path = option(Path("data/demo"), "Working folder; it is emptied first."),
    tasks: int = option(LEAST_TASKS, "Size of the synthetic trace.", minimum=LEAST_TASKS),
    rate: float = option(70.0, "Simulated arrivals per hour.", minimum=1.0, maximum=10_000.0),
    seed: int = SEED,
    threads: int | None = THREADS,
) -> None:
    """Run the whole chain: ingest, train, gate, recommend; simulate 12 h with and without taut."""
    from pipelines.cli.demo_tables import accuracy_rows, importance_rows, outcome_rows, reclaimed_rows
    from pipelines.cli.opening import champions
    from pipelines.cli.progress import compiling, step
    from pipelines.lake.ingest import ingest
    from pipelines.lake.lake import Lake
    from pipelines.models.retrain import promote_all, retrain
    from pipelines.models.training_tables import read_tables
    from pipelines.simulation.advice import scales_of
    from pipelines.simulation.settings import SimulationSettings
    from pipelines.simulation.shared.inputs import SHARED
    from pipelines.simulation.simulate import simulate

    source, name = (traces / "pai", "pai") if traces is not None else (into / "raw", "pai-synth")
    _fresh(into)
    place = place_of(into / "lake")
    lake = place.lake
    if traces is None:
        from pipelines.synth.pai import synthesise

        with step(f"writing a synthetic trace of {tasks} tasks (seed {seed}, {TAGGED_SHARE:.0%} tagged)"):
            synthesise(source, tasks=tasks, seed=seed, tagged_share=TAGGED_SHARE)
    with step(f"ingesting {source} as {name}"):
        ingest("pai", source, lake, as_name=name)
    with Lake(lake) as opened:
        tables = read_tables(opened, name)
        trained = retrain(tables, name, uri=place.tracking_uri, seed=seed, threads=threads_of(threads), talk=say)
        promote_all(trained, uri=place.tracking_uri, force=True, talk=say)
        with step("copying the champion models"):
            predictor = champions(place, offline=False)
        pool = _held_out(opened, name, trained)
    with step(f"simulating 12 h of {len(pool.jobs)} held-out jobs at {rate:g} per hour, sized at submission"):
        settings = SimulationSettings(rate_per_h=rate, seed=seed, replications=REPLICATIONS)
        result = simulate(pool, scales_of(predictor, pool, settings), settings)
    with step("simulating the same jobs, measured while they run"), compiling():
        reclaimed = simulate(pool, {}, replace(settings, slowdown_models=(SHARED,)))

    data = f"{name}, {'synthetic' if traces is None else 'real'}"
    say(f"\nRun-time models: the feature that matters most ({data})")
    emit(importance_rows(trained), "table")
    say(f"\nRun time on the latest fifth of the jobs ({data}): log pinball, lower is better")
    emit(accuracy_rows(trained), "table")
    say(f"\nRequests and targets of the held-out jobs, sized at submission ({data})")
    emit(reclaimed_rows(result), "table")
    say(f"\nThe cluster after 12 h, jobs sized at submission ({data}); means of {REPLICATIONS} draws")
    emit(outcome_rows(result), "table")
    _print_headline(reclaimed, settings, data)
    _print_next_commands(lake)


def _print_headline(result: "SimulationResult", settings: "SimulationSettings", data: str) -> None:
    """Print the demo's main table, its picture and its meaning."""
    from pipelines.cli.demo_tables import bars, headline_rows, sentence

    gpus = sum(machine.gpus for machine in settings.cluster.machines)
    table = headline_rows(result.rows, gpus=gpus)
    say(f"\nTaut measures jobs while they run: 12 h on {gpus} GPUs ({data})")
    emit(table, "table")
    say("")
    for line in (*bars(table), "", *wrap(sentence(table), WIDTH)):
        say(line)
    say("possible: mean use is known at submission. slowed: more than 1 % longer. How use")
    say(f"varies within a run is assumed. {settings.rate_per_h:g} jobs per hour, means of {REPLICATIONS} draws.")


def _fresh(folder: Path) -> None:
    """Empty the folder of an earlier demo; raise BadUsage if the folder holds other files."""
    mark = folder / ".taut-demo"
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise BadUsage(f"{folder} is not empty and was not made by a demo: name another folder with --into")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mark.touch()


def _held_out(lake: "Lake", name: str, trained: "Sequence[Retrained]") -> "Pool":
    """Return the measured jobs submitted after the training data ends, so that no model was trained on them."""
    import polars as pl

    from pipelines.simulation.job_pool import job_pool

    until = max(each.model.until for each in trained)
    later = lake.table("jobs", name).filter(pl.col("submit_ts") >= until).collect()
    return job_pool(later, lake.table("usage", name).collect())


def _print_next_commands(lake: Path) -> None:
    commands = {
        f"taut simulate --truth shared --lake {lake}": "all arms and figures",
        f"taut rightsize --lake {lake}": "who requests too much",
        f"taut models --lake {lake}": "what was trained",
        "taut serve": "the same over HTTP",
    }
    width = max(map(len, commands))
    say("\nNext:")
    for command, what in commands.items():
        say(f"  {command:<{width}}  # {what}")


COMMANDS: Final = named(demo)
