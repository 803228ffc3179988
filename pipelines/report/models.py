"""The report's section on models: accuracy by their cards, and feature importances."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import altair as alt
import polars as pl

from pipelines.report.panels import BLACK, BLUE, names, panel, spaced, tall
from pipelines.report.parts import Figure, Note, Part, Section, Table, Traces

if TYPE_CHECKING:
    from modelserve.bundle.bundle import Bundle

Bundles = Mapping[str, "Bundle"]

SHOWN_FEATURES: Final = 10
_RUNTIME: Final = ("n", "pinball", "pinball_lo", "pinball_hi", "mae_h", "wmape", "within_2x", "coverage_p90")
_USAGE: Final = ("coverage", "pinball", "over")
_LOSS: Final = {"runtime": "pinball, ln s", "usage": "pinball, log1p"}


def models(traces: Traces, bundles: Bundles, problems: tuple[str, ...]) -> Section:
    """Build the section: model cards and importances of the models of these traces."""
    own = {name: each for name, each in sorted(bundles.items()) if each.card.trace in traces.names}
    notes: list[Part] = [Note(text=f"{name}: no model of this trace.") for name in _without(own, traces)]
    notes += [Note(text=f"Left out: {problem}") for problem in problems]
    parts = [*_tables(own), *_importances(own)]
    return Section(
        name="models",
        title="Models",
        intro="Accuracy is from each model's card: on jobs submitted after its training cut.",
        parts=(*parts, *notes),
    )


def _without(own: Bundles, traces: Traces) -> list[str]:
    modelled = {each.card.trace for each in own.values()}
    return [name for name in traces.names if name not in modelled]


def _tables(own: Bundles) -> list[Part]:
    run = [
        {"model": each.reference, "trained_on_jobs": each.card.rows, "until": f"{each.card.until:%Y-%m-%d}"}
        | {name: each.card.metrics.get(name) for name in _RUNTIME}
        for each in own.values()
        if each.card.kind == "runtime"
    ]
    use = [
        {"model": each.reference, "target": target, "trained_on_jobs": each.card.rows, "level": each.card.quantiles[0]}
        | {name: each.card.metrics.get(f"{target}_{name}") for name in _USAGE}
        for each in own.values()
        if each.card.kind == "usage"
        for target in each.card.targets
    ]
    tables: list[Part] = []
    if run:
        said = (
            "n: judged later jobs; pinball of ln s at p50 and p90 with its interval; mae_h in hours; wmape, "
            "within_2x and coverage_p90 (target: 0.9) are shares"
        )
        tables.append(Table(name="runtime-models", title="Models of run time", rows=_frame(run), said=said))
    responses = [
        {"model": each.reference, **response.model_dump(exclude={"importances"})}
        | {"matter": " ".join(one.resource for one in response.importances if (one.mean or 0.0) > 2 * (one.std or 0.0))}
        for each in own.values()
        if (response := each.card.response) is not None
    ]
    if responses:
        said = (
            "lead: share of a constant's squared error of log run time that the resources remove, on jobs forecast "
            "without their group, with its interval; trusted if all of it is above 0; matter: mean importance above 2 "
            "standard deviations"
        )
        title = "Models of how run time responds to resources"
        tables.append(Table(name="response-models", title=title, rows=_frame(responses), said=said))
    if use:
        said = (
            "coverage: share of later jobs with use at or below the prediction (target: level); "
            "over: predictions over uses, the cost of coverage; pinball of log1p use"
        )
        tables.append(Table(name="usage-models", title="Models of peak use", rows=_frame(use), said=said))
    return tables


def _importances(own: Bundles) -> list[Part]:
    figures: list[Part] = []
    for name, each in own.items():
        known = [importance.model_dump() for importance in each.importances if importance.mean]
        if known:
            rows = _frame(known[:SHOWN_FEATURES])
            chart = importances(_in_words(rows), name, _LOSS[each.card.kind], _held_out(each))
            figures.append(Figure(name=f"importance-{name}", chart=chart, rows=rows))
        elif each.card.no_importances:
            figures.append(Note(text=f"{name}: no importances, because {each.card.no_importances}."))
    return figures


def _held_out(bundle: "Bundle") -> str:
    """Describe the rows on which importance was measured; cards of usage models do not state their number."""
    judged = bundle.card.metrics.get("n")
    if bundle.card.kind == "runtime" and judged:
        return f"{spaced(judged)} later jobs"
    return "held-out rows, not counted by the card"


def importances(rows: pl.DataFrame, model: str, unit: str, held_out: str) -> alt.TopLevelMixin:
    """Draw how much the loss grows on average when a feature is shuffled, with one standard deviation over repeats.

    `held_out` describes the held-out rows and their number.
    """
    shown = rows.select("feature", "mean", low=pl.col("mean") - pl.col("std"), high=pl.col("mean") + pl.col("std"))
    base = alt.Chart(shown).encode(y=names("feature", shown).axis(labelFontSize=10, labelLimit=240, grid=True))
    bars = base.mark_bar(color=BLUE, height={"band": 0.7}).encode(
        x=alt.X("mean:Q").title(f"loss growth ({unit})").axis(tickCount=4, titleAnchor="end", titleAlign="right"),
        tooltip=["feature:N", alt.Tooltip("mean:Q", format=".3~g")],
    )
    spread = base.mark_rule(color=BLACK).encode(x="low:Q", x2="high:Q")
    of = [f"n = {rows['repeats'][0]} shuffles of {held_out}; line: one standard deviation"]
    return panel(bars + spread, f"Importance, {model}", of, height=tall(rows, 18))


def _in_words(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.col("feature").map_elements(readable, return_dtype=pl.String))


def _frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(rows, infer_schema_length=None)


_KEYS: Final = {
    "vc_gpus": "same VC and GPUs",
    "user": "user",
    "group": "group",
    "vc": "virtual cluster",
    "gpus": "same GPU count",
    "like": "similar jobs",
    "all": "all jobs",
}
_OWN: Final = {
    "req_cpu_cores": "CPU cores requested",
    "req_mem_gib": "memory requested (GiB)",
    "req_gpus": "GPUs requested",
    "instances": "number of instances",
    "total_gpus": "GPUs of all instances",
    "total_cpu_cores": "CPU cores of all instances",
    "total_mem_gib": "memory of all instances",
    "cpu_cores_per_gpu": "CPU cores per GPU",
    "mem_gib_per_gpu": "memory per GPU",
    "mem_gib_per_cpu_core": "memory per CPU core",
    "gpu_type": "GPU type",
    "vc": "virtual cluster",
    "task_type": "task type",
}
_PATTERNS: Final = (
    (r"run_s_last(\d+)", r"run time, \1 jobs ago"),
    (r"(.+)_last(\d+)", r"\1, \2 jobs ago"),
    (r"(.+)_count_(\d+)", r"known \1, last \2"),
    (r"(.+)_(p\d+|max|mean|std|frac)_(\d+)", r"\2 \1, last \3"),
    (r"newest(\d+)_so_far_s", r"run time so far of job \1 before"),
    (r"newest(\d+)_ended", r"whether job \1 before has ended"),
    (r"newest(\d+)_since_s", r"time since job \1 before"),
    (r"newest_run_s_km(\d+)_(\d+)", r"p\1 run time, newest \2"),
    (r"burst(\d+)_(.+)", r"jobs within \1 s: \2"),
)
_WORDS: Final = (
    ("log_run", "log run time"),
    ("run_s", "run time"),
    ("p50", "median"),
    ("short", "share of short jobs"),
    ("failed", "share of failed jobs"),
    ("used_cpu_cores", "CPU use"),
    ("used_gpus", "GPU use"),
    ("gpu_mem_max_gib", "GPU memory peak"),
    ("mem_max_gib", "memory peak"),
)


def readable(feature: str) -> str:
    """Return a feature's name in words; names without a rule keep their words, without underscores.

    >>> readable("user_run_s_p50_20"), readable("req_gpus"), readable("like_running_jobs")
    ('user: median run time, last 20', 'GPUs requested', 'similar jobs: running jobs')
    >>> readable("group_failed_mean_20"), readable("user_run_s_last1")
    ('group: mean share of failed jobs, last 20', 'user: run time, 1 jobs ago')
    """
    if feature in _OWN:
        return _OWN[feature]
    key = next((key for key in _KEYS if feature.startswith(f"{key}_")), None)
    rest = feature if key is None else feature.removeprefix(f"{key}_")
    for pattern, text in _PATTERNS:
        if re.fullmatch(pattern, rest):
            rest = re.sub(pattern, text, rest)
            break
    for name, words in _WORDS:
        rest = rest.replace(name, words)
    rest = rest.replace("_", " ")
    return rest if key is None else f"{_KEYS[key]}: {rest}"
