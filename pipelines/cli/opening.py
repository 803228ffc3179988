"""Open the champion models and files of jobs that commands take, and list versions of models.

Slow to import. Imported inside the command functions of `pipelines.cli`; `pipelines.cli.options` opens the lake.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from modelserve.bundle.champions import read_champions
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.bundle.registry import mirror
from modelserve.contract.requests import JobRow, parse_lines
from modelserve.errors import MirrorError
from pipelines.cli.options import Place, say
from pipelines.errors import BadUsage, RegistryError
from pipelines.models.tracking import ModelVersion


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
    """Read jobs from a file of JSON lines, or from stdin for `-`.

    Raises
    ------
    BadUsage
        If the file cannot be read.
    """
    if source == "-":
        return parse_lines(sys.stdin)
    try:
        with Path(source).open(encoding="utf-8") as lines:
            return parse_lines(lines)
    except OSError as error:
        raise BadUsage(
            f"{source}: found no file of jobs that can be read; expected JSON lines, or - for stdin"
        ) from error


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
