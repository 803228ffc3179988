"""Open the champion models, files of jobs, and logged answers of a service with their evidence.

Slow to import. Imported inside the command functions of `pipelines.cli`; `pipelines.cli.options` opens the lake.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from features.history import History
from modelserve.bundle.bundle import Bundle, known_until
from modelserve.bundle.champions import read_champions
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.bundle.registry import mirror
from modelserve.contract.jobs import flat
from modelserve.contract.requests import JobRow, parse_lines
from modelserve.errors import MirrorError, NotKnown
from modelserve.store import Store
from modelserve.store.answers import AnswerRecord, read_answer
from pipelines.cli.options import Place, say
from pipelines.errors import BadUsage, RegistryError
from pipelines.lake.lake import Lake
from pipelines.models import NEWEST
from pipelines.models.training_tables import newest_tables

ANSWERS: Final = (
    "recommendations", "predictions", "reservations", "placements", "schedule", "pending", "routes", "plans", "holds",
)  # fmt: skip
"""The names of the list of answers in a response."""
IDENTITY: Final = ("trace", "cluster", "job_id", "role")


def champions(place: Place, *, offline: bool) -> InProcessPredictor:
    """Copy the champion models from the registry to the local cache, and open them; if `offline`, skip the copy.

    A job's features count every job in the lake that ended before its submission, not only those that the models were
    trained with.
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
        raise RegistryError(
            f"no champion in {place.bundles}, the models of the lake {place.lake}; train with `taut train`, then "
            "`taut promote`"
        )
    return InProcessPredictor(bundles=with_lake(found.bundles, Lake(place.lake)), failures=found.failures)


def with_lake(bundles: Mapping[str, Bundle], lake: Lake) -> dict[str, Bundle]:
    """Add the newest jobs in the lake, at most `NEWEST`, to the history of each bundle.

    Jobs that only the bundle has, such as those of feedback, are kept. Clusters that were left out of the training
    (`taut train --cluster`) stay out. A bundle whose trace is not in the lake is unchanged.
    """
    held = set(lake.traces())
    fresh: dict[str, Bundle] = {}
    grown: dict[tuple[str, str], History] = {}
    for name, bundle in bundles.items():
        trace, key = bundle.card.trace, (bundle.card.trace, bundle.history_digest)
        if trace not in held:
            fresh[name] = bundle
            continue
        if key not in grown:
            grown[key] = _grown(bundle, lake)
        fresh[name] = replace(bundle, history=grown[key], known_until=known_until(grown[key], bundle.card.until))
    return fresh


def _grown(bundle: Bundle, lake: Lake) -> History:
    """Return the history of a bundle's trace in the lake, and the jobs that only the bundle has."""
    tables = newest_tables(lake, bundle.card.trace, None, NEWEST)
    jobs, usage = tables.jobs, tables.usage
    own = bundle.history.frame
    early = jobs.filter(pl.col("submit_ts") < bundle.card.until)["cluster"].unique()
    left_out = early.filter(~early.is_in(own["cluster"].unique().implode()))
    history = History.of(jobs.filter(~pl.col("cluster").is_in(left_out.implode())), usage if usage.height else None)
    rest = own.join(history.frame, on=IDENTITY, how="anti")
    return history if rest.is_empty() else History.from_tail(pl.concat([history.frame, rest]))


def read_jobs(source: str) -> list[JobRow]:
    """Read jobs from a file of JSON lines or of one JSON array, or from stdin for `-`."""
    if source == "-":
        return parse_lines(sys.stdin)
    try:
        with Path(source).open(encoding="utf-8") as lines:
            return parse_lines(lines)
    except OSError as error:
        raise BadUsage(
            f"{source}: found no file of jobs that can be read; expected JSON lines or an array, or - for stdin"
        ) from error


def logged_rows(answer_id: str, *, store: str) -> list[dict[str, object]]:
    """Return a logged answer as it was given, one flat row per job, with the models and history behind it."""
    record = _record(answer_id, store)
    response = json.loads(record.response)
    [answers] = [response[name] for name in ANSWERS if name in response]
    models = json.loads(record.context)["models"]
    return [
        {"answer_id": answer_id, **flat(answer), **_evidence(answer.get("models", {}), models)} for answer in answers
    ]


def _record(answer_id: str, url: str) -> AnswerRecord:
    store = Store.open(url, create=False)
    try:
        record = read_answer(store, answer_id)
        if record is None:
            raise NotKnown(f"answer {answer_id[:80]!r} is not in {store.where}; the newest are kept (answers_kept)")
        return record
    finally:
        store.close()


def _evidence(cited: Mapping[str, str | None], models: Mapping[str, Any]) -> dict[str, object]:  # Any: JSON values
    """Return the bundles of the models that an answer names, and the versions of the histories that they used."""
    found: dict[str, object] = {}
    for reference in cited.values():
        if reference is not None and reference in models:
            kind = models[reference]["name"].partition(".")[0]
            first, last = models[reference]["history"] or (0, 0)
            found[f"{kind}_bundle"] = models[reference]["digest"][:12]
            found[f"{kind}_history"] = first if first == last else f"{first} to {last}"
    return found
