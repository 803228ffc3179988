"""Arrays for placement by device: machines, shapes of demands, target workload and cached scores.

Used by every kernel of this folder, by `sharing_placements` and by the fragmentation study.
"""

from collections.abc import Mapping, Sequence
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
"""Digest of the sources in this folder, part of the cache key of compiled code (see `kernels.kernel.SOURCES`)."""

NONE: Final = -1
"""Code for no machine or no device; also the score of a machine that cannot host a shape."""
STALE: Final = -2
"""Cached score of a machine that changed since the score was computed."""
WHOLE: Final = 1000
"""Milli-GPUs of one device."""
MOST_DEVICES: Final = 62
"""Maximum number of devices per machine, since sets of devices are bits of a 64-bit integer."""

FGD: Final = 0
DOT_PRODUCT: Final = 1
BEST_FIT_GPU: Final = 2
GPU_PACKING: Final = 3
GPU_CLUSTERING: Final = 4
RANDOM: Final = 5
FGD_USED_FIRST: Final = 6


class Nodes(NamedTuple):
    """Free capacity of n machines.

    `cpu` (n,) and `mem` (n,) are free milli-cores and MiB; `devices` (n, most GPUs) holds the free milli-GPUs of each
    device. `tenants` (n, most GPUs + 1) counts instances by GPU size: column 0 counts those with a part of a device,
    column k those with k whole devices. `kind` (n,) is the machine's GPU type, as an index of `Kinds`.
    """

    cpu: IntArray
    mem: IntArray
    devices: IntArray
    tenants: IntArray
    kind: IntArray
    up: BoolArray
    most_cpu: float  # milli-cores of the largest machine, at least 1
    most_gpu: float  # milli-GPUs of the largest machine, at least 1


class Shapes(NamedTuple):
    """Demands of one instance, by shape (s shapes).

    An instance takes `milli` milli-GPUs of each of `gpus` devices, on a machine of a kind marked in `open`.
    """

    cpu: IntArray
    mem: IntArray
    gpus: IntArray
    milli: IntArray
    open: BoolArray  # (s, kinds) whether the shape may run on machines of a kind


class Goal(NamedTuple):
    """A target workload: for each machine kind, its GPU shapes that are allowed on such machines.

    `levels` holds the distinct milli-GPUs per device, ascending. `cpu` and `pods` have one entry per machine kind and
    allowed shape; those of kind t and level j have indices first[t, j] to first[t, j + 1] - 1, with ascending `cpu`.
    pods[e, g] counts the pods of these entries up to e that need at most g devices, `total` all pods of the target,
    including those without GPUs. `survey` is working memory of `scores`.
    """

    levels: IntArray
    first: IntArray  # (kinds, levels + 1) positions of entries
    cpu: IntArray
    pods: IntArray  # (entries, most devices of a shape + 1)
    total: int
    survey: IntArray  # (levels, 3)


class Kept(NamedTuple):
    """Cached results for s shapes and n machines.

    `score` (s, n) holds scores, `taken` (s, n) as bits the devices the shape would take, and `fragmented` (n,) each
    machine's fragmentation.
    """

    score: IntArray
    taken: IntArray
    fragmented: IntArray  # multiplied by the number of the target's pods


Kinds = tuple[str | None, ...]
"""Distinct GPU types of machines; the index of a machine's GPU type is its kind."""

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
    """Return the code of a placement by device.

    Raises
    ------
    BadInput
        If no placement by device has the name `policy`.
    """
    if policy not in POLICY_CODES:
        raise BadInput(f"device placement: found {policy!r}, expected one of {', '.join(sorted(POLICY_CODES))}")
    return POLICY_CODES[policy]


def kinds_of(of_type: Mapping[str, BoolArray], machines: int) -> tuple[Kinds, IntArray]:
    """Return the distinct GPU types of machines, None first, and the kind of each machine."""
    kind = np.zeros(machines, dtype=np.int64)
    for at, having in enumerate(of_type.values(), start=1):
        kind[having] = at
    return (None, *of_type), kind


def open_kinds(requested: str | None, kinds: Kinds) -> BoolArray:
    """Return which kinds of machines a requested GPU type allows (kinds,)."""
    return np.array([allows(requested, kind) for kind in kinds], dtype=np.bool_)


def nodes_of(
    free: IntArray,
    devices: IntArray,
    kind: IntArray,
    up: BoolArray,
    largest: IntArray,
) -> Nodes:
    """Create `Nodes` from free units (n, 3) and free milli-GPUs by device (n, most GPUs); tenant counts are 0.

    Raises
    ------
    BadInput
        If a machine has more than `MOST_DEVICES` devices.
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
    """Create `Shapes` from the units (s, 3) and GPU types (s) of demands."""
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
    """Create a `Goal`: group a target's GPU shapes by allowed machine kind and by milli-GPUs per device."""
    gpu = np.flatnonzero(target.count > 0)
    gpu = gpu[np.lexsort((target.cpu_milli[gpu], target.milli[gpu]))]
    levels, level = np.unique(target.milli[gpu], return_inverse=True)
    number = {name: at for at, name in enumerate(dict.fromkeys(target.gpu_type))}
    allowed = np.array([open_kinds(name, kinds) for name in number], dtype=np.bool_).reshape(-1, len(kinds))
    named = np.array([number[target.gpu_type[shape]] for shape in gpu.tolist()], dtype=np.int64)
    kind, at = np.nonzero(allowed[named].T)
    ends = np.cumsum(np.bincount(kind * len(levels) + level[at], minlength=len(kinds) * len(levels)))
    begins = np.arange(len(kinds))[:, None] * len(levels) + np.arange(len(levels) + 1)
    first = np.concatenate([np.zeros(1, dtype=np.int64), ends])[begins]
    entries = gpu[at]
    return Goal(
        levels=levels,
        first=first,
        cpu=target.cpu_milli[entries],
        pods=_summed(target.pods[entries], target.count[entries], first),
        total=target.total,
        survey=np.zeros((len(levels), 3), dtype=np.int64),
    )


def _summed(pods: IntArray, gpus: IntArray, first: IntArray) -> IntArray:
    """Return `Goal.pods` from the pods and devices of each entry."""
    small = gpus[:, None] <= np.arange(gpus.max(initial=0) + 1)
    sums = np.cumsum(np.where(small, pods[:, None], 0), axis=0)
    before = np.concatenate([np.zeros((1, sums.shape[1]), dtype=np.int64), sums])[first[:, :-1].ravel()]
    return np.ascontiguousarray(sums - np.repeat(before, np.diff(first, axis=1).ravel(), axis=0), dtype=np.int64)


def kept_of(shapes: int, machines: int) -> Kept:
    """Create a cache in which all scores are stale."""
    return Kept(
        score=np.full((shapes, machines), STALE, dtype=np.int64),
        taken=np.zeros((shapes, machines), dtype=np.int64),
        fragmented=np.zeros(machines, dtype=np.int64),
    )


def draws_of(rng: np.random.Generator, rows: int, drawing: bool) -> FloatArray:
    """Return two random numbers per row, for ties and for devices (rows, 2); zeros unless `drawing`."""
    return rng.random((rows, 2)) if drawing else np.zeros((rows, 2))
