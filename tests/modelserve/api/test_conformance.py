"""The service against its own OpenAPI document: every check of schemathesis, on calls that fit and calls that do not.

The document is aimed at what the small service knows (its trace, type, models and columns), since names drawn at random
would only ever find nothing.
"""

import copy
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis.generation import GenerationMode
from schemathesis.python.asgi import get_client

from modelserve.api.app import OPERATIONS, create_app
from modelserve.bundle.flavor import INPUTS
from modelserve.service import Service
from tests.modelserve.api.test_answers import CALLS

pytestmark = pytest.mark.slow

LABELS = [f"{operation.method} {operation.path}" for operation in OPERATIONS]
NAMES = ["runtime.pai.ctr", "usage.pai.ctr"]
SECRET = "chief"
CASES = int(os.environ.get("TAUT_CONFORMANCE_CASES", "25"))

FIT = ("2xx", "401", "403", "404", "429")
BEYOND_A_SCHEMA = {
    "POST /v1/feedback": "422",  # the times of a run in their order, none of them ahead
    "POST /v1/placements": "422",  # names of the call's own machines, jobs that fit them
    "POST /v1/explain-pending": "422",
    "POST /v1/schedule": "422",
    "POST /v1/route": "422",  # free GPUs within the site's, jobs at the call's own sites
    "POST /v1/plan": "422",  # whole GPUs of a job, what the objective needs, running jobs on the call's own nodes
    "POST /v1/hold": "422",  # the value of the current hour
    "POST /v1/mode": "422",  # either a mode or a reset
    "POST /v2/models/{model}/infer": "400",  # shapes as long as their data, types as their columns
    "POST /v2/models/{model}/versions/{version}/infer": "400",
}
"""Calls whose document cannot say everything that is expected, and how they refuse the rest."""


RUN = {
    "job_id": "f1",
    "task_type": "ctr",
    "submit_ts": "2020-08-01T09:00:00Z",
    "start_ts": "2020-08-01T09:10:00Z",
    "end_ts": "2020-08-01T09:20:00Z",
    "outcome": "completed",
    "request": {"gpus": 0.5},
}
OF_CLUSTERS = ("placements", "schedule", "explain-pending", "route", "plan", "hold")
FITTING = {
    **{f"/v1/{name}": CALLS[f"/v1/{name}"] for name in OF_CLUSTERS},
    "/v1/feedback": {"feedback": [RUN]},
    "/infer": {"inputs": [{"name": "user", "shape": [2], "datatype": "BYTES", "data": ["u1", "u2"]}]},
}
"""Bodies that fit, by the end of their path: what is drawn at random hardly ever does."""


def aimed(document: dict[str, object]) -> dict[str, object]:
    document = copy.deepcopy(document)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            fitting = [body for end, body in FITTING.items() if path.endswith(end) and "requestBody" in operation]
            if fitting:
                content = operation["requestBody"]["content"]["application/json"]
                content["schema"] = either(fitting, content["schema"])
            for parameter in operation["parameters"]:
                known = {"model": NAMES, "name": NAMES, "version": ["1"]}
                if parameter["name"] in known:
                    parameter["schema"] = {"enum": known[parameter["name"]]}
    schemas = document["components"]["schemas"]
    for name, schema in schemas.items():
        if name.endswith(("Row", "Job", "Body")):
            for field, values in {"task_type": ["ctr"], "trace": ["pai"], "cluster": ["pai"]}.items():
                if field in schema.get("properties", {}):
                    schema["properties"][field] = either(values, schema["properties"][field])
    tensor = schemas["InputTensor"]["properties"]
    tensor["name"] = either(list(INPUTS), tensor["name"])
    return document


def either(values: list[object], schema: dict[str, object]) -> dict[str, object]:
    return {"anyOf": [{"enum": values}, schema]}


COMPILED_WITHIN_S = 120.0
"""Longest wait for an answer: the first ones of a call may compile its kernels."""


@pytest.fixture(scope="module")
def secret() -> dict[str, object]:
    return {"name": SECRET, "sha256": hashlib.sha256(SECRET.encode()).hexdigest(), "scopes": ["admin"]}


@pytest.fixture
def schema(make_service: Callable[..., Service], secret: dict[str, object]) -> Iterator[object]:
    app = create_app(make_service(tokens=[secret], answers_kept=0, answer_limit_s=COMPILED_WITHIN_S))
    app.state.desk.unknown._calls_per_s = None  # the checks leave out the token more often than an address may
    config = schemathesis.Config.from_dict(
        {
            "auth": {"openapi": {"token": {"bearer": SECRET}}},
            "operations": [
                {"include-name": label, "checks": {"positive_data_acceptance": {"expected-statuses": [*FIT, also]}}}
                for label, also in BEYOND_A_SCHEMA.items()
            ],
        }
    )  # fmt: skip
    loaded = schemathesis.openapi.from_dict(aimed(app.openapi()), config=config)
    loaded.app = app
    return loaded


def check_conforms(schema: object, label: str, cases: int) -> Counter[int]:
    """Make `cases` calls of an operation, half of them unfit, and run every check on each answer."""
    operation = next(each.ok() for each in schema.get_all_operations() if each.ok().label == label)
    statuses: Counter[int] = Counter()
    client = get_client(schema.app)
    fit = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
    unfit = operation.as_strategy(generation_mode=GenerationMode.NEGATIVE)

    @given(case=fit | unfit)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def call(case: schemathesis.Case) -> None:
        assume("?" not in case.formatted_path)  # written into the URL as it is, where a query begins with it
        answer = case.call(session=client, timeout=COMPILED_WITHIN_S)
        statuses[answer.status_code] += 1
        case.validate_response(answer)

    call()
    assert max(statuses) < 500
    return statuses


@pytest.mark.parametrize("label", LABELS)
def test_every_answer_is_as_documented(schema: object, label: str) -> None:
    statuses = check_conforms(schema, label, cases=CASES)

    assert statuses.total() >= CASES
    assert statuses[200] > 0 or label in BEYOND_A_SCHEMA
