"""The study `fragmentation`: placements on shared GPUs by FGD's inflation protocol, against the published results.

Joins pod lists, simulation runs and tables, and draws the unallocated GPUs as clusters fill up. Called by
`taut study fragmentation`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final, Literal

import altair as alt
import polars as pl

from pipelines.lake.lake import Lake
from pipelines.report.charts.looks import BLACK, GREEN, ORANGE, PURPLE, SKY, VERMILLION, titled
from pipelines.studies.fragmentation.arms import (
    FGD,
    POLICIES,
    POPULARITIES,
    TIES,
    arms_of,
    is_arm,
)
from pipelines.studies.fragmentation.published import FOLDER, no_results, read_published, usual_folder
from pipelines.studies.fragmentation.runs import Curves, chosen, filled_up, pod_list
from pipelines.studies.fragmentation.tables import bars, by_workload, mean_curves, unallocated_rows
from pipelines.studies.study import Context, Findings, Study, option, seed_option, seeds_option
from scheduler_core.sharing_placements import Ties

NAMES: Final = {
    "random": "random",
    "dot_product": "dot product",
    "gpu_clustering": "GPU clustering",
    "gpu_packing": "GPU packing",
    "best_fit_gpu": "best fit",
    "fgd": "FGD",
}
"""Name of each placement in legends."""

OURS, PUBLISHED = "taut", "published"
FROM_PCT: Final = 80
"""Percent of requested GPUs at which the axis begins; below it every placement allocates all requested GPUs."""

WIDTH, HEIGHT, COLUMNS = 210, 170, 4
_COLOURS: Final = (BLACK, ORANGE, SKY, PURPLE, GREEN, VERMILLION)

_DASHES: Final = {OURS: [1, 0], PUBLISHED: [4, 3]}


def unallocated_over_arrived(curves: pl.DataFrame, workloads: Sequence[str], of: Sequence[str]) -> alt.TopLevelMixin:
    """Draw the percent of GPUs unallocated against the percent requested; published curves are dashed.

    There is one panel per workload.
    """
    shown = curves.filter(pl.col("arrived_pct") >= FROM_PCT)
    shown = shown.with_columns(name=pl.col("policy").replace_strict(NAMES))
    held = shown["name"].unique().to_list()
    names = [name for name in NAMES.values() if name in held]
    colours = [colour for name, colour in zip(NAMES.values(), _COLOURS, strict=True) if name in held]
    dashes = {source: dash for source, dash in _DASHES.items() if source in shown["source"]}
    lines = (
        alt.Chart(shown)
        .mark_line(strokeWidth=1.4)
        .encode(
            x=alt.X("arrived_pct:Q").title("GPUs asked for, % of all").scale(domain=[FROM_PCT, 130], nice=False),
            y=alt.Y("unallocated_pct:Q").title("GPUs unallocated, %").scale(zero=True),
            color=alt.Color("name:N")
            .title(None)
            .scale(domain=names, range=colours)
            .legend(orient="bottom", columns=len(names), symbolType="stroke", symbolOpacity=1.0),
            strokeDash=alt.StrokeDash("source:N")
            .title(None)
            .scale(domain=list(dashes), range=list(dashes.values()))
            .legend(alt.Legend(orient="bottom", symbolType="stroke") if len(dashes) > 1 else None),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )
    panel = alt.Facet("workload:N").title(None).sort(list(workloads))
    return titled(lines.facet(facet=panel, columns=COLUMNS), "GPUs left unallocated as a cluster fills up", of)


PolicyName = Literal["random", "dot_product", "gpu_clustering", "gpu_packing", "best_fit_gpu", "fgd"]

FIRST_SEED: Final = 42
"""First seed of the ten published runs."""

DRAWN_DECIMALS: Final = 3
"""Decimals of percents in charts, rounded because a chart's page contains the data of all its points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Options of the study; an empty choice takes everything that applies.

    A popularity is the share of pods that make up the target workload. The fragmentation under placements other
    than FGD is measured against the target of the first popularity. The chart shows the first popularity and the first
    tie rule.
    """

    trace: str = option("openb", help="Name of the trace in the lake.")
    workloads: tuple[str, ...] = option(
        (),
        name="--workload",
        help="Only this pod list (may be repeated).",
        shown="those with published results, or all without any",
    )
    policies: tuple[PolicyName, ...] = option(
        (), name="--policy", help="Only this placement (may be repeated).", shown="all six"
    )
    popularities: tuple[float, ...] = option(
        POPULARITIES,
        name="--popularity",
        help="Share of pods whose specs FGD aims at, above 0 to 1 (may be repeated; the first is drawn).",
        shown="0.95, as published, and 1",
    )
    ties: tuple[Ties, ...] = option(
        TIES, help="Which of equal nodes is taken (may be repeated).", shown="first, as published, and random"
    )
    seeds: int = seeds_option(10)
    seed: int = seed_option(FIRST_SEED)
    published: Path | None = option(
        None,
        help="Folder of the results published with FGD's simulator; without any, their columns are empty and the bars "
        "that need them are not judged.",
        shown="openb/expected_results below TAUT_TRACES",
    )


def run(config: Config, context: Context) -> Findings:
    """Fill clusters up under every placement, and compare unallocated GPUs with the published results.

    Raises
    ------
    BadUsage
        If a workload is unknown, a popularity is not a share, or the trace lacks needed columns.
    LakeError
        If the lake has no such trace.
    SourceError
        If the published results are absent or do not have the expected format.
    """
    lake = context.lake()
    published, about = _published(config.published or usual_folder(context.traces))
    known = by_workload(published["workload"].unique().to_list())
    names = chosen(lake, config.trace, config.workloads, known)
    published = published.filter(pl.col("workload").is_in(names))
    curves = curves_of(lake, config, names, context)
    unallocated = unallocated_rows(curves, published)
    judged = bars(unallocated)
    lines, of = drawn(config, curves, published), subtitle_of(config, published)
    chart = partial(unallocated_over_arrived, lines, by_workload(names), of)
    return Findings(
        study="fragmentation",
        trace=config.trace,
        tables={
            "GPUs unallocated where as many were asked for as there are, in percent of all: mean and sd over seeds": (
                unallocated
            ),
            "The bars": judged,
        },
        charts={"unallocated_over_arrived": chart},
        frames={"curves": curves},
        notes=(*_assumptions(config, [name for name in known if name not in names]), *about),
        flat=[
            {"trace": config.trace, "table": table, **row}
            for table, rows in (("unallocated", unallocated), ("bar", judged))
            for row in rows
        ],
    )


def curves_of(lake: Lake, config: Config, names: Sequence[str], context: Context) -> pl.DataFrame:
    """Return the curves of every arm of a config on these pod lists; raises the errors of `run`."""
    arms = arms_of(config.policies, config.popularities, config.ties)
    lists = [pod_list(lake, config.trace, name) for name in names]
    began = time.perf_counter()
    seeds = range(config.seed, config.seed + config.seeds)
    curves = filled_up(lists, arms, seeds, engine=context.engine, talk=context.talk)
    context.talk(_took(curves, time.perf_counter() - began))
    return curves.frame


def drawn(config: Config, all_curves: pl.DataFrame, published: pl.DataFrame) -> pl.DataFrame:
    """Return the curves to draw: ours for the first popularity and tie rule, and the published ones."""
    main = all_curves.filter(is_arm(config.popularities[0], config.ties[0]))
    return pl.concat(
        mean_curves(curves).with_columns(pl.col(pl.Float64).round(DRAWN_DECIMALS), source=pl.lit(source))
        for curves, source in (
            (main, OURS),
            (published.filter(pl.col("policy").is_in(main["policy"].unique().to_list())), PUBLISHED),
        )
    )


def subtitle_of(config: Config, published: pl.DataFrame) -> list[str]:
    """Return the lines below the title of a chart: trace, seeds, protocol, and choices drawn."""
    return [
        f"{config.trace}: means of {config.seeds} seeds; pods submitted one by one, none departs, what does not fit is "
        "dropped",
        f"{FGD.upper()} aims at specs of {100 * config.popularities[0]:g} % of the pods; ties: {config.ties[0]}"
        f"{'' if published.is_empty() else '; dashed: as published with its simulator'}",
    ]


def _published(folder: Path | None) -> tuple[pl.DataFrame, list[str]]:
    """Return the published results, or an empty frame and a note on how to provide them."""
    if folder is not None:
        return read_published(folder), []
    said = (
        "no published results: their columns are empty, and what is held to them is not judged; --published names "
        f"their folder, or TAUT_TRACES the one that holds {FOLDER}"
    )
    return no_results(), [said]


def _assumptions(config: Config, absent: Sequence[str]) -> list[str]:
    aims = " and ".join(f"{100 * share:g} %" for share in config.popularities)
    said = [
        "inflation as published: pods shuffled, then drawn anew until they ask for 130 % of the GPUs; one by one, none "
        "departs, what does not fit is dropped; other random streams than the published ones, so compare means",
        "nodes are in an order drawn for each seed, the published protocol (its simulator puts numbers so drawn before "
        "the names, and gives ties to the smallest)",
        f"seeds {config.seed} to {config.seed + config.seeds - 1}; all arms have the same pods in the same order",
        f"{FGD} aims at the most frequent specs that make {aims} of the pods; the others are measured "
        f"against {100 * config.popularities[0]:g} %",
    ]
    if not config.workloads and absent:
        said.append(f"the lake lacks {', '.join(absent)}: left out")
    return said


def _took(curves: Curves, all_s: float) -> str:
    runs = sum(map(len, curves.seconds.values()))
    slowest = max(curves.seconds, key=lambda policy: median(curves.seconds[policy]))
    each = f"one of {slowest} {median(curves.seconds[slowest]):.2f} s, at most {max(curves.seconds[slowest]):.2f} s"
    return f"{runs} runs took {all_s:.0f} s ({each})"


FRAGMENTATION: Final = Study(
    name="fragmentation",
    config=Config,
    run=run,
    arms={policy: f"{published} in the published results" for policy, published in POLICIES.items()},
    takes=("lake", "engine"),
)
