"""Open the inputs of commands: the lake and its trace, the champion models, a file of jobs.

Slow to import. Imported inside the command functions of `pipelines.cli`.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

from modelserve.bundle.champions import read_champions
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.bundle.registry import mirror
from modelserve.contract.requests import JobRow, parse_lines
from modelserve.errors import MirrorError
from pipelines.cli.options import Place as Place  # re-exported, so that commands import both from here
from pipelines.cli.options import place_of as place_of
from pipelines.cli.options import say
from pipelines.errors import BadUsage, LakeError, RegistryError
from pipelines.lake.lake import Lake
from pipelines.models.tracking import ModelVersion
from pipelines.settings import load_settings


def threads_of(option: int | None) -> int:
    """Return the number of threads: the given option, else the value in the settings."""
    return option or load_settings().threads


def chosen_trace(lake: Lake, trace: str | None) -> str:
    """Return the trace to use: the given option, else the trace in the settings, else the only trace in the lake.

    Raises
    ------
    BadUsage
        If no trace is named and the lake holds several.
    LakeError
        If the lake lacks the named trace, or holds no trace.
    """
    held = lake.traces()
    named = trace or load_settings().trace
    if named is not None:
        lake.manifest(named)
        return named
    if not held:
        raise LakeError(f"no trace in {lake.path}; ingest one with `taut ingest`")
    if len(held) > 1:
        raise BadUsage(f"{lake.path} holds {', '.join(held)}: choose one with --trace")
    return held[0]


@contextmanager
def opened(lake: Path | None, trace: str | None) -> Iterator[tuple[Lake, str]]:
    """Open the lake; yield the lake and the name of the chosen trace."""
    with Lake(place_of(lake).lake) as source:
        yield source, chosen_trace(source, trace)


def trace_of(lake: Path | None, trace: str | None) -> str:
    """Return the name of the chosen trace, from the lake or from the cached models; the lake is closed again."""
    place = place_of(lake)
    mirrored = place.bundles.glob("*.*.*/") if place.bundles.is_dir() else ()
    known = {folder.name.split(".")[1] for folder in mirrored} | set(Lake(place.lake).traces())
    if trace is not None and trace not in known:
        raise BadUsage(f"no trace {trace!r}; there are models or tables of: {', '.join(sorted(known)) or 'none'}")
    if trace is not None:
        return trace
    with opened(lake, None) as (_, name):
        return name


def local_cut(day: datetime | None, zone: str) -> datetime | None:
    """Convert a time without time zone, understood in the trace's time zone `zone`, to UTC."""
    if day is None or day.tzinfo is not None:
        return day
    return day.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def champions(place: Place, *, offline: bool) -> InProcessPredictor:
    """Copy the champion models from the registry to the local cache, and open them; if `offline`, skip the copy.

    Raises
    ------
    RegistryError
        If the cache then has no model.
    """
    if not offline:
        try:
            for each in mirror(place.tracking_uri, place.bundles):
                if each.outcome == "failed":
                    say(f"warning: {each.name}@{each.version} not copied from the registry: {each.detail}")
        except MirrorError as error:
            say(f"warning: {error}")
    found = read_champions(place.bundles)
    for name, problem in found.failures.items():
        say(f"warning: {name} not loaded: {problem}")
    if not found.bundles:
        raise RegistryError(f"no champion in {place.bundles}; train with `taut train`, then `taut promote`")
    return InProcessPredictor(bundles=found.bundles, failures=found.failures)


def read_jobs(source: str) -> list[JobRow]:
    """Read jobs from a file of JSON lines, or from stdin for `-`."""
    if source == "-":
        return parse_lines(sys.stdin)
    with Path(source).open(encoding="utf-8") as lines:
        return parse_lines(lines)


def version_rows(versions: Iterable[ModelVersion]) -> list[dict[str, object]]:
    """Return one flat row for each registered model version."""
    return [
        {
            "name": each.name,
            "version": each.version,
            "aliases": " ".join(each.aliases),
            "gate": each.status,
            "why": each.reasons,
        }
        for each in versions
    ]
