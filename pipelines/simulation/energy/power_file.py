"""Read the power of machines from TOML files: the shipped table, with entries replaced by a site's own file.

The power of a machine is computed in `scheduler_core.planning.power`.
"""

import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from modelserve.wrong_values import fault_of
from pipelines.errors import BadUsage
from scheduler_core.errors import BadInput
from scheduler_core.planning.hourly import MOST_PUE
from scheduler_core.planning.power import Assumed, NodePower, Package, PowerTable, Watts

__all__ = ["power_file"]

SHIPPED: Final = Path(__file__).resolve().parents[3] / "data" / "power" / "nodes.toml"
EXAMPLE: Final = "[gpus.T4] with idle_w = 10 and full_w = 70"
MOST_W: Final = 1e6
"""Maximum number of watts: more suggests a wrong unit."""

_Watts = Annotated[float, Field(strict=True, ge=0.0, le=MOST_W, allow_inf_nan=False)]
_Frac = Annotated[float, Field(strict=True, ge=0.0, le=1.0)]
_Name = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Gpu(_Part):
    idle_w: _Watts
    full_w: _Watts
    also: tuple[_Name, ...] = ()


class _Cpu(_Part):
    idle_w: _Watts
    full_w: _Watts
    cores: Annotated[int, Field(strict=True, ge=1, le=10_000)]


class _Machine(_Part):
    cpu_idle_w: _Watts
    cpu_full_w: _Watts
    gpu_idle_w: _Watts = 0.0
    gpu_full_w: _Watts = 0.0


class _Defaults(_Part):
    gpu: _Name
    cpu: _Name
    threads_per_core: Annotated[int, Field(strict=True, ge=1, le=16)]
    packages: Annotated[int, Field(strict=True, ge=1, le=64)]


class _UnknownUse(_Part):
    gpu_frac: _Frac
    cpu_frac: _Frac


class _PowerFile(_Part):
    source: _Name
    pue: Annotated[float, Field(strict=True, ge=1.0, le=MOST_PUE, allow_inf_nan=False)]
    defaults: _Defaults
    unknown_use: _UnknownUse
    gpus: dict[_Name, _Gpu]
    cpus: dict[_Name, _Cpu]
    hosts: dict[_Name, _Name] = Field(default_factory=dict)
    machines: dict[_Name, _Machine] = Field(default_factory=dict)


def power_file(path: Path | None = None) -> PowerTable:
    """Read a site's power file; entries that the file leaves out come from the shipped table."""
    shipped = _toml(SHIPPED)
    own = {} if path is None else _toml(path)
    named = path or SHIPPED
    if path is not None and "source" not in own:
        own["source"] = f"{path.name} over the shipped table"
    try:
        return _table(_PowerFile.model_validate(_laid_over(shipped, own)), named)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, each['loc']))}: {fault_of(each)}" for each in error.errors())
        raise BadUsage(f"{named}: {faults}; expected figures in watts, as {EXAMPLE}") from error
    except BadInput as error:
        raise BadUsage(f"{named}: {error}") from error


def _toml(path: Path) -> dict[str, Any]:  # TOML holds any type; `_PowerFile` validates it
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadUsage(f"{path}: {error.strerror}; expected a TOML file of watts, as {EXAMPLE}") from error
    except (ValueError, RecursionError) as error:  # invalid TOML or UTF-8, or a number of thousands of digits
        raise BadUsage(f"{path} is not valid TOML: {error}; expected figures in watts, as {EXAMPLE}") from error


def _laid_over(shipped: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:  # as `_toml` returns them
    """Return the shipped table with the site's entries; an entry of the site replaces a shipped entry as a whole."""
    laid = dict(shipped)
    for section, entries in own.items():
        under = laid.get(section)
        laid[section] = {**under, **entries} if isinstance(under, dict) and isinstance(entries, dict) else entries
    # A GPU type that the site lists is removed from the aliases of shipped GPU types.
    named = own.get("gpus")
    if isinstance(named, dict):
        laid["gpus"] = {
            name: {**entry, "also": [each for each in entry.get("also", ()) if each not in named]}
            if isinstance(entry, dict) and name not in named and isinstance(entry.get("also", ()), list)
            else entry
            for name, entry in laid["gpus"].items()
        }
    return laid


def _table(read: _PowerFile, path: Path) -> PowerTable:
    names = Counter([*read.gpus, *(name for gpu in read.gpus.values() for name in gpu.also)])
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise BadUsage(f"{path}: found several figures of {twice[0]!r}, expected one per GPU type")
    gpus = {
        each: Watts(idle_w=gpu.idle_w, full_w=gpu.full_w)
        for name, gpu in read.gpus.items()
        for each in (name, *gpu.also)
    }
    return PowerTable(
        gpus=gpus,
        cpus={
            name: Package(watts=Watts(idle_w=cpu.idle_w, full_w=cpu.full_w), cores=cpu.cores)
            for name, cpu in read.cpus.items()
        },
        default_gpu=read.defaults.gpu,
        default_cpu=read.defaults.cpu,
        assumed=Assumed(cpu_frac=read.unknown_use.cpu_frac, gpu_frac=read.unknown_use.gpu_frac),
        source=read.source,
        hosts=read.hosts,
        threads_per_core=read.defaults.threads_per_core,
        packages=read.defaults.packages,
        machines={name: NodePower(name=name, **each.model_dump()) for name, each in read.machines.items()},
        pue=read.pue,
    )
