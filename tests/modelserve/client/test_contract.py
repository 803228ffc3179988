"""The client and the service agree: what is sent is what the document takes, what it answers is what is read."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import jsonschema
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

from modelserve.api.app import OPERATIONS
from modelserve.api.routes import add_operations
from modelserve.client import AsyncClient
from modelserve.contract.calls import CALLS as TABLE
from modelserve.contract.fields import RequestRow
from modelserve.contract.models import Ready
from modelserve.errors import WrongAnswer
from tests.modelserve.api.test_answers import ROUTES

Schema = dict[str, Any]  # JSON Schema is as deep as it likes

JOB = {
    "job_id": "a1",
    "task_type": "ctr",
    "trace": "pai",
    "cluster": "c1",
    "user": "u7",
    "submit_ts": "2026-11-20T03:00:00Z",
    "request": {"cpu_cores": 6, "gpus": 0.5},
}
FINISHED = {
    "job_id": "a1",
    "task_type": "ctr",
    "submit_ts": "2026-11-20T03:00:00Z",
    "start_ts": "2026-11-20T03:01:00Z",
    "end_ts": "2026-11-20T04:00:00Z",
    "outcome": "completed",
    "request": {"cpu_cores": 6, "gpus": 0.5},
}
USE = {"mean": 1.0, "squares": 0.5, "recent": 1.2, "pressed_s": 60.0}
RUNNING = {
    **JOB,
    "age_s": 900.0,
    "device_mem_gib": 16.0,
    "samples": {"at_s": [840.0, None], "gpus": [0.2, 0.3], "gpu_mem_gib": [2.0, 2.5]},
    "statistics": {"count": 9, "at_s": 780.0, "cpu_cores": USE, "gpus": USE, "mem_gib": 4.0, "gpu_mem_gpus": 0.2},
}
CLUSTER = {
    "machines": [{"machine": "m1", "cpu_cores": 8, "mem_gib": 64, "gpus": 4}],
    "running": [{"job_id": "r1", "request": {"cpu_cores": 1}, "on": [{"machine": "m1"}], "ends_in_s": 60.0}],
    "jobs": [{"job_id": "a1", "request": {"cpu_cores": 6, "gpus": 0.5}, "machines": ["m1"], "priority": 2.0}],
    "cluster": "c1",
    "placement": "fgd",
}
GPU_JOB = {**JOB, "request": {"gpus": 2.0}, "run_s": 60.0}
PLAN = {
    "objective": "carbon",
    "jobs": [{**GPU_JOB, "speedup": {4: 1.8}, "speed_on": {"V100": 1.5}, "node": "a-0", "running_gpus": 2}],
    "nodes": [{"name": "a", "gpu_type": "V100", "gpus": 8, "gpu_idle_w": 30.0, "gpu_full_w": 300.0}],
    "clocks": [{"mhz": 900.0, "speed": 0.8, "power": 0.5}, {"mhz": 1500.0, "speed": 1.0, "power": 1.0}],
    "g_per_kwh": 300.0,
    "budget_g": 500.0,
}
HOURS = {"start_ts": "2023-06-01T00:00:00Z", "values": [300.0]}
Ask = Callable[[AsyncClient], Any]

ASKED: dict[str, Ask] = {
    "predict": lambda c: c.predictions([JOB], trace="pai", outputs=["run_time", "peak_use"]),
    "recommend": lambda c: c.recommendations(
        [{**JOB, "floors": {"gpus": 0.2}}], theta=0.1, alpha=0.4, guard="none", floors=RequestRow(mem_gib=1.0)
    ),
    "recent_recommendations": lambda c: c.recent_recommendations(task_type="ctr"),
    "reserve": lambda c: c.reservations([RUNNING], trace="pai"),
    "place": lambda c: c.placements(CLUSTER),
    "schedule": lambda c: c.schedule({**CLUSTER, "theta": 0.1}),
    "explain_pending": lambda c: c.explain_pending(CLUSTER, job_ids=["a1"]),
    "route": lambda c: c.routes(ROUTES),
    "plan": lambda c: c.plan(PLAN),
    "hold": lambda c: c.holds([{**GPU_JOB, "slack_s": 60.0}], by="carbon", hours=HOURS, trace="pai"),
    "explain": lambda c: c.explanations(JOB, top=3, quantile="p90"),
    "what_if": lambda c: c.what_if(JOB, "cpu_cores", trace="pai", points=5),
    "take_feedback": lambda c: c.feedback([FINISHED], trace="pai"),
    "read_modes": lambda c: c.modes(),
    "set_mode": lambda c: c.set_mode("enforce", trace="pai", cluster="c", group="g"),
    "read_drift": lambda c: c.drift(trace="pai", task_type="ctr"),
    "list_models": lambda c: c.models(),
    "importances_of": lambda c: c.importances("runtime.pai.ctr"),
    "card_of": lambda c: c.card("runtime.pai.ctr"),
}
"""A call of the client for every function in the table of calls."""
CALLS: dict[tuple[str, str], tuple[type[BaseModel], Ask]] = {
    **{(of.method, of.path): (of.answer, ASKED[of.function]) for of in TABLE},
    ("GET", "/readyz"): (Ready, lambda c: c.ready()),
}
OWN = {"answer_id"}
"""What the client writes into each row itself."""


@pytest.fixture(scope="module")
def document() -> Schema:
    app = FastAPI()
    add_operations(app, OPERATIONS)
    return json.loads(json.dumps(app.openapi()))


def standing_alone(document: Schema, schema: Schema) -> Schema:
    """Return a schema of the document with what it refers to."""
    text = json.dumps({**schema, "$defs": document["components"]["schemas"]})
    return json.loads(text.replace("#/components/schemas/", "#/$defs/"))


def sent_by(ask: Ask, answer: bytes = b"{}") -> httpx2.Request:
    seen: list[httpx2.Request] = []

    def answered(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, content=answer)

    async def run() -> None:
        async with AsyncClient("http://service", transport=httpx2.MockTransport(answered)) as client:
            with pytest.raises(WrongAnswer):
                await ask(client)

    asyncio.run(run())
    return seen[0]


@pytest.mark.parametrize(("method", "path"), CALLS)
def test_what_is_sent_is_what_the_document_takes(document: Schema, method: str, path: str) -> None:
    request = sent_by(CALLS[method, path][1])
    operation = document["paths"][path][method.lower()]

    pattern = path.replace("{user}", "a%2Fb").replace("{name}", "runtime.pai.ctr")
    known = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
    assert (request.method, request.url.raw_path.decode().partition("?")[0]) == (method, pattern)
    assert set(request.url.params) <= known
    assert ("requestBody" in operation) == bool(request.content)
    if request.content:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        jsonschema.validate(json.loads(request.content), standing_alone(document, schema))
