"""A cluster of 1213 machines and what it is asked for: the public lists, or drawn like them.

Nothing is timed here. Called by the other files of this folder.
"""

import csv
import os
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from pipelines.studies.fragmentation.inflation import Pods
from scheduler_core.cluster import Machine
from scheduler_core.gangs import ANY_GPU_TYPE

MODELS: Final = (
    # (machines, GPUs, cores, GiB, type): the public list's, as it counts them
    (549, 8, 96.0, 384.0, "G2"),
    (39, 8, 128.0, 768.0, "G3"),
    (29, 8, 96.0, 768.0, "V100M32"),
    (37, 4, 32.0, 128.0, "V100M16"),
    (17, 4, 96.0, 384.0, "T4"),
    (387, 2, 104.0, 512.0, "T4"),
    (131, 2, 64.0, 256.0, "P100"),
    (24, 1, 8.0, 60.0, "V100M16"),
)
SHAPES: Final = 150
"""Distinct demands, as in the public list."""

PODS: Final = 8152
GPUS: Final = (0, 100, 250, 460, 500, 700, 810, 1000, 1000, 2000, 4000, 8000)
GPU_SHARES: Final = (0.133, 0.06, 0.08, 0.12, 0.06, 0.05, 0.01, 0.25, 0.23, 0.001, 0.001, 0.005)


def recorded() -> Path | None:
    """Return where the public lists are; None without TAUT_TRACES."""
    folder = Path(os.environ.get("TAUT_TRACES", "")) / "openb" / "csv"
    return folder if "TAUT_TRACES" in os.environ and folder.is_dir() else None


def machines() -> list[Machine]:
    """Return the public machines, or as many of each kind in a drawn order."""
    folder = recorded()
    if folder is not None:
        with (folder / "openb_node_list_gpu_node.csv").open() as file:
            return [
                Machine(
                    name=row["sn"],
                    cpu_cores=int(row["cpu_milli"]) / 1000,
                    mem_gib=int(row["memory_mib"]) / 1024,
                    gpus=int(row["gpu"]),
                    gpu_type=row["model"],
                )
                for row in csv.DictReader(file)
            ]
    kinds = np.random.default_rng(0).permutation(np.repeat(np.arange(len(MODELS)), [count for count, *_ in MODELS]))
    return [
        Machine(name=f"m{at:04}", cpu_cores=cores, mem_gib=gib, gpus=gpus, gpu_type=gpu_type)
        for at, (_, gpus, cores, gib, gpu_type) in enumerate(MODELS[kind] for kind in kinds)
    ]


def many_machines(count: int) -> list[Machine]:
    """Return `count` machines: those of `machines`, again and again under other names."""
    nodes = machines()
    return [replace(nodes[at % len(nodes)], name=f"m{at:05}") for at in range(count)]


def pods() -> Pods:
    """Return the public default list's pods, or as many drawn from as many shapes."""
    folder = recorded()
    if folder is not None:
        with (folder / "openb_pod_list_default.csv").open() as file:
            rows = sorted(csv.DictReader(file), key=lambda row: row["name"])
        units = [
            [int(row["cpu_milli"]), int(row["memory_mib"]), int(row["num_gpu"]) * int(row["gpu_milli"])] for row in rows
        ]
        return Pods(units=np.array(units), gpu_type=np.full(len(rows), ANY_GPU_TYPE))
    rng = np.random.default_rng(0)
    shapes = np.stack(
        [rng.integers(1, 25, SHAPES) * 500, rng.integers(1, 33, SHAPES) * 1024, rng.choice(GPUS, SHAPES, p=GPU_SHARES)],
        axis=1,
    )
    popular = rng.dirichlet(np.full(SHAPES, 0.3))
    return Pods(units=shapes[rng.choice(SHAPES, PODS, p=popular)], gpu_type=np.full(PODS, ANY_GPU_TYPE))
