"""A tour of `import taut`: open it with `marimo edit docs/tour.py` after `make demo`."""

import marimo

app = marimo.App(app_title="A tour of taut")


@app.cell
def _():
    import os

    import altair as alt
    import marimo as mo
    import polars as pl

    import taut

    return alt, mo, os, pl, taut


@app.cell
def _(mo):
    mo.md("""
    # A tour of taut

    `make demo` has filled a lake with a synthetic trace: 20 000 jobs, drawn from published statistics, so the figures
    below say nothing about a real cluster. `TAUT_LAKE` names another lake.
    """)
    return


@app.cell
def _(os, taut):
    lake = taut.open(os.environ.get("TAUT_LAKE", "data/demo/lake"))
    jobs = lake.jobs()
    jobs.head(5)
    return jobs, lake


@app.cell
def _(mo):
    mo.md("""
    ## How long do jobs wait and run?

    Every table is a Polars frame, and `lake.sql` takes any SELECT.
    """)
    return


@app.cell
def _(lake):
    waits = lake.sql(
        "SELECT task_type, count(*) AS jobs, median(queue_s) AS queue_s, median(run_s) AS run_s "
        "FROM jobs WHERE end_ts IS NOT NULL GROUP BY 1 ORDER BY 2 DESC"
    )
    waits
    return (waits,)


@app.cell
def _(mo):
    mo.md("""
    ## Who requests too much?

    One row per recurring group: what it requests, what it used at most, and what a next run should ask for.
    """)
    return


@app.cell
def _(lake):
    worst = lake.rightsize().head(10)
    worst
    return (worst,)


@app.cell
def _(alt, jobs, lake, pl):
    used = lake.usage().join(jobs, on=["cluster", "job_id", "role"]).filter(pl.col("req_cpu_cores") > 0)
    used_frac = (pl.col("used_cpu_cores") / pl.col("req_cpu_cores")).clip(upper_bound=2.0)
    shares = used.select("task_type", used_frac=used_frac)
    chart = (
        alt.Chart(shares.sample(min(2000, shares.height), seed=0))
        .mark_bar()
        .encode(
            alt.X("used_frac", bin=alt.Bin(step=0.1), title="CPU used over CPU requested (at most 2)"),
            alt.Y("count()", title="jobs"),
        )
    )
    chart
    return chart, shares


@app.cell
def _(mo):
    mo.md("""
    ## Next

    `lake.train()` trains models and registers them; `taut serve` answers over HTTP, and `taut.Client(url)` asks it.
    """)
    return


if __name__ == "__main__":
    app.run()
