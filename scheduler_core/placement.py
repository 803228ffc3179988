"""The placements by name, and how they share GPUs; `kernels.placing` and `kernels.sharing` choose the machines."""

from dataclasses import dataclass
from typing import Final

from scheduler_core.errors import BadInput
from scheduler_core.gangs import SHARINGS, Sharing

__all__ = ["PLACEMENTS", "sharing_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A placement: its code in kernels, and its rule in answers, as one word and in `words`.

    Placements `by_device` choose among devices. One that `aims` keeps GPUs usable for a target workload.
    """

    code: int
    rule: str
    words: str
    by_device: bool = False
    aims: bool = False


POOLED: Final = (
    ("first_fit", "first_listed", "first machine listed with room"),
    ("best_fit", "least_free", "least free capacity"),
    ("consolidate", "fewest_machines", "fewest machines, then least free capacity"),
    ("spread", "most_free", "most free capacity"),
)
BY_DEVICE: Final = (
    ("fgd", "least_fragmentation", "least fragmentation"),
    ("dot_product", "least_dot_product", "smallest dot product of free and requested CPU and GPU"),
    ("best_fit_gpu", "least_left_over", "least CPU and GPU left over"),
    ("gpu_packing", "gpus_in_use", "GPUs and machines in use first"),
    ("gpu_clustering", "same_gpu_size", "beside jobs with as many GPUs"),
    ("random", "random", "drawn at random among machines with room"),
)
"""Name, rule and words of each placement, in the order of their codes; kernels hold the code of the first by device."""

PLACEMENTS: Final[dict[str, Placement]] = {
    name: Placement(code=code, rule=rule, words=words, by_device=code >= len(POOLED), aims=name == "fgd")
    for code, (name, rule, words) in enumerate(POOLED + BY_DEVICE)
}
"""The placements. A gang may be split over machines; ties go to the machine listed first.

Placements by device put each instance in turn on the machine with the best score, an integer mostly within 0..100. On
the machine, a part of a GPU takes the device with the least sufficient free GPU, and whole GPUs take the idle devices
of lowest index, except under `fgd` and `random`.

- ``fgd``: 100 times the sigmoid of the decrease in the machine's fragmented GPUs for the target workload (see the
  module `fragmentation`); a part of a GPU takes the device with the largest decrease.
- ``dot_product``: the smallest dot product of free and requested CPU and GPU, as shares of the largest machine.
- ``best_fit_gpu``: the least CPU and GPU left over, as shares of the largest machine.
- ``gpu_packing``: first GPUs in use, then idle GPUs of machines in use, then machines whose GPUs are all idle.
- ``gpu_clustering``: first machines where all instances have the same GPU size as the new one (a part of a GPU, or k
  whole GPUs), then those where some have it, then empty machines, then all others; among equals the fullest.
- ``random``: a random machine that fits, and a random device that fits.

References
----------
Weng et al.: Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent, USENIX ATC
2023 (fgd, and the baselines as measured there). Grandl et al.: Multi-resource packing for cluster schedulers, SIGCOMM
2014 (dot product). Weng et al.: MLaaS in the Wild, NSDI 2022 (packing). Xiao et al.: Gandiva, OSDI 2018 (clustering).
"""


def sharing_of(placement: str, wanted: Sharing | None = None) -> Sharing:
    """Return how GPUs are shared: `wanted`, or if that is None the placement's default.

    Examples
    --------
    >>> sharing_of("best_fit"), sharing_of("best_fit", "devices")
    ('pooled', 'devices')
    """
    if wanted is not None and wanted not in SHARINGS:
        raise BadInput(f"sharing: found {wanted!r}, expected one of {', '.join(SHARINGS)}")
    if placement not in PLACEMENTS:
        raise BadInput(f"placement: found {placement!r}, expected one of {', '.join(sorted(PLACEMENTS))}")
    by_device = PLACEMENTS[placement].by_device
    if by_device and wanted == "pooled":
        raise BadInput(f"sharing: found pooled GPUs for the placement {placement}, expected devices, or no sharing")
    return wanted or ("devices" if by_device else "pooled")
