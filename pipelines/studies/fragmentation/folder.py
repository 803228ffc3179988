"""What the experiment leaves in a folder: its rows with their notes, every curve, and the charts.

Called by `taut experiment fgd --out`.
"""

import json
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.report.charts.saving import saved
from pipelines.studies.fragmentation.arms import FGD, PERMUTED, PUBLISHED_POPULARITY, RANDOM_TIES, is_arm
from pipelines.studies.fragmentation.charts_inflation import (
    OURS,
    OURS_BY_NAME,
    PUBLISHED,
    fragmented_over_arrived,
    spread,
    unallocated_over_arrived,
)
from pipelines.studies.fragmentation.experiment import Answer
from pipelines.studies.fragmentation.tables import AT_PCT, by_workload, mean_curves

CURVES: Final = {
    "unallocated_over_arrived": unallocated_over_arrived,
    "fragmented_over_arrived": fragmented_over_arrived,
}
"""By the name of the file."""

DRAWN_DECIMALS: Final = 3
"""Of percents in the pages, which hold all their points."""


def write(answer: Answer, folder: Path) -> list[Path]:
    """Write `rows.json`, `curves.parquet` (one row per run and percent), and each chart as HTML, SVG and PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    book, table = folder / "rows.json", folder / "curves.parquet"
    text = json.dumps({"notes": list(answer.notes), "rows": answer.rows()}, indent=1, ensure_ascii=False)
    book.write_text(text + "\n", encoding="utf-8", newline="\n")
    answer.curves.write_parquet(table)
    workloads = by_workload(answer.workloads)
    curves, said = drawn(answer), subtitle_of(answer)
    written = [book, table]
    for name, draw in CURVES.items():
        written += saved(draw(curves, workloads, said), folder, name)
    return [*written, *saved(spread(spread_rows(answer), workloads, said[:1]), folder, f"spread_at_{AT_PCT}")]


def drawn(answer: Answer) -> pl.DataFrame:
    """Return the curves that are drawn: of the first popularity, tie rule and order, and the published."""
    asked = answer.question
    main = answer.curves.filter(is_arm(asked.popularities[0], asked.ties[0]), nodes=asked.orders[0])
    columns = ("workload", "policy")
    return pl.concat(
        mean_curves(curves, columns).with_columns(pl.col(pl.Float64).round(DRAWN_DECIMALS), source=pl.lit(source))
        for curves, source in (
            (main, OURS),
            (answer.published.filter(pl.col("policy").is_in(main["policy"].unique().to_list())), PUBLISHED),
        )
    )


def spread_rows(answer: Answer) -> pl.DataFrame:
    """Return a row per workload, placement, variant and source: what is unallocated at `AT_PCT`, mean and sd."""
    rows = pl.DataFrame(answer.unallocated, infer_schema_length=None).with_columns(variant=_variant())
    keys = ("workload", "policy", "variant")
    source = pl.when(pl.col("nodes") == PERMUTED).then(pl.lit(OURS)).otherwise(pl.lit(OURS_BY_NAME))
    theirs = rows.filter(pl.col("published_pct").is_not_null()).unique(keys, keep="first", maintain_order=True)
    return pl.concat(
        [
            rows.select(*keys, source=source, mean="unallocated_pct", sd="sd"),
            theirs.select(*keys, source=pl.lit(PUBLISHED), mean="published_pct", sd="published_sd"),
        ],
        how="vertical_relaxed",
    )


def subtitle_of(answer: Answer) -> list[str]:
    """Say of what and of how many runs a chart is."""
    asked = answer.question
    return [
        f"{asked.trace}: means of {asked.seeds} seeds; pods submitted one by one, none departs, what does not fit is "
        "dropped",
        f"{FGD.upper()} aims at specs of {100 * asked.popularities[0]:g} % of the pods; ties: {asked.ties[0]}; "
        f"nodes: {asked.orders[0]}{'' if answer.published.is_empty() else '; dashed: as published with its simulator'}",
    ]


def _variant() -> pl.Expr:
    """Say how an arm differs from the published way."""
    specs = pl.format(
        ", specs of {} % of pods", (100.0 * pl.col("popularity")).round(1).cast(pl.String).str.strip_suffix(".0")
    )
    aims = pl.when(pl.col("popularity") != PUBLISHED_POPULARITY).then(specs)
    ties = pl.when(pl.col("ties") == RANDOM_TIES).then(pl.lit(", random ties"))
    return pl.concat_str(aims.fill_null(""), ties.fill_null(""))
