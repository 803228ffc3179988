"""The options of `taut simulate`, in groups: a group is a dataclass whose fields are options.

To keep imports fast, the names of policies and placements are repeated here instead of imported; a test checks that
they are equal. The command is in `pipelines.cli.simulation`.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from pipelines.cli.options import Cluster, Format, FormatOption, GuardOption, Lake, Offline, Seed, TokenFile, Trace

ArrivalsOption = Literal["drawn", "instances", "recorded"]
"""Source of arrivals: jobs or single instances of them drawn at random, or recorded in the trace."""

QueueOption = Literal["fifo", "sjf", "srtf", "qssf", "las", "las_time", "mlfq", "gittins", "drf", "priority"]
"""Queue policy: the order in which waiting jobs are considered."""

PlacementOption = Literal[
    "best_fit",
    "first_fit",
    "consolidate",
    "spread",
    "fgd",
    "fgd_used_first",
    "dot_product",
    "best_fit_gpu",
    "gpu_packing",
    "gpu_clustering",
    "random",
]
"""Placement: how machines are chosen for a job's instances."""

SharingOption = Literal["pooled", "devices"]
"""How instances share a machine's GPUs: pooled, or device by device."""

TargetOption = Literal["online", "trace"]
"""Jobs that form the target workload, for which fragmentation-aware placements keep GPUs usable."""

BackfillOption = Literal["none", "easy"]
"""Backfill: whether later jobs may start before a blocked first job that has a reservation."""


