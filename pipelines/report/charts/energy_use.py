"""Charts of energy: parts of the kWh, power grid by hour, machine types, idle GPUs, savings from delaying jobs.

The rows come from `pipelines.studies.energy` and `pipelines.report.energy`, which call this module.
"""

from typing import Final

import altair as alt
import polars as pl

from pipelines.report.charts.looks import BLUE, GREEN, ORANGE, VERMILLION, titled
from pipelines.report.charts.panels import FAINT, THOUSANDS, counted, panel, spaced, total

__all__ = ["parts_of_energy", "saved_over_delay"]

PARTS: Final = {
    "work_pct": ("work, above idle", GREEN),
    "idle_of_used_pct": ("idle draw, held and used", BLUE),
    "idle_of_unused_gpus_pct": ("idle draw, GPUs held and not used", VERMILLION),
    "idle_unheld_pct": ("idle draw, not held, machine in use", ORANGE),
    "idle_empty_pct": ("idle draw, machine empty", FAINT),
}
"""Name and colour of each column with percentages, in the order of the bars."""

SHIFTS: Final = {"recent_days": "by forecast", "clairvoyant": "with hindsight"}

USES: Final = {
    "measured": ("measured, GPUs", BLUE),
    "idle": ("idle draw, modelled", FAINT),
    "busy": ("above idle, modelled", GREEN),
}


