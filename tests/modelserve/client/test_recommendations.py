"""Recommendations of both kinds against a script: parts and their order, wrong answers, unchanged requests."""

import json
import math
from collections.abc import Callable

import pytest

from modelserve.client import Client
from modelserve.contract.fields import RequestRow
from modelserve.errors import Refused, WrongAnswer
from scheduler_core.types import Request
from tests.modelserve.client.conftest import job, recommending, reply, rows
from tests.modelserve.client.services import Service

Serve = Callable[..., Service]


@pytest.mark.parametrize(("count", "calls"), [(0, 0), (1, 1), (7, 1), (8, 2), (20, 3)])
def test_a_long_list_is_sent_in_parts_and_answered_as_one(
    serve: Serve, client_of: Callable[..., Client], count: int, calls: int
) -> None:
    service = serve(recommending())

    with client_of(service.address, jobs_per_call=7) as client:
        found = client.recommendations(rows(count))

    assert [row.job_id for row in found] == [f"j{i}" for i in range(count)]
    assert len(service.seen) == calls
    assert len({row.answer_id for row in found}) == calls


def test_a_part_that_is_too_large_is_refused(serve: Serve, client_of: Callable[..., Client]) -> None:
    service = serve(reply(413))

    with client_of(service.address) as client, pytest.raises(Refused, match="413"):
        client.recommendations(rows(2))

    assert len(service.seen) == 1


SPOILT: dict[str, Callable[[list[dict[str, object]]], object]] = {
    "swapped": lambda rows: rows.reverse(),
    "short": lambda rows: rows.pop(),
    "without target": lambda rows: rows[0].pop("target"),
    "unknown reason": lambda rows: rows[0]["reasons"].update(cpu_cores="because"),
}


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_an_answer_to_something_else_is_an_error(
    serve: Serve, client_of: Callable[..., Client], spoil: Callable[[list[dict[str, object]]], object]
) -> None:
    service = serve(recommending(lambda said: spoil(said["recommendations"])))

    with client_of(service.address) as client, pytest.raises(WrongAnswer, match="expected"):
        client.recommendations(rows(3))


@pytest.mark.parametrize("said", [b"", b"<html>", b"[]", b'{"answer_id":"a"}', b'{"recommendations":[]}'])
def test_what_is_no_answer_is_an_error(serve: Serve, client_of: Callable[..., Client], said: bytes) -> None:
    service = serve(reply(200, said))

    with client_of(service.address) as client, pytest.raises(WrongAnswer, match="taut service"):
        client.recommendations(rows(1))


def test_a_part_without_an_answer_takes_no_other_part_along(serve: Serve, client_of: Callable[..., Client]) -> None:
    service = serve(recommending(), reply(500), recommending())

    with client_of(service.address, jobs_per_call=2) as client:
        found = client.recommend([job(name) for name in "abcdef"])

    assert [bool(each.answer_id) for each in found] == [True, True, False, False, True, True]


def test_the_least_a_job_is_given_goes_along(serve: Serve, client_of: Callable[..., Client]) -> None:
    service = serve(recommending())
    least = Request(cpu_cores=4.0, mem_gib=math.nan, gpus=math.nan)

    with client_of(service.address) as client:
        client.recommend([job(minimum=least)])
        client.recommendations([{**rows(1)[0], "floors": {"gpus": 0.25}}], floors=RequestRow(mem_gib=8.0))

    by_job, by_call = (json.loads(body) for _, _, body in service.seen)
    assert by_job["jobs"][0]["floors"] == {"cpu_cores": 4.0}
    assert by_call["jobs"][0]["floors"] == {"gpus": 0.25}
    assert by_call["floors"] == {"mem_gib": 8.0}


@pytest.mark.parametrize(("mode", "given"), [("enforce", 3.0), ("observe", 6.0)])
def test_only_what_is_enforced_is_given(
    serve: Serve, client_of: Callable[..., Client], mode: str, given: float
) -> None:
    def say(answer: dict[str, object]) -> None:
        answer["recommendations"][0]["mode"] = mode

    with client_of(serve(recommending(say)).address) as client:
        [found] = client.recommend([job()])

    assert found.given.cpu_cores == given
    assert found.target.cpu_cores == 3.0
    assert found.answer_id == "a-1"
