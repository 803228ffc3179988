"""Reproduce a logged answer of the service and explain it: models, history and contributions for each job.

Features are read from the log, not computed again. Called by `taut recommend --explain`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from features.online import OnlineHistory
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.champions import version_folder
from modelserve.calls.explanations import Shares, shares_of, value_of
from modelserve.calls.logged_context import read_context
from modelserve.calls.replay import NO_MODELS, replay
from modelserve.calls.request_context import RequestContext
from modelserve.contract.writing import flat
from modelserve.errors import NotKnown
from modelserve.learning.learned import Learned
from modelserve.loading.feature_records import Scored, decode_features
from modelserve.loading.served import ServedModel
from modelserve.store import Store
from modelserve.store.answers import AnswerRecord, read_answer

TOP: Final = 3
"""Maximum number of feature contributions printed for a job."""

ANSWERS: Final = ("recommendations", "predictions", "reservations", "placements", "pending", "routes", "plans", "holds")
"""The names of the list of answers in a response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """A reproduced answer: whether its bytes equal the logged ones, its size, and one flat row per job."""

    equal: bool
    size_bytes: int
    rows: Sequence[Mapping[str, object]]


def replayed(answer_id: str, *, store: str, bundles: Path) -> Replayed:
    """Compute a logged answer again, compare it with the log, and explain it.

    Raises
    ------
    NotKnown
        The log lacks the answer, or the folder of bundles lacks a model version that the answer used.
    StoreError
        The store does not exist or cannot be read.
    BadRequest
        The answer was written by another version of the service.
    """
    record = _record(answer_id, store)
    again = replay(record, bundles)
    response = json.loads(again)
    [answers] = [response[name] for name in ANSWERS if name in response]
    evidence = _evidence(record, bundles)
    return Replayed(
        equal=again == record.response,
        size_bytes=len(again),
        rows=[
            {"answer_id": answer_id, "byte_equal": again == record.response, **flat(answer), **evidence.get(place, {})}
            for place, answer in enumerate(answers)
        ],
    )


def _record(answer_id: str, url: str) -> AnswerRecord:
    store = Store.open(url, create=False)
    try:
        record = read_answer(store, answer_id)
        if record is None:
            raise NotKnown(f"answer {answer_id[:80]!r} is not in {store.where}; the newest are kept (answers_kept)")
        return record
    finally:
        store.close()


def _evidence(record: AnswerRecord, bundles: Path) -> dict[int, dict[str, object]]:
    """Return for each job its models, the history they used, and feature contributions to its predicted run time."""
    seen = read_context(record.context)
    found: dict[int, dict[str, object]] = {}
    for scored in decode_features(record.features):
        of = seen.models[scored.model]
        kind = of.name.partition(".")[0]
        shown = _run_time_shares(scored, bundles) if kind == "runtime" else iter([""] * len(scored.rows))
        for job, top in zip(scored.rows.tolist(), shown, strict=True):
            row = found.setdefault(job, {})
            row[f"{kind}_bundle"] = of.digest[:12]
            first, last = of.history or (0, 0)
            row[f"{kind}_history"] = first if first == last else f"{first} to {last}"
            if top:
                row["contributions"] = top
    return found


def _run_time_shares(scored: Scored, bundles: Path) -> Iterator[str]:
    """Yield for each row the contributions to its predicted median run time, as `user_run_s=812 +120.5 s; ...`."""
    name, _, version = scored.model.partition("@")
    bundle = read_bundle(version_folder(bundles, name, version), version=version)
    model = ServedModel.of(bundle, OnlineHistory(bundle.history))
    context = RequestContext(snapshot=NO_MODELS, learned=Learned(seq=0))
    for i in range(len(scored.rows)):
        one = replace(
            scored,
            rows=scored.rows[i : i + 1],
            matrix=scored.matrix[i : i + 1],
            reference_log_s=scored.reference_log_s[i : i + 1],
            shift_log_s=scored.shift_log_s[i : i + 1],
            evidence=scored.evidence[i : i + 1],
            runs=scored.runs[i : i + 1],
        )
        shares = shares_of(model, one, "p50", context)
        yield "" if shares is None else _contributions(model, one, shares)


def _contributions(model: ServedModel, one: Scored, shares: Shares) -> str:
    order = sorted(range(len(shares.phi)), key=lambda i: -abs(shares.phi[i]))[:TOP]
    parts = [f"base {shares.base_s:.4g} s"]
    for i in order:
        value = value_of(model, one, i)
        text = "unknown" if value is None else value if isinstance(value, str) else f"{value:.4g}"
        parts.append(f"{model.bundle.contract.names[i]}={text} {shares.seconds[i]:+.4g} s")
    return "; ".join(parts)
