"""What a replay leaves in a folder: every row with the notes that belong to it, and the charts as HTML, SVG and PNG.

Called by `taut experiment replay --out`.
"""

import json
import math
from pathlib import Path
from typing import Final

import polars as pl

from pipelines.errors import BadUsage
from pipelines.replay.charts import delays, gain_kept, tails
from pipelines.replay.experiment import Answer

CHARTS: Final = {"gain_kept": gain_kept, "delays": delays, "tails": tails}
"""By the name of the file."""

PIXELS_PER_UNIT: Final = 2.0


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
        chart = draw(frame)
        page, drawing, picture = (folder / f"{name}.{kind}" for kind in ("html", "svg", "png"))
        chart.save(page, inline=True)
        chart.save(drawing)
        chart.save(picture, scale_factor=PIXELS_PER_UNIT)
        written += [page, drawing, picture]
    return written


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
