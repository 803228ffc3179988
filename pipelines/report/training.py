"""Charts of a training run: loss by week beside the best baseline, and calibration of the predicted quantiles."""

import altair as alt
import polars as pl

from pipelines.models.evaluate import FitRecord
from pipelines.models.judging import COMBINED
from pipelines.report.panels import BLACK, BLUE, PNG_SCALE, VERMILLION

__all__ = ["picture"]

WIDTH, HEIGHT = 420, 240


def picture(record: FitRecord | None, name: str) -> bytes | None:
    """Return the charts of a record as one PNG; None without judged jobs."""
    if record is None or record.weeks.is_empty() or record.calibration.is_empty():
        return None
    from vl_convert import vegalite_to_png

    heading = alt.TitleParams(name, anchor="start", fontSize=14)
    charts = alt.hconcat(weekly_loss(record.weeks), calibration(record.calibration), spacing=40)
    both = charts.properties(title=heading).resolve_scale(color="independent")
    return vegalite_to_png(both.configure(font="sans-serif", background="white").to_dict(), scale=PNG_SCALE)


def weekly_loss(weeks: pl.DataFrame) -> alt.LayerChart:
    """Draw the pinball loss by week of submission, of the model and of the best other forecast over all weeks."""
    total = (pl.col("pinball") * pl.col("jobs")).sum() / pl.col("jobs").sum()
    others = weeks.filter(pl.col("model") != COMBINED).group_by("model").agg(loss=total).sort("loss", "model")
    names = [COMBINED, *others["model"].head(1)]
    shown = weeks.filter(pl.col("model").is_in(names)).with_columns(pl.col("week").dt.to_string("iso"))
    jobs = weeks.filter(pl.col("model") == COMBINED)["jobs"].sum()
    colour = alt.Color("model:N").title(None).scale(domain=names, range=[BLUE, VERMILLION][: len(names)])
    base = alt.Chart(shown, width=WIDTH, height=HEIGHT).encode(
        x=alt.X("week:O").title("week of submission (first day, UTC)").axis(labelAngle=-45),
        y=alt.Y("pinball:Q").title("pinball loss (ln s)").scale(zero=False),
        color=colour.legend(alt.Legend(orient="bottom")),
    )
    title = alt.TitleParams("Loss by week of submission", subtitle=f"n = {jobs} later jobs; lower is better")
    lines: alt.LayerChart = (base.mark_line() + base.mark_point(filled=True, size=40, opacity=1.0)).properties(
        title=title
    )
    return lines


def calibration(rows: pl.DataFrame) -> alt.LayerChart:
    """Draw the share of jobs at or below their predicted quantile, by predicted run time; rules mark the levels."""
    named = rows.with_columns(quantile=pl.format("p{}", (pl.col("quantile") * 100).round().cast(pl.Int64)))
    names = named["quantile"].unique(maintain_order=True).to_list()
    colour = alt.Color("quantile:N").title(None).scale(domain=names, range=[BLUE, VERMILLION][: len(names)])
    points = alt.Chart(named, width=WIDTH, height=HEIGHT).encode(
        x=alt.X("predicted_s:Q").title("predicted run time (s, log scale)").scale(type="log", nice=False, padding=10),
        y=alt.Y("share:Q").title("share of later jobs at or below").axis(format="%").scale(domain=[0, 1]),
        color=colour.legend(alt.Legend(orient="bottom")),
    )
    levels = alt.Chart(rows.select("quantile").unique()).mark_rule(color=BLACK, strokeDash=[4, 4])
    jobs = rows.filter(pl.col("quantile") == rows["quantile"][0])["jobs"].sum()
    title = alt.TitleParams("Calibration", subtitle=f"n = {jobs} later jobs, in bins of equal size; dashed: the levels")
    drawn: alt.LayerChart = (
        levels.encode(y="quantile:Q") + points.mark_line() + points.mark_point(filled=True, size=40, opacity=1.0)
    ).properties(title=title)
    return drawn