class TruthOption(StrEnum):
    """Slowdown models, which say how long a job runs on less than it requested."""

    UNCHANGED = "unchanged"
    PREDICTED = "predicted"
    CONTENTION = "contention"
    SHARED = "shared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Options for the lake, and for which of its jobs are simulated."""

    lake: Lake = None
    trace: Trace = None
    cluster: Cluster = None
    vc: Annotated[
        str | None, typer.Option("--vc", help="Only jobs of this virtual cluster.", show_default="all of them")
    ] = None
    since: Annotated[
        datetime | None, typer.Option("--since", help="Only jobs submitted from then on.", show_default=False)
    ] = None
    until: Annotated[
        datetime | None, typer.Option("--until", help="Only jobs submitted before.", show_default=False)
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Options for how jobs arrive, and how long the simulation lasts."""

    arrivals: Annotated[
        ArrivalsOption,
        typer.Option(
            "--arrivals",
            help="Measured jobs drawn (Poisson), one instance of each drawn job, or the trace's own submissions.",
        ),
    ] = "drawn"
    rate: Annotated[
        float | None, typer.Option("--rate", help="Drawn arrivals per hour.", min=0.01, max=1e6, show_default="70")
    ] = None
    mix: Annotated[
        list[str] | None,
        typer.Option(
            "--mix", help="Weight of a task type, as ctr=65 (may be repeated).", show_default="the trace's own"
        ),
    ] = None
    replications: Annotated[
        int | None,
        typer.Option("--replications", help="Runs with different seeds; shows means.", min=1, show_default="1"),
    ] = None
    hours: Annotated[
        float | None,
        typer.Option(
            "--hours", help="Length.", min=0.1, max=100_000.0, show_default="12; recorded: until all jobs ended"
        ),
    ] = None
    warm_up_h: Annotated[float, typer.Option("--warm-up-h", help="Hours before measuring begins.", min=0.0)] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Options for the machines, and for how jobs are queued and placed on them."""

    cluster_from: Annotated[
        str | None,
        typer.Option(
            "--cluster-from",
            help="The cluster: `paper`, `machines` (the trace's own table), or a TOML file of machines.",
            show_default="paper; recorded: machines",
        ),
    ] = None
    match_gpu_type: Annotated[
        bool, typer.Option("--match-gpu-type", help="Run gangs only on machines of their recorded GPU type.")
    ] = False
    policy: Annotated[QueueOption, typer.Option("--policy", help="Queue order.")] = "fifo"
    placement: Annotated[
        PlacementOption, typer.Option("--placement", help="How machines are chosen for a gang's instances.")
    ] = "best_fit"
    sharing: Annotated[
        SharingOption | None,
        typer.Option(
            "--sharing",
            help="Count a machine's GPUs together (pooled), or one by one (devices): a fraction of a GPU then comes "
            "from a single device.",
            show_default="the placement's",
        ),
    ] = None
    target: Annotated[
        TargetOption,
        typer.Option(
            "--target",
            help="Jobs for which `fgd` and `fgd_used_first` keep GPUs usable: those that arrived so far, or all jobs "
            "of the run (an oracle).",
        ),
    ] = "online"
    popularity: Annotated[
        float, typer.Option("--popularity", help="Share of pods whose specs form the target, above 0 to 1.")
    ] = 1.0
    aging: Annotated[
        float,
        typer.Option(
            "--aging", help="Priority gained per second waited, in the unit of the policy's sort key.", min=0.0
        ),
    ] = 0.0
    overtakes: Annotated[
        int | None,
        typer.Option(
            "--overtakes", help="Later jobs that may start before a blocked first job.", min=0, show_default="any"
        ),
    ] = None
    backfill: Annotated[
        BackfillOption, typer.Option("--backfill", help="EASY: never delay the reserved start of a blocked first job.")
    ] = "none"
    preempt: Annotated[
        bool | None,
        typer.Option("--preempt/--no-preempt", help="Let waiting jobs stop running ones.", show_default="the policy's"),
    ] = None
    restart_cost_s: Annotated[
        float, typer.Option("--restart-cost-s", help="Seconds that every restart after a preemption costs.", min=0.0)
    ] = 0.0
    quantum_s: Annotated[float, typer.Option("--quantum-s", help="Seconds a started job runs at least.", min=1.0)] = (
        600.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Advising:
    """Options for the predictor, the parameters of Algorithm 1, and the slowdown models."""

    predictor: Annotated[
        str | None,
        typer.Option(
            "--predictor",
            help="Predictor: `champion`, `oracle`, `constant`, `none`, or the URL of a service, as "
            "http://127.0.0.1:8080. A service is called once, before the run, with a minute per 10 000 jobs. Jobs "
            "without an answer keep their requests; without any answer the run is refused.",
            show_default="champion; recorded: none unless something uses predictions",
        ),
    ] = None
    token_file: TokenFile = None
    offline: Offline = False
    theta: Annotated[
        float, typer.Option("--theta", help="Largest relative change of the predicted run time.", min=0.0001, max=1.0)
    ] = 0.05
    alpha0: Annotated[
        float | None,
        typer.Option(
            "--alpha0",
            help="Smallest share of a request that is tried.",
            min=0.0,
            max=0.99,
            show_default="0.05; without a guard 0.5",
        ),
    ] = None
    sure_runs: Annotated[
        int | None,
        typer.Option(
            "--sure-runs",
            help="Measured runs from which an important request shrinks too.",
            min=0,
            show_default="50",
        ),
    ] = None
    guard: Annotated[
        list[GuardOption] | None,
        typer.Option("--guard", help="Guards to run (may be repeated).", show_default="usage"),
    ] = None
    truth: Annotated[
        list[TruthOption] | None,
        typer.Option("--truth", help="Slowdown model of shrunk jobs (may be repeated).", show_default="all but shared"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """Options for outages of machines: read from a file, or drawn at a rate."""

    mtbf_h: Annotated[
        float | None,
        typer.Option("--mtbf-h", help="Mean hours between failures of a machine.", show_default="none fails"),
    ] = None
    mttr_h: Annotated[
        float | None, typer.Option("--mttr-h", help="Mean hours until a failed machine is back.", show_default="1")
    ] = None
    outages: Annotated[
        Path | None,
        typer.Option("--outages", help="CSV file of outages: machine,down_s,up_s.", show_default=False),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Options for the seed, and for where results are written."""

    seed: Seed = 0
    out: Annotated[
        Path | None,
        typer.Option("--out", help="New folder for every run's summary, event log and series.", show_default=False),
    ] = None
    form: FormatOption = Format.TABLE
