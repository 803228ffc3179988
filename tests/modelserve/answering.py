"""A service to answer with: real models in a folder, everything else small and in memory."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from features.rows import RowBuilder
from modelserve.bundle.bundle import Bundle, read_bundle
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.callers import ANYONE, Caller
from modelserve.contract.calls import CallShape
from modelserve.learning.learned import Learned
from modelserve.service import Service
from modelserve.settings import ServeSettings
from modelserve.store.answers import AnswerRecord
from tests.modelserve.mirrored import NAME, USAGE, Folder, models_of

NOW = datetime.fromisoformat("2020-08-03T00:00:00+00:00").timestamp()
REQUEST = {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5}


@dataclass
class Log:
    records: list[AnswerRecord] = field(default_factory=list)

    def put(self, record: AnswerRecord) -> bool:
        self.records.append(record)
        return True


def service_of(folder: Path, *, learned: Learned | None = None, **settings: object) -> Service:
    """Return a service over the folder's models; `service.log.records` are its answers, `NOW` is its time."""
    models = models_of(folder)
    models.refresh()
    known = learned or Learned()
    return Service(
        settings=ServeSettings(**{"bundles": folder, "trace": "pai", **settings}),
        models=models,
        store=SimpleNamespace(close=lambda: None),  # type: ignore[arg-type]
        log=Log(),  # type: ignore[arg-type]
        feed=SimpleNamespace(learned=known, fresh=lambda: known),  # type: ignore[arg-type]
        clock=lambda: NOW,
    )


def answer_of(service: Any, of: CallShape[Any], caller: Caller = ANYONE, **body: object) -> dict[str, Any]:
    """Return the answer to a body, checked against the contract; its id is `answer-1`."""
    answered = service.decide(of, of.body.model_validate(body), caller, answer_id="answer-1")
    of.answer.model_validate_json(answered.body)
    return json.loads(answered.body)


def with_champion(service: Service, name: str = NAME, **changes: object) -> Service:
    """Return the service with fields of a champion changed."""
    current = service.models.current
    champions = {**current.champions, name: replace(current.champions[name], **changes)}
    return replace(service, models=SimpleNamespace(current=replace(current, champions=champions)))  # type: ignore[arg-type]


def without_trees(service: Service, name: str = NAME) -> Service:
    """Return the service with a champion that fails whenever it predicts."""
    return with_champion(service, name, bundle=replace(service.models.current.champions[name].bundle, forests={}))


def with_card(service: Service, **changes: object) -> Service:
    """Return the service with fields of the run-time model's card changed."""
    bundle = service.models.current.champions[NAME].bundle
    bundle = replace(bundle, card=bundle.card.model_copy(update=changes))
    return with_champion(service, bundle=bundle, rows=RowBuilder.of(bundle.contract, relative=bundle.card.relative))


def folder_of(place: Path, small_bundles: dict[str, Path]) -> Folder:
    """Return a folder of the two small models, version 7 of each."""
    folder = Folder(place, small_bundles)
    folder.add(NAME, "7")
    folder.add(USAGE, "7")
    return folder


def in_process(folder: Path) -> InProcessPredictor:
    """Return the predictor of the commands over the same bundles."""
    read = [read_bundle(folder / name / "7", version="7") for name in (NAME, USAGE)]
    bundles: dict[str, Bundle] = {bundle.card.name: bundle for bundle in read}
    return InProcessPredictor(bundles=bundles)


def job(i: int = 0, **changes: object) -> dict[str, object]:
    """Return a job as it is asked about: one of a known group, user and type unless said otherwise."""
    said = {
        "job_id": f"a{i}",
        "task_type": "ctr",
        "user": f"u{i % 6}",
        "group": f"g{i % 3}",
        "role": "worker",
        "gpu_type": "T4",
        "instances": 2,
        "request": REQUEST,
    }
    return {**said, **changes}


def mixed(count: int) -> list[dict[str, object]]:
    """Return jobs of which some have no model, some no known user, some no known request."""
    odd: Sequence[dict[str, object]] = (
        {},
        {"task_type": "nlp"},
        {"user": "nobody", "group": None},
        {"gpu_type": "H999", "request": {"gpus": 1.0}},
        {"workload": "ctr", "task_type": "rl", "instances": 7},
        {"submit_ts": "2020-07-03T00:00:00Z", "request": {}},
        {"trace": "helios"},
    )
    return [job(i, **odd[i % len(odd)]) for i in range(count)]
