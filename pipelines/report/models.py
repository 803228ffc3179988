"""The section on models: what they are, how they were judged, which features matter and what each added to answers.

Figures of judgement are the cards'; only SHAP values are computed here. Called by `pipelines.report.report`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import polars as pl

from features.history import History
from pipelines.report.attribution import attributions
from pipelines.report.charts.attributions import beeswarm, coverage, importances
from pipelines.report.charts.panels import spaced
from pipelines.report.parts import Figure, Note, Part, Section, Table, Traces

if TYPE_CHECKING:
    from modelserve.bundle.bundle import Bundle

Bundles = Mapping[str, "Bundle"]

SHOWN_FEATURES: Final = 10
_P90: Final = 0.9
_RUNTIME: Final = ("n", "pinball", "pinball_lo", "pinball_hi", "mae_h", "wmape", "within_2x", "coverage_p90")
_USAGE: Final = ("coverage", "pinball", "over")
_LOSS: Final = {"runtime": "pinball, ln s", "usage": "pinball, log1p"}
_SHAP_UNIT: Final = {"runtime": "ln of run time in s", "usage": "log1p of use"}


def models(traces: Traces, bundles: Bundles, problems: tuple[str, ...]) -> Section:
    """Return the cards of the models of these traces, their coverage, importances and SHAP values by kind."""
    own = {name: each for name, each in sorted(bundles.items()) if each.card.trace in traces.names}
    notes: list[Part] = [Note(text=f"{name}: no model of this trace.") for name in _without(own, traces)]
    notes += [Note(text=f"Left out: {problem}") for problem in problems]
    parts = [*_tables(own), *_coverages(own), *_importances(own), *_swarms(own, traces)] if own else []
    return Section(
        name="models",
        title="Models",
        intro="Accuracy is that of each model's card: on jobs submitted after the cut it was trained up to. Importance "
        "has no direction; SHAP values say which way a feature moved single answers, not what would cause what.",
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
            "n: later jobs judged on; pinball of ln s at p50 and p90 with its interval; mae_h in hours; wmape, "
            "within_2x and coverage_p90 (wanted: 0.9) are shares"
        )
        tables.append(Table(name="runtime-models", title="Models of run time", rows=_frame(run), said=said))
    if use:
        said = (
            "coverage: share of later jobs whose use was at most the answer (wanted: level); "
            "over: answers over uses, the price of coverage; pinball of log1p use"
        )
        tables.append(Table(name="usage-models", title="Models of peak use", rows=_frame(use), said=said))
    return tables


def _coverages(own: Bundles) -> list[Part]:
    wanted: dict[str, list[tuple[str, float, float]]] = {"runtime": [], "usage": []}
    for each in own.values():
        card = each.card
        columns = (
            {"": ("coverage_p90", _P90)}
            if card.kind == "runtime"
            else {f", {target}": (f"{target}_coverage", card.quantiles[0]) for target in card.targets}
        )
        for label, (column, level) in columns.items():
            found = card.metrics.get(column)
            if found is not None:
                jobs = "" if card.metrics.get("n") is None else f"  n={card.metrics['n']:.0f}"
                wanted[card.kind].append((f"{card.trace} {card.task_type}{label}{jobs}", found, level))
    titles = {"runtime": "Run times at most the p90 said", "usage": "Use at most the bound said"}
    figures: list[Part] = []
    for kind, rows in wanted.items():
        if rows:
            frame = pl.DataFrame(rows, schema=["model", "coverage", "level"], orient="row")
            figures.append(Figure(name=f"coverage-{kind}", chart=coverage(frame, titles[kind]), rows=frame))
    return figures


def _importances(own: Bundles) -> list[Part]:
    figures: list[Part] = []
    for name, each in own.items():
        known = [importance.model_dump() for importance in each.importances if importance.mean]
        if known:
            rows = _frame(known[:SHOWN_FEATURES])
            chart = importances(rows, name, _LOSS[each.card.kind], _held_out(each))
            figures.append(Figure(name=f"importance-{name}", chart=chart, rows=rows))
    return figures


def _held_out(bundle: "Bundle") -> str:
    """Say on which rows features were shuffled; cards of peak use do not count theirs."""
    judged = bundle.card.metrics.get("n")
    if bundle.card.kind == "runtime" and judged:
        return f"{spaced(judged)} later jobs"
    return "held-out rows, not counted by the card"


def _swarms(own: Bundles, traces: Traces) -> list[Part]:
    figures: list[Part] = []
    for trace in dict.fromkeys(each.card.trace for each in own.values()):
        jobs, usage = (traces.lake.table(table, trace).collect() for table in ("jobs", "usage"))
        history = History.of(jobs, usage if usage.height else None)
        for name, each in own.items():
            if each.card.trace != trace:
                continue
            for found in attributions(each, jobs, history):
                of = f"{found.jobs} later jobs" if found.later else f"{found.jobs} jobs that were learnt from"
                target = "" if each.card.kind == "runtime" else f", {found.target}"
                title = f"SHAP values, {name}{target}"
                chart = beeswarm(found.rows, title, _SHAP_UNIT[each.card.kind], of)
                figures.append(Figure(name=f"shap-{name}-{found.target}", chart=chart, rows=found.rows))
    return figures


def _frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    return pl.DataFrame(rows, infer_schema_length=None)
