"""What a replay leaves in a folder: every row with the notes that belong to it, and the charts as HTML and SVG.

Called by `taut experiment replay --out`.
"""

import json
import math
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.errors import BadUsage
from pipelines.studies.replay.charts import delays, gain_kept, tails
from pipelines.studies.replay.experiment import Answer
from pipelines.studies.replay.replay import Outcome
from pipelines.studies.resamples import BLOCK_DAYS

CHARTS: Final = {"gain_kept": gain_kept, "delays": delays, "tails": tails}
"""By the name of the file."""


def write(answer: Answer, folder: Path) -> list[Path]:
    """Write `replay.json` (notes, and rows in full detail) and each chart; return what was written.

    Raises
    ------
    BadUsage
        If the folder is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise BadUsage(f"{folder} is a file; expected a folder for the rows and the charts")
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{name: _finite(value) for name, value in row.items()} for row in answer.rows(detail=True)]
    book = folder / "replay.json"
    book.write_text(json.dumps({"notes": list(answer.notes), "rows": rows}, indent=1) + "\n")
    written = [book]
    frame = pl.DataFrame(rows, infer_schema_length=None)
    for name, draw in CHARTS.items():
        chart = draw(frame, subtitle_of(answer))
        page, picture = folder / f"{name}.html", folder / f"{name}.svg"
        chart.save(page, inline=True)
        chart.save(picture)
        written += [page, picture]
    return written


def subtitle_of(answer: Answer) -> list[str]:
    """Say of which and of how many jobs a chart is."""
    measured = sum(len(each.jct_s) for each in _of_one_run(answer))
    return [
        f"{answer.trace}, {answer.cluster}: {measured} measured jobs, submissions and run times as in the log",
        f"95 % intervals over blocks of {BLOCK_DAYS} days of submission; a panel for each reading of its size",
    ]


def _of_one_run(answer: Answer) -> list[Outcome]:
    first = answer.outcomes[0]
    return [
        each
        for each in answer.outcomes
        if (each.reading.name, each.order, each.sizes) == (first.reading.name, first.order, first.sizes)
    ]


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