def parts_of_energy(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw the share of each part in the kWh of each replay and arm, for machines that are always on."""
    names = [name for name, _ in PARTS.values()]
    shown = rows.unpivot(list(PARTS), index=["trace", "scene", "arm", "n", "energy_kwh"], value_name="share").select(
        "n",
        "energy_kwh",
        line=pl.concat_str("trace", "scene", "arm", separator=", "),
        part=pl.col("variable").replace_strict({column: name for column, (name, _) in PARTS.items()}),
        share=pl.col("share") / 100.0,
        rank=pl.col("variable").replace_strict(
            {column: rank for rank, column in enumerate(PARTS)}, return_dtype=pl.Int64
        ),
    )
    colours = [colour for _, colour in PARTS.values()]
    seeds = rows.group_by("trace", maintain_order=True).agg(pl.col("n").max())
    chart = (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            x=alt.X("share:Q").title("share of kWh").axis(format="%").scale(domain=[0, 1]),
            y=alt.Y("line:N")
            .title(None)
            .sort(shown["line"].unique(maintain_order=True).to_list())
            .axis(labelLimit=260),
            color=alt.Color("part:N").title(None).scale(domain=names, range=colours).legend(orient="bottom", columns=2),
            order="rank:Q",
            tooltip=["line:N", "part:N", alt.Tooltip("share:Q", format=".1%"), "energy_kwh:Q", "n:Q"],
        )
        .properties(width=460, height=28 * rows.height)
    )
    return titled(
        alt.vconcat(chart), "Parts of the energy", [f"machines always on; {counted(seeds.iter_rows(), 'runs')}"]
    )


def grid_hours(rows: pl.DataFrame, series: str, unit: str, zone: str) -> alt.TopLevelMixin:
    """Draw a series of a power grid by hour of the day (UTC): mean (line) and quartiles over days (band)."""
    base = alt.Chart(rows).encode(x=alt.X("hour:Q").title("hour of the day, UTC").scale(domain=[0, 23], nice=False))
    tips = ["hour:Q", *(alt.Tooltip(f"{name}:Q", format=",.4~g") for name in ("p25", "mean", "p75")), "hours:Q"]
    band = base.mark_area(color=BLUE, opacity=0.25).encode(y=alt.Y("p25:Q").title(unit).scale(zero=False), y2="p75:Q")
    line = base.mark_line(color=BLUE, point=True).encode(y="mean:Q", tooltip=tips)
    of = [f"n = {total(rows, 'hours')} hours; line: mean, band: 25 to 75 % of the days"]
    return panel(band + line, f"{series} by hour, {zone}", of)


def by_machine(rows: pl.DataFrame, trace: str) -> alt.TopLevelMixin:
    """Draw the kWh of each machine type: measured, modelled idle, and modelled above idle."""
    shown = rows.unpivot(
        [f"{name}_kwh" for name in USES], index=["machine_type", "machines"], value_name="kwh"
    ).with_columns(
        part=pl.col("variable")
        .str.strip_suffix("_kwh")
        .replace_strict({name: said for name, (said, _) in USES.items()}),
        kind=pl.concat_str("machine_type", pl.lit("  n="), pl.col("machines").cast(pl.String)),
    )
    domain, colours = zip(*USES.values(), strict=True)
    chart = (
        alt.Chart(shown)
        .mark_bar()
        .encode(
            y=alt.Y("kind:N").title(None).sort(shown["kind"].unique(maintain_order=True).to_list()),
            x=alt.X("kwh:Q").title("kWh").axis(labelExpr=THOUSANDS),
            color=alt.Color("part:N").title(None).scale(domain=list(domain), range=list(colours)),
            order=alt.Order("part:N", sort="descending"),
            tooltip=["kind:N", "part:N", alt.Tooltip("kwh:Q", format=",.0f")],
        )
    )
    of = [f"n = {total(rows, 'machine_hours')} machine-hours with GPU samples (at the label: machines)"]
    return panel(chart, f"Energy by type of machine, {trace}", of, height=max(70, 26 * rows.height))


def idle_gpus(rows: pl.DataFrame, trace: str) -> alt.TopLevelMixin:
    """Draw the idle energy of requested but unused GPUs by task type."""
    chart = (
        alt.Chart(rows)
        .mark_bar(color=VERMILLION)
        .encode(
            y=alt.Y("task_type:N").title(None).sort(rows["task_type"].to_list()),
            x=alt.X("idle_kwh:Q").title("kWh").axis(labelExpr=THOUSANDS),
            tooltip=["task_type:N", alt.Tooltip("slack_h:Q", format=",.0f"), alt.Tooltip("idle_kwh:Q", format=",.1f")],
        )
    )
    of = [
        f"n = {total(rows, 'tasks')} measured tasks, {spaced(float(rows['slack_h'].sum()))} GPU-hours requested "
        "but not used, at idle power"
    ]
    return panel(chart, f"Idle draw of GPUs not used, {trace}", of, height=max(70, 24 * rows.height))


def saved_over_delay(rows: pl.DataFrame) -> alt.TopLevelMixin:
    """Draw the saving from delaying jobs (y) by how much later jobs complete (x), one point for each allowed delay."""
    column = pl.col("shift_by").replace_strict({"carbon": "carbon", "price": "cost"})
    shown = rows.filter(pl.col("shift").is_in(list(SHIFTS))).select(
        "slack_h",
        "jct_later_h",
        place=pl.concat_str("zone", pl.lit(", by "), "shift_by"),
        shift=pl.col("shift").replace_strict(SHIFTS),
        **{
            name: pl.when(column == "carbon").then(f"carbon_saved_pct{end}").otherwise(f"cost_saved_pct{end}")
            for name, end in (("saved", ""), ("low", "_lo"), ("high", "_hi"))
        },
    )
    base = alt.Chart(shown).encode(
        x=alt.X("jct_later_h:Q").title("mean completion later, h"),
        color=alt.Color("shift:N").title(None).scale(domain=list(SHIFTS.values()), range=[BLUE, ORANGE]),
    )
    tips = ["slack_h:Q", "jct_later_h:Q", "saved:Q", "low:Q", "high:Q"]
    points = base.mark_line(point=True).encode(y=alt.Y("saved:Q").title("saved, %"), tooltip=tips)
    ends = base.mark_rule().encode(y="low:Q", y2="high:Q")
    panels = (points + ends).properties(width=240, height=170).facet(alt.Facet("place:N").title(None), columns=2)
    slacks = ", ".join(f"{each:g}" for each in sorted(shown["slack_h"].unique().to_list()))
    of = [f"n = {spaced(float(rows['jobs'][0]))} jobs; points: slack of {slacks} h; lines: 95 %, weeks resampled"]
    return titled(panels, "Savings in carbon or cost from delaying jobs", of)
