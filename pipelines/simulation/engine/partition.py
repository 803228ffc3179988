"""How much slower a program runs on a hard part of a GPU (MIG, MPS limits, core limits), by its use of the whole GPU.

Utilisation is the share of time in which a kernel runs, not the part of the GPU that it fills. A step has a part that
does not depend on the size of the GPU, and a part that grows as the GPU shrinks; they add up as squares, because they
overlap. The second part relative to the first, on the whole GPU, is the width of the program.

References
----------
Li et al.: MISO, SoCC 2022: training programs timed on A100 slices of five sizes. The parameters are of seven programs
(98 slices), without deepspeech2, whose steps wait for data (docs/studies/shrinking.md).
"""

import math
from typing import Final

import numpy as np

WIDTH_AT_FULL_USE: Final = 1.83
WIDTH_BY_USE: Final = 2.21
"""Median width is `WIDTH_AT_FULL_USE` times use to the power of `WIDTH_BY_USE`."""

WIDTH_SPREAD: Final = 0.48
"""Standard deviation of the logarithm of width among programs of the same use."""

MEMORY_PART: Final = 0.4
"""Weight of memory bandwidth in what a slice is worth; the rest is its share of the compute."""

SHARE_OF_COMPUTE: Final = (0.0, 1 / 7, 2 / 7, 3 / 7, 4 / 7, 1.0)
SHARE_OF_BANDWIDTH: Final = (0.0, 0.125, 0.25, 0.5, 0.5, 1.0)
"""Compute and memory bandwidth of the slices of an A100; linear between them."""


def width(use: float, spread: float = 0.0) -> float:
    """Return the width of a program by its use of the whole GPU (0 to 1).

    `spread` is its place among programs of this use in standard deviations: 0 for the median.
    """
    return WIDTH_AT_FULL_USE * math.pow(min(use, 1.0), WIDTH_BY_USE) * math.exp(WIDTH_SPREAD * spread)


def slowdown(share: float, wide: float) -> float:
    """Return the run time of a program of this width on a share of a GPU's compute (0 to 1), relative to the whole GPU.

    >>> [round(slowdown(share, width(0.6)), 2) for share in (1.0, 0.7, 0.6)]
    [1.0, 1.14, 1.24]
    >>> [round(slowdown(0.7, width(0.6, spread)), 2) for spread in (-1.28, 1.28)]
    [1.05, 1.28]
    """
    if wide <= 0.0 or share >= 1.0:
        return 1.0
    if share <= 0.0:
        return math.inf
    bandwidth = float(np.interp(share, SHARE_OF_COMPUTE, SHARE_OF_BANDWIDTH))
    worth = (1.0 - MEMORY_PART) * share + MEMORY_PART * bandwidth
    return math.hypot(1.0, wide / worth) / math.hypot(1.0, wide)
