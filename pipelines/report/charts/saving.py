"""Write a chart to disk as HTML (opens without a network), SVG and PNG.

The other modules of this folder make the charts.
"""

from pathlib import Path
from typing import Final

import altair as alt

__all__ = ["saved"]

PIXELS_PER_UNIT: Final = 2.0


def saved(chart: alt.TopLevelMixin, folder: Path, name: str, *, png: bool = True) -> list[Path]:
    """Write a chart as HTML, SVG and PNG files called `name`, with any number of rows; return the files."""
    page, drawing, picture = (folder / f"{name}.{kind}" for kind in ("html", "svg", "png"))
    with alt.data_transformers.enable("default", max_rows=None):
        chart.save(page, inline=True)
        chart.save(drawing)
        if png:
            chart.save(picture, scale_factor=PIXELS_PER_UNIT)
    return [page, drawing, picture] if png else [page, drawing]
