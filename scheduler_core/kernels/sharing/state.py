"""Records of placement by device (machines, shapes, target workload, cached scores), and how to make them.

Nothing is placed here. Used by every kernel of this folder, by `sharing_placements` and by the fragmentation study.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from scheduler_core.devices import no_tenants, shape
from scheduler_core.errors import BadInput
from scheduler_core.fragmentation import allows
from scheduler_core.kernels.kernel import digest
from scheduler_core.target import TargetWorkload
from scheduler_core.types import BoolArray, FloatArray, IntArray

__all__ = ["draws_of", "goal_of", "kept_of", "kinds_of", "nodes_of", "policy_code", "shapes_of"]

SOURCES: Final = digest(Path(__file__).parent)
"""Digest of the sources of this folder, part of the cache key of compiled code (`kernels.kernel`)."""

NONE: Final = -1
"""No machine, no device; the score of a machine that cannot take a shape."""
STALE: Final = -2
"""The score of a machine that changed since it was last scored."""
WHOLE: Final = 1000
"""Milli-GPUs of a device."""
MOST_DEVICES: Final = 62
"""Most devices of one machine: they are stored as bits of an integer."""

FGD: Final = 0
DOT_PRODUCT: Final = 1
BEST_FIT_GPU: Final = 2
GPU_PACKING: Final = 3
GPU_CLUSTERING: Final = 4
RANDOM: Final = 5
FGD_USED_FIRST: Final = 6


class Nodes(NamedTuple):
    """Free capacity of machines (n).

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
    """Demand of an instance by shape (s): `gpus` devices with `milli` free on each, on machine kinds in `open`."""

    cpu: IntArray
    mem: IntArray
    gpus: IntArray
    milli: IntArray
    open: BoolArray  # (s, kinds)


class Goal(NamedTuple):
    """A target workload by GPU type of machine: its shapes with GPUs that are allowed there.

    The entries of kind t and of the j-th of the distinct `levels` of milli-GPUs are first[t, j] .. first[t, j + 1];
    `pods` counts the pods of each shape, and `total` all pods, including those without GPUs.
    """

    levels: IntArray
    first: IntArray  # (kinds, levels + 1)
    cpu: IntArray
    gpus: IntArray
    pods: IntArray
    total: int


class Kept(NamedTuple):
    """Cached scores by shape and machine (s, n) with the devices to take, as bits; fragmentation by machine (n)."""

    score: IntArray
    taken: IntArray
    fragmented: IntArray  # times the target's pods


Kinds = tuple[str | None, ...]
"""Distinct GPU types of machines; a machine's kind is its index here."""

POLICY_CODES: Final[dict[str, int]] = {
    "best_fit_gpu": BEST_FIT_GPU,
    "dot_product": DOT_PRODUCT,
    "fgd": FGD,
    "fgd_used_first": FGD_USED_FIRST,
    "gpu_clustering": GPU_CLUSTERING,
    "gpu_packing": GPU_PACKING,
    "random": RANDOM,
}


def policy_code(policy: str) -> int:
    """Return a placement's code.

    Raises
    ------
    BadInput
        If no device placement has that name.
    """
    if policy not in POLICY_CODES:
        raise BadInput(f"device placement: found {policy!r}, expected one of {', '.join(sorted(POLICY_CODES))}")
    return POLICY_CODES[policy]


def kinds_of(gpu_types: Sequence[str | None]) -> tuple[Kinds, IntArray]:
    """Return the distinct GPU types of machines, and each machine's index among them."""
    kinds = tuple(dict.fromkeys(gpu_types))
    place = {kind: at for at, kind in enumerate(kinds)}
    return kinds, np.array([place[kind] for kind in gpu_types], dtype=np.int64)


def open_kinds(requested: str | None, kinds: Kinds) -> BoolArray:
    """Return which kinds a requested GPU type allows (kinds,)."""
    return np.array([allows(requested, kind) for kind in kinds], dtype=np.bool_)


def nodes_of(
    free: IntArray,
    devices: IntArray,
    kind: IntArray,
    up: BoolArray,
    largest: IntArray,
) -> Nodes:
    """Copy the free capacity of machines, units (n, 3) and devices (n, most GPUs), without tenants.

    Raises
    ------
    BadInput
        If a machine has more devices than the kernels can count.
    """
    if devices.shape[1] > MOST_DEVICES:
        raise BadInput(f"machines: found one of {devices.shape[1]} GPUs, expected at most {MOST_DEVICES}")
    return Nodes(
        cpu=np.array(free[:, 0], dtype=np.int64),
        mem=np.array(free[:, 1], dtype=np.int64),
        devices=np.array(devices, dtype=np.int64, order="C"),
        tenants=no_tenants(devices),
        kind=np.array(kind, dtype=np.int64),
        up=np.array(up, dtype=np.bool_),
        most_cpu=float(largest[0]),
        most_gpu=float(largest[2]),
    )


def shapes_of(units: IntArray, gpu_types: Sequence[str | None], kinds: Kinds) -> Shapes:
    """Make shapes of demands: units (s, 3) and GPU types (s)."""
    devices = np.array([shape(milli) for milli in units[:, 2].tolist()], dtype=np.int64).reshape(-1, 2)
    return Shapes(
        cpu=units[:, 0].copy(),
        mem=units[:, 1].copy(),
        gpus=devices[:, 0].copy(),
        milli=devices[:, 1].copy(),
        open=np.array([open_kinds(requested, kinds) for requested in gpu_types], dtype=np.bool_).reshape(
            -1, len(kinds)
        ),
    )


def goal_of(target: TargetWorkload, kinds: Kinds) -> Goal:
    """Group a target's GPU shapes by the kinds that they allow and the milli-GPUs they need of a device."""
    levels = np.unique(target.milli[target.count > 0])
    first = np.zeros((len(kinds), len(levels) + 1), dtype=np.int64)
    rows: list[int] = []
    allowed = np.array([open_kinds(requested, kinds) for requested in target.gpu_type], dtype=np.bool_)
    for kind in range(len(kinds)):
        for at, level in enumerate(levels.tolist()):
            first[kind, at] = len(rows)
            here = (target.count > 0) & (target.milli == level) & allowed[:, kind]
            rows += np.flatnonzero(here).tolist()
        first[kind, -1] = len(rows)
    entries = np.array(rows, dtype=np.int64)
    return Goal(
        levels=levels,
        first=first,
        cpu=target.cpu_milli[entries],
        gpus=target.count[entries],
        pods=target.pods[entries],
        total=target.total,
    )


def kept_of(shapes: int, machines: int) -> Kept:
    """Make an empty cache."""
    return Kept(
        score=np.full((shapes, machines), STALE, dtype=np.int64),
        taken=np.zeros((shapes, machines), dtype=np.int64),
        fragmented=np.zeros(machines, dtype=np.int64),
    )


def draws_of(rng: np.random.Generator, rows: int, drawing: bool) -> FloatArray:
    """Draw two random numbers per row, for ties and for devices; zeros without drawing."""
    return rng.random((rows, 2)) if drawing else np.zeros((rows, 2))
