"""Attacks on calls: NUL in names and numbers as dates in every field of every body, and guessed tokens without end."""

import typing
from collections.abc import Callable, Iterator

import pytest
from pydantic import AwareDatetime, BaseModel, TypeAdapter, ValidationError
from starlette.testclient import TestClient

from modelserve.api.app import OPERATIONS
from modelserve.api.calls import MOST_BUCKETS, UNKNOWN_PER_S, Rates
from modelserve.api.problems import Refusal
from tests.modelserve.api.conftest import TOKENS, bearer, job

Make = Callable[..., TestClient]
PROTOCOLS = ("modelserve.api.",)
"""Modules of bodies of other protocols, whose columns become jobs of `/v1/predictions`."""


def bodies() -> list[type[BaseModel]]:
    """Return the models of all bodies, with the models in them."""
    found: dict[type[BaseModel], None] = {}

    def add(annotation: object) -> None:
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and annotation not in found:
            found[annotation] = None
            for field in annotation.model_fields.values():
                add(field.annotation)
        for part in typing.get_args(annotation):
            add(part)

    for operation in OPERATIONS:
        if operation.body is not None:
            add(operation.body)
    return [each for each in found if not each.__module__.startswith(PROTOCOLS)]


def fields(kind: type) -> Iterator[tuple[str, TypeAdapter[object]]]:
    """Yield the name of every field that may hold a value of the type, and the validator of the field."""
    for model in bodies():
        for name, field in model.model_fields.items():
            if _holds(field.annotation, kind):
                checked = typing.Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
                yield f"{model.__name__}.{name}", TypeAdapter(checked)


def _holds(annotation: object, kind: type) -> bool:
    return annotation is kind or any(_holds(part, kind) for part in typing.get_args(annotation))


DATES = dict(fields(AwareDatetime))
NAMES = dict(fields(str))


def test_there_are_dates_and_names_to_attack() -> None:
    assert len(DATES) >= 6
    assert len(NAMES) >= 20


@pytest.mark.parametrize("name", DATES)
def test_no_date_of_any_body_is_taken_as_a_number(name: str) -> None:
    for number in ("0", '"0"', '"1600000000"', "1600000000", "1.6e9", '"1600000000.5"', '"20200801"'):
        with pytest.raises(ValidationError):
            DATES[name].validate_json(number, strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_of_any_body_may_hold_nul(name: str) -> None:
    for text in ('"a\\u0000b"', '["a\\u0000b"]'):
        with pytest.raises(ValidationError):
            NAMES[name].validate_json(text)


def test_a_name_with_nul_is_refused_by_field(call: Make) -> None:
    answer = call().post("/v1/predictions", json={"trace": "pai", "jobs": [job(user="u\0")]})

    assert answer.status_code == 422
    assert "jobs.0.user: expected text without a NUL character" in answer.json()["detail"]


def test_401s_are_limited_and_known_tokens_still_served(call: Make) -> None:
    client = call(tokens=TOKENS)
    found = [client.get("/v1/models", headers={"authorization": f"Bearer guess{number}"}) for number in range(40)]
    statuses = [answer.status_code for answer in found]

    assert statuses[: int(UNKNOWN_PER_S)] == [401] * int(UNKNOWN_PER_S)
    assert statuses[-1] == 429
    assert int(found[-1].headers["retry-after"]) >= 1
    assert client.get("/v1/nothing", headers=bearer("chief")).status_code == 404
    assert client.get("/healthz").status_code == 200


def test_the_limit_of_401s_is_of_an_address_and_its_memory_bounded() -> None:
    rates = Rates(1.0, clock=lambda: 0.0)
    rates.take("a")
    with pytest.raises(Refusal):
        rates.take("a")
    for number in range(MOST_BUCKETS):
        rates.take(str(number))

    rates.take("a")  # the oldest bucket was dropped
    assert len(rates._buckets) == MOST_BUCKETS
