"""A folder of mirrored models whose pointers are moved by hand, and what its models learn."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from modelserve.bundle.champions import Pointer, write_pointer

if TYPE_CHECKING:
    from features.online import EndedRun
    from modelserve.loading.models import ModelSet

NAME = "runtime.pai.ctr"
USAGE = "usage.pai.ctr"


class Folder:
    """A folder of mirrored models, its pointers moved by hand."""

    def __init__(self, path: Path, sources: dict[str, Path]) -> None:
        self.path = path
        self.sources = sources

    def add(self, name: str, version: str, source: Path | None = None) -> Path:
        kept = source or self.sources[name.partition(".")[0]]
        place = self.path / name / version
        if not place.exists():
            shutil.copytree(kept, place)
        self.point(name, version)
        return place

    def point(self, name: str, version: str) -> None:
        digest = hashlib.sha256((self.path / name / version / "checksums.json").read_bytes()).hexdigest()
        write_pointer(self.path, Pointer(name=name, version=version, run_id=None, digest=digest))


def reseal(place: Path, *, surplus: bool = False) -> None:
    """Write a bundle's checksums anew, as someone would who may write to the folder and knows the format."""
    names = [p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file() and p.name != "checksums.json"]
    held = json.loads((place / "checksums.json").read_text())
    listed = names if surplus else [name for name in names if name in held]
    sums = {name: hashlib.sha256((place / name).read_bytes()).hexdigest() for name in listed}
    (place / "checksums.json").write_text(json.dumps(sums))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def models_of(folder: Path, **changes: object) -> "ModelSet":
    from modelserve.loading.models import ModelSet  # compiles kernels: only for the tests that need it

    settings = {"past": lambda trace: (), "clock": Clock()}
    return ModelSet(folder, **{**settings, **changes})


def run_of(job_id: str, user: str = "u1", **changes: object) -> "EndedRun":
    from features.online import EndedRun

    said = {
        "trace": "pai",
        "cluster": "pai",
        "job_id": job_id,
        "role": "worker",
        "user": user,
        "vc": None,
        "group": "g1",
        "submit_us": 1_600_000_000_000_000,
        "start_us": 1_600_000_000_000_000,
        "end_us": 1_600_000_500_000_000,
        "run_s": 500.0,
        "status": "completed",
        "instances": 1,
        "req_cpu_cores": 6.0,
        "req_mem_gib": 29.3,
        "req_gpus": 0.5,
        "used_cpu_cores": 1.0,
        "used_gpus": 0.1,
        "mem_max_gib": 4.0,
        "gpu_mem_max_gib": 2.0,
        "measured": True,
    }
    return EndedRun(**{**said, **changes})
