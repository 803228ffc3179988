"""A service of stand-ins behind the real application: what the gate and the routes do needs no model."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from modelserve.api.app import create_app
from modelserve.learning.learned import Learned
from modelserve.service import Service, open_service
from modelserve.settings import ServeSettings
from tests.modelserve.mirrored import NAME, USAGE, Folder

TEXTS = {name: f"text-of-{name}" for name in ("predictor", "reporter", "chief", "bound")}


def token(name: str, *scopes: str, **bounds: list[str]) -> dict[str, object]:
    digest = hashlib.sha256(TEXTS[name].encode()).hexdigest()
    return {"name": name, "sha256": digest, "scopes": list(scopes), **bounds}


TOKENS = [
    token("predictor", "predict"),
    token("reporter", "feedback"),
    token("chief", "admin"),
    token("bound", "predict", "feedback", traces=["pai"], clusters=["c1"]),
]


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {TEXTS[name]}"}


class StandIn:
    """A part of the service that nothing asks for anything but what it is given."""

    def __init__(self, **said: object) -> None:
        self.__dict__.update(said)

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def refresh(self) -> list[object]:
        return []

    def poll(self) -> int:
        return 0


def model(name: str, version: str) -> object:
    card = SimpleNamespace(name=name, until=SimpleNamespace(timestamp=lambda: 0.0))
    return SimpleNamespace(bundle=SimpleNamespace(card=card, version=version), reference=f"{name}@{version}")


@pytest.fixture
def hollow(tmp_path: Path) -> Callable[..., FastAPI]:
    """Return a maker of applications whose service is hollow: two models that answer nothing."""

    def make(**settings: object) -> FastAPI:
        snapshot = SimpleNamespace(
            champions={name: model(name, "7") for name in ("runtime.pai.ctr", "usage.other.ctr")},
            failures={"runtime.pai.cv": "checksums.json: gone"},
            generation=3,
        )
        service = Service(
            settings=ServeSettings(bundles=tmp_path, **settings),
            models=StandIn(current=snapshot),  # type: ignore[arg-type]
            store=StandIn(lost=False, unwritten=None),  # type: ignore[arg-type]
            log=StandIn(dropped=0),  # type: ignore[arg-type]
            feed=StandIn(trouble=None, learned=Learned()),  # type: ignore[arg-type]
            clock=lambda: 1_000_000.0,
        )
        return create_app(service)

    return make


@pytest.fixture
def call(hollow: Callable[..., FastAPI]) -> Iterator[Callable[..., TestClient]]:
    """Return a maker of clients of hollow applications, their upkeep running."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(TestClient(hollow(**settings)))


@pytest.fixture
def make_service(folder: Folder) -> Iterator[Callable[..., Service]]:
    """Return a maker of real services over the folder of two mirrored models."""
    with ExitStack() as stack:

        def make(**settings: object) -> Service:
            said = {"bundles": folder.path, "store": f"sqlite:///{folder.path}/serve.db", "trace": "pai"}
            return stack.enter_context(closing(open_service(ServeSettings(**{**said, **settings}))))

        yield make


@pytest.fixture
def serve(make_service: Callable[..., Service]) -> Iterator[Callable[..., TestClient]]:
    """Return a maker of clients of real applications, their upkeep running."""
    with ExitStack() as stack:
        yield lambda **settings: stack.enter_context(TestClient(create_app(make_service(**settings))))


def job(job_id: str = "a1", **changes: object) -> dict[str, object]:
    said = {
        "job_id": job_id,
        "task_type": "ctr",
        "user": "u1",
        "group": "g0",
        "cluster": "pai",
        "role": "worker",
        "gpu_type": "T4",
        "instances": 2,
        "submit_ts": "2020-08-01T09:30:00Z",
        "request": {"cpu_cores": 6, "mem_gib": 29.3, "gpus": 0.5},
    }
    return {**said, **changes}


@pytest.fixture(scope="module")
def client(small_bundles: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Return a client of one real application for all calls of a file that leave nothing that another call sees."""
    folder = Folder(tmp_path_factory.mktemp("shared"), small_bundles)
    folder.add(NAME, "1")
    folder.add(USAGE, "1")
    settings = ServeSettings(bundles=folder.path, store=f"sqlite:///{folder.path}/serve.db", trace="pai")
    with closing(open_service(settings)) as service, TestClient(create_app(service)) as made:
        yield made
