"""A tiny openb for the tests of the experiment: published files of six nodes and forty pods, results, and curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.lake.ingest import ingest
from pipelines.studies.fragmentation.published import ALLOCATED, POLICIES

NODES = ("a,64000,262144,2,P100", "b,64000,262144,2,P100", "c,96000,393216,4,T4", "d,96000,393216,4,T4")
BIG = ("e,96000,786432,8,V100M32", "f,96000,786432,8,V100M32")
SHARES = (250, 500, 750, 1000)


def pod_rows() -> list[str]:
    """Return the rows of a pod list without times: shares of a GPU, whole ones, eight at once, and none."""
    rng = np.random.default_rng(5)
    rows = [f"p{at:02d},{2000 + 1000 * (at % 4)},4096,1,{SHARES[rng.integers(4)]}" for at in range(34)]
    return [*rows, "p34,8000,8192,8,1000", "p35,8000,8192,2,1000", *(f"p{at},4000,4096,0,0" for at in range(36, 40))]


def tiny_openb(folder: Path, *lists: str) -> Path:
    """Write the files of a tiny openb, one equal pod list by each name."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes = ["sn,cpu_milli,memory_mib,gpu,model", *NODES, *BIG]
    (folder / "openb_node_list_gpu_node.csv").write_text("\n".join(nodes) + "\n")
    pods = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli", *pod_rows()]
    for name in lists:
        (folder / f"openb_pod_list_{name}.csv").write_text("\n".join(pods) + "\n")
    return folder


def tiny_lake(folder: Path, *lists: str) -> Path:
    """Return a lake that holds nothing but a tiny openb."""
    ingest("openb", tiny_openb(folder / "from", *lists), folder / "lake")
    return folder / "lake"


def results(folder: Path, allocated: Mapping[str, Sequence[float]], *workloads: str) -> Path:
    """Write published results of the workloads (`default` if none is named), run by run.

    `allocated` has for each placement the percent allocated at 100 % arrived; at 99 % it is 1 less.
    """
    folder.mkdir(parents=True, exist_ok=True)
    keys = "workload,sc_policy,tune,seed"
    runs = [
        (f"openb_pod_list_{name},{POLICIES[policy]},1.3,{42 + at}", value)
        for name in workloads or ("default",)
        for policy, values in allocated.items()
        for at, value in enumerate(values)
    ]
    with_gpus = [f"{key},6212,{value - 1.0},{value}" for key, value in runs]
    (folder / ALLOCATED).write_text("\n".join([f"{keys},total_gpus,99,100", *with_gpus]) + "\n")
    return folder


def curves(unallocated: Mapping[str, Sequence[float]], workload: str = "default") -> pl.DataFrame:
    """Return curves of two points: for each placement percent unallocated at 100 % arrived, seed by seed."""
    rows = [
        {
            "workload": workload,
            "policy": policy,
            "seed": 42 + at,
            "arrived_pct": arrived,
            "unallocated_pct": value + 100 - arrived,
        }
        for policy, values in unallocated.items()
        for at, value in enumerate(values)
        for arrived in (99, 100)
    ]
    return pl.DataFrame(rows)
