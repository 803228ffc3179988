"""Frames in the published order of columns.

No numbers are made here. Called by `tables` and `machines`.
"""

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from pipelines.synth.published import COLUMNS


def published_frame(table: str, **columns: pa.Array | npt.NDArray[np.generic]) -> pl.DataFrame:
    """Build a frame in the published column order: NaN and "" become null."""
    series = []
    for name in COLUMNS[table]:
        values = columns[name]
        if isinstance(values, pa.Array):
            made = pl.Series(name, values)
        elif values.dtype.kind == "U":
            kinds, codes = np.unique(values, return_inverse=True)
            made = pl.Series(name, [k or None for k in kinds.tolist()], dtype=pl.String).gather(pl.Series(codes))
        else:
            made = pl.Series(name, values)
            made = made.fill_nan(None) if made.dtype == pl.Float64 else made
        series.append(made)
    return pl.DataFrame(series)
