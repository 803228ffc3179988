"""Show a logged answer of the service as it was given, with its models, history and contributions for each job."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from features.online import OnlineHistory
from modelserve.bundle.bundle import read_bundle
from modelserve.bundle.card import RUNTIME_TARGET
from modelserve.bundle.champions import version_folder
from modelserve.calls.explanations import Shares, shares_of, value_of
from modelserve.contract.jobs import flat
from modelserve.errors import BundleError, NotKnown
from modelserve.loading.feature_records import Scored, decode_features
from modelserve.loading.served import ServedModel
from modelserve.store import Store
from modelserve.store.answers import AnswerRecord, read_answer

TOP: Final = 3
"""Maximum number of feature contributions printed for a job."""

ANSWERS: Final = (
    "recommendations", "predictions", "reservations", "placements", "schedule", "pending", "routes", "plans", "holds",
)  # fmt: skip
"""The names of the list of answers in a response."""


def logged_rows(answer_id: str, *, store: str, bundles: Path) -> list[dict[str, object]]:
    """Return a logged answer as it was given, one flat row per job, with the evidence behind it.

    Contributions to the run time are left out if the folder of bundles no longer has the model version.
    """
    record = _record(answer_id, store)
    response = json.loads(record.response)
    [answers] = [response[name] for name in ANSWERS if name in response]
    evidence = _evidence(record, bundles)
    return [{"answer_id": answer_id, **flat(answer), **evidence.get(i, {})} for i, answer in enumerate(answers)]


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
    models = json.loads(record.context)["models"]
    found: dict[int, dict[str, object]] = {}
    for scored in decode_features(record.features):
        of = models[scored.model]
        kind = of["name"].partition(".")[0]
        shown = _run_time_shares(scored, of["digest"], bundles) if kind == "runtime" else [""] * len(scored.rows)
        for job, top in zip(scored.rows.tolist(), shown, strict=True):
            row = found.setdefault(job, {})
            row[f"{kind}_bundle"] = of["digest"][:12]
            first, last = of["history"] or (0, 0)
            row[f"{kind}_history"] = first if first == last else f"{first} to {last}"
            if top:
                row["contributions"] = top
    return found


def _run_time_shares(scored: Scored, digest: str, bundles: Path) -> list[str]:
    """Return for each row the contributions to its predicted median run time, as `user_run_s=812 +120.5 s; ...`.

    All are empty if the bundle that answered is gone.
    """
    name, _, version = scored.model.partition("@")
    try:
        bundle = read_bundle(version_folder(bundles, name, version), version=version)
    except BundleError:
        return [""] * len(scored.rows)
    if bundle.digest != digest:
        return [""] * len(scored.rows)
    model = ServedModel.of(bundle, OnlineHistory(bundle.history))
    raw = model.outputs(scored.matrix)[RUNTIME_TARGET]
    texts = []
    for i in range(len(scored.rows)):
        at = slice(i, i + 1)
        one = replace(
            scored,
            rows=scored.rows[at],
            matrix=scored.matrix[at],
            reference_log_s=scored.reference_log_s[at],
            shift_log_s=scored.shift_log_s[at],
            evidence=scored.evidence[at],
            runs=scored.runs[at],
        )
        shares = shares_of(model, one, "p50", raw[at])
        texts.append("" if shares is None else _contributions(model, one, shares))
    return texts


def _contributions(model: ServedModel, one: Scored, shares: Shares) -> str:
    order = sorted(range(len(shares.phi)), key=lambda i: -abs(shares.phi[i]))[:TOP]
    parts = [f"base {shares.base_s:.4g} s"]
    for i in order:
        value = value_of(model, one, i)
        text = "unknown" if value is None else value if isinstance(value, str) else f"{value:.4g}"
        parts.append(f"{model.bundle.contract.names[i]}={text} {shares.seconds[i]:+.4g} s")
    return "; ".join(parts)
