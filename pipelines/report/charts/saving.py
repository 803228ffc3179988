"""Write a chart to disk as HTML (opens without a network), SVG and PNG.

The charts come from the other modules of this room. Called by the modules that write result folders.
"""

from pathlib import Path
from typing import Final

import altair as alt

__all__ = ["saved"]

PIXELS_PER_UNIT: Final = 2.0


def saved(chart: alt.TopLevelMixin, folder: Path, name: str, *, png: bool = True) -> list[Path]:
    """Write a chart as `name` in HTML, SVG and PNG, without a limit on rows; return the files."""
    page, drawing, picture = (folder / f"{name}.{kind}" for kind in ("html", "svg", "png"))
    with alt.data_transformers.enable("default", max_rows=None):
        chart.save(page, inline=True)
        chart.save(drawing)
        if png:
            chart.save(picture, scale_factor=PIXELS_PER_UNIT)
    return [page, drawing, picture] if png else [page, drawing]
