"""The options of `taut simulate`, declared once each.

Nothing heavy is imported: the names of policies, placements and truths stand here again, and a test compares them.
Called by `pipelines.cli.simulation`.
"""

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.options import GuardOption as GuardOption  # beside the other choices, for who imports this file


class ArrivalsOption(StrEnum):
    """Where arrivals come from."""

    DRAWN = "drawn"
    RECORDED = "recorded"


class QueueOption(StrEnum):
    """In what order the queue is served."""

    FIFO = "fifo"
    SJF = "sjf"
    SRTF = "srtf"
    QSSF = "qssf"
    LAS = "las"
    DRF = "drf"
    PRIORITY = "priority"


class PlacementOption(StrEnum):
    """Where a gang's instances go."""

    BEST_FIT = "best_fit"
    FIRST_FIT = "first_fit"
    CONSOLIDATE = "consolidate"
    SPREAD = "spread"
    FGD = "fgd"
    FGD_USED_FIRST = "fgd_used_first"
    DOT_PRODUCT = "dot_product"
    BEST_FIT_GPU = "best_fit_gpu"
    GPU_PACKING = "gpu_packing"
    GPU_CLUSTERING = "gpu_clustering"
    RANDOM = "random"


class SharingOption(StrEnum):
    """How instances share a machine's GPUs."""

    POOLED = "pooled"
    DEVICES = "devices"


class TargetOption(StrEnum):
    """What placements against fragmentation aim at."""

    ONLINE = "online"
    TRACE = "trace"


class BackfillOption(StrEnum):
    """Whether waiting jobs may pass a blocked one that has a reservation."""

    NONE = "none"
    EASY = "easy"


class TruthOption(StrEnum):
    """What a shrunk job's run becomes."""

    UNCHANGED = "unchanged"
    PREDICTED = "predicted"
    CONTENTION = "contention"


Arrivals = Annotated[
    ArrivalsOption,
    typer.Option("--arrivals", help="Drawn from the measured jobs (Poisson), or the trace's own submissions."),
]
Since = Annotated[
    datetime | None, typer.Option("--since", help="Only jobs submitted from then on.", show_default=False)
]
Until = Annotated[datetime | None, typer.Option("--until", help="Only jobs submitted before.", show_default=False)]
Vc = Annotated[str | None, typer.Option("--vc", help="Only jobs of this virtual cluster.", show_default="all of them")]
Rate = Annotated[
    float | None, typer.Option("--rate", help="Drawn arrivals per hour.", min=0.01, max=1e6, show_default="70")
]
Hours = Annotated[
    float | None,
    typer.Option("--hours", help="Length.", min=0.1, max=100_000.0, show_default="12; recorded: until all is done"),
]
Mix = Annotated[
    list[str] | None,
    typer.Option("--mix", help="Weight of a task type, as ctr=65 (may be repeated).", show_default="the trace's own"),
]
Replications = Annotated[
    int | None,
    typer.Option("--replications", help="Runs with seeds of their own; means are shown.", min=1, show_default="1"),
]
ClusterFrom = Annotated[
    str | None,
    typer.Option(
        "--cluster-from",
        help="The cluster: `paper`, `machines` (the trace's own table), or a TOML file of machines.",
        show_default="paper; recorded: machines",
    ),
]
Policy = Annotated[QueueOption, typer.Option("--policy", help="Queue order.")]
PlacementChoice = Annotated[PlacementOption, typer.Option("--placement", help="Where a gang's instances go.")]
Sharing = Annotated[
    SharingOption | None,
    typer.Option(
        "--sharing",
        help="A machine's GPUs are counted together, or each for itself: up to one GPU comes from one device.",
        show_default="the placement's",
    ),
]
Target = Annotated[
    TargetOption,
    typer.Option(
        "--target",
        help="What `fgd` and `fgd_used_first` keep GPUs usable for: what arrived so far, or all jobs of the run "
        "beforehand (an oracle).",
    ),
]
Popularity = Annotated[float, typer.Option("--popularity", help="Share of pods whose specs they aim at, above 0 to 1.")]
Aging = Annotated[
    float, typer.Option("--aging", help="What a second of waiting takes off a job's key, in the key's unit.", min=0.0)
]
Overtakes = Annotated[
    int | None,
    typer.Option("--overtakes", help="Later jobs that may start before a blocked head.", min=0, show_default="any"),
]
Backfill = Annotated[BackfillOption, typer.Option("--backfill", help="EASY: never delay the blocked head's turn.")]
Preempt = Annotated[
    bool | None,
    typer.Option("--preempt/--no-preempt", help="Whether better jobs stop running ones.", show_default="the policy's"),
]
CheckpointS = Annotated[
    float, typer.Option("--checkpoint-s", help="What a start after a preemption costs, in seconds.", min=0.0)
]
QuantumS = Annotated[
    float, typer.Option("--quantum-s", help="A started job runs at least this long, in seconds.", min=1.0)
]
MatchGpuType = Annotated[
    bool, typer.Option("--match-gpu-type", help="Gangs run on machines of the GPU type they were recorded with.")
]
Predictor = Annotated[
    str | None,
    typer.Option(
        "--predictor",
        help="Who predicts: `champion`, `oracle`, `constant`, `none`, or a service, as http://127.0.0.1:8080: it is "
        "asked once, before the run, and has a minute for every 10 000 jobs. Jobs it does not answer about keep their "
        "requests; when it answers about none, the run is refused.",
        show_default="champion; recorded: none where nothing looks at predictions",
    ),
]
Truths = Annotated[
    list[TruthOption] | None,
    typer.Option("--truth", help="What a shrunk job's run becomes (may be repeated).", show_default="all three"),
]
Guards = Annotated[
    list[GuardOption] | None,
    typer.Option("--guard", help="Guards to run (may be repeated).", show_default="usage"),
]
Theta = Annotated[
    float, typer.Option("--theta", help="Largest relative change of the predicted run time.", min=0.0001, max=1.0)
]
Alpha0 = Annotated[
    float | None,
    typer.Option(
        "--alpha0",
        help="Smallest share of a request that is tried.",
        min=0.0,
        max=0.99,
        show_default="0.05; without a guard 0.5",
    ),
]
SureRuns = Annotated[
    int | None,
    typer.Option(
        "--sure-runs",
        help="Measured runs from which an important request shrinks too.",
        min=0,
        show_default="50",
    ),
]
WarmUpH = Annotated[float, typer.Option("--warm-up-h", help="Hours before anything is measured.", min=0.0)]
MtbfH = Annotated[
    float | None, typer.Option("--mtbf-h", help="Mean hours between failures of a machine.", show_default="none fails")
]
MttrH = Annotated[
    float | None, typer.Option("--mttr-h", help="Mean hours until a failed machine is back.", show_default="1")
]
OutageFile = Annotated[
    Path | None,
    typer.Option("--outages", help="CSV file of outages: machine,down_s,up_s.", show_default=False),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", help="New folder for every run's summary, event log and series.", show_default=False),
]
