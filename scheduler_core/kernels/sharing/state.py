"""What the kernels of this folder know: machines device by device, shapes asked for, a target workload, kept scores.

Only the layout is here. Filled by `setup`; read and written by every kernel.
"""

from pathlib import Path
from typing import Final, NamedTuple

from scheduler_core.kernels.kernel import digest
from scheduler_core.types import BoolArray, IntArray

SOURCES: Final = digest(Path(__file__).parent)
"""What compiled code of this folder is kept under, as in `kernel`."""

NONE: Final = -1
"""No machine, no device; the score of a machine that cannot take a shape."""
STALE: Final = -2
"""The score of a machine that changed since it was last looked at."""
WHOLE: Final = 1000
"""Milli-GPUs of a device."""
MOST_DEVICES: Final = 62
"""Devices of one machine that the bits of a number can say."""

FGD: Final = 0
DOT_PRODUCT: Final = 1
BEST_FIT_GPU: Final = 2
GPU_PACKING: Final = 3
GPU_CLUSTERING: Final = 4
RANDOM: Final = 5
FGD_USED_FIRST: Final = 6
FGD_FULLEST_FIRST: Final = 7
FGD_EXACT: Final = 8
FGD_IDLE_LAST: Final = 9


class Nodes(NamedTuple):
    """Machines (n) with what is free on each.

    `devices` (n, most GPUs) are milli-GPUs; `tenants` (n, most GPUs + 1) counts instances with a part of a device in
    column 0, with k whole ones in column k; `kind` is the code of the GPU type.
    """

    cpu: IntArray
    mem: IntArray
    devices: IntArray
    tenants: IntArray
    kind: IntArray
    up: BoolArray
    most_cpu: float  # of the largest machine, at least 1
    most_gpu: float


class Shapes(NamedTuple):
    """What an instance takes, by shape (s): `gpus` devices with `milli` free on each, on kinds that are `open`."""

    cpu: IntArray
    mem: IntArray
    gpus: IntArray
    milli: IntArray
    open: BoolArray  # (s, kinds)


class Goal(NamedTuple):
    """A target workload by GPU type of machine: of those of its shapes that ask for GPUs, the ones allowed there.

    The entries of kind t and of the j-th of the distinct `levels` of milli-GPUs are first[t, j] .. first[t, j + 1];
    `pods` weighs each by how many pods have that shape, and `total` is how many there are, CPU-only ones included.
    """

    levels: IntArray
    first: IntArray  # (kinds, levels + 1)
    cpu: IntArray
    gpus: IntArray
    pods: IntArray
    total: int


class Kept(NamedTuple):
    """Scores by shape and machine (s, n) with the devices to take there, as bits; fragmentation by machine (n)."""

    score: IntArray
    taken: IntArray
    fragmented: IntArray  # times the target's pods
