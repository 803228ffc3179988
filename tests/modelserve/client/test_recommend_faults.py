"""`Client.recommend` under every fault: no job is lost, nothing raised, nothing beyond its bounds, in time."""

import json
import logging
import math
import time
from pathlib import Path

import pytest

from modelserve.client import Client, Retries, Timeouts
from modelserve.errors import BadRequest
from scheduler_core.types import RESOURCES, Job, Reason, Request
from tests.modelserve.client.services import (
    Answer,
    answering,
    dripping,
    dripping_head,
    each,
    http,
    replying,
    serving,
    silent,
)
from tests.scheduler_core.cases import NAN, job, request

DEADLINE_S = 0.25
GRACE_S = 3.0
"""What a busy machine may add to a deadline."""

CUT = http(b'{"recommendations": [', length=500)
WHOLE_ANSWER_FAULTS: dict[str, Answer] = {
    "silent": silent,
    "slow_drip": dripping,
    "slow_drip_of_head": dripping_head,
    "closed_at_once": replying(b""),
    "no_http": replying(b"hello\r\n\r\n"),
    "half_a_body": replying(CUT),
    "500": replying(http(b"boom", "500 Internal Server Error")),
    "503": replying(http(b"{}", "503 Service Unavailable", retry_after="7")),
    "429": replying(http(b'{"title": "Too Many Requests"}', "429 Too Many Requests", retry_after="99999999999")),
    "429_with_a_date": replying(http(b"{}", "429 Too Many Requests", retry_after="Fri, 20 Nov 2026 12:00:05 GMT")),
    "422": replying(http(b'{"title": "Unprocessable", "detail": "theta: found 2"}', "422 Unprocessable")),
    "422_of_a_list": replying(http(b"[" * 3000, "422 Unprocessable")),
    "redirect": replying(http(b"", "307 Temporary Redirect", location="http://127.0.0.1:9/v1/recommendations")),
    "no_content": replying(http(b"")),
    "html": replying(http(b"<html></html>")),
    "not_a_number": replying(http(b'{"recommendations": [{"job_id": "a", "alpha": NaN}]}')),
    "too_deep": replying(http(b"[" * 60_000)),
    "no_unicode": replying(http(b'{"recommendations": "\xff"}')),
    "a_list": answering(lambda rows: {"0": rows}),
    "no_objects": answering(lambda rows: ["a" for _ in rows]),
    "too_large": replying(http(b" " * 300_000)),
    "infinite": replying(http(b'{"recommendations": [{"job_id": "j0", "alpha": 1e999}]}')),
    "without_end": replying(http(b" " * 300_000, length=10**12)),
    "compressed": replying(http(b"\x1f\x8b" * 40, content_encoding="gzip")),
    "wrong_order": answering(lambda rows: rows[::-1]),
    "one_missing": answering(lambda rows: rows[1:]),
    "one_twice": answering(lambda rows: [*rows[:-1], rows[0]]),
    "one_too_many": answering(lambda rows: [*rows, rows[0]]),
    "other_jobs": each(job_id="z"),
    "ids_of_another_kind": each(job_id=7),
}

ROW_FAULTS: dict[str, Answer] = {
    "negative_target": each(target__cpu_cores=-1.0),
    "no_gpu_left": each(target__gpus=0.0, lower_bound__gpus=0.0),
    "larger_than_request": each(target__mem_gib=8.5),
    "below_its_lower_bound": each(target__mem_gib=4.0),
    "enormous_target": each(target__gpus=10**400),
    "target_of_text": each(target__gpus="0.5"),
    "target_of_truth": each(target__gpus=True),
    "target_unknown": each(target__gpus=None),
    "no_target": each(target=None),
    "without_a_floor": each(lower_bound__gpus=None),
    "another_request": each(request__mem_gib=9.0),
    "reason_unknown": each(reasons__gpus="because"),
    "reason_missing": each(reasons__gpus=None),
    "shrunk_though_important": each(reasons__gpus="important"),
    "run_time_of_nothing": each(run_time_s__p50=0.0),
    "run_time_negative": each(run_time_s__p90=-5),
    "change_below_nothing": each(run_time_change=-1.5),
    "alpha_above_one": each(alpha=1.5),
    "mode_unknown": each(mode="force"),
    "models_of_text": each(models="7"),
}
SLOW = {"silent", "slow_drip", "slow_drip_of_head"}
FAULTS = WHOLE_ANSWER_FAULTS | ROW_FAULTS


def patient(address: str, deadline_s: float = 30.0, **parameters: object) -> Client:
    """Return a client that waits longer than a busy machine takes, unless told otherwise."""
    timeouts = Timeouts(connect_s=deadline_s, answer_s=deadline_s, total_s=deadline_s)
    once = Retries(tries=2, first_wait_s=0.0, longest_wait_s=0.0, busy=False)
    return Client(address, **{"timeouts": timeouts, "retries": once, "jobs_per_call": 10_000, **parameters})


def deadline_s(fault: str) -> float:
    return DEADLINE_S if fault in SLOW else 30.0


def asked(count: int = 3) -> list[Job]:
    return [job(f"j{i}", request(4.0, 8.0, 0.5), instances=i + 1) for i in range(count)]


def check_stands(jobs: list[Job], answers: list) -> None:  # the recommendations of any scale
    assert [answer.job_id for answer in answers] == [each.job_id for each in jobs]
    for one, answer in zip(jobs, answers, strict=True):
        assert answer.target == one.request
        assert set(answer.reasons.values()) <= {Reason.PREDICTOR_UNAVAILABLE}
        assert answer.note
        assert "the target was" not in answer.note


@pytest.mark.parametrize("fault", list(FAULTS))
def test_every_request_stands_under_every_fault_and_in_time(fault: str) -> None:
    jobs = asked()
    with serving(FAULTS[fault]) as service, patient(service.address, deadline_s=deadline_s(fault)) as client:
        began = time.monotonic()
        answers = client.recommend(jobs, guard="usage")
        took_s = time.monotonic() - began
    check_stands(jobs, answers)
    assert (fault in ROW_FAULTS) == answers[0].note.startswith("found")
    assert took_s < deadline_s(fault) + GRACE_S


def test_one_row_that_cannot_be_meant_takes_no_other_along() -> None:
    def spoil(rows: list) -> list:
        rows[1]["target"]["gpus"] = 9.0
        return rows

    jobs = asked()
    with serving(answering(spoil)) as service, patient(service.address) as client:
        first, second, third = client.recommend(jobs)
    assert second.target == jobs[1].request
    assert "gpus=9.0" in second.note
    assert first.target == third.target == Request(cpu_cores=3.0, mem_gib=4.6, gpus=0.1)


def test_an_answer_that_breaks_off_says_how_much_of_it_came() -> None:
    with serving(replying(b"HTTP/1.1 200 OK\r\n\r\n" + CUT[-21:])) as service, patient(service.address) as client:
        [answer] = client.recommend(asked(1))
    assert "found no JSON in the answer, read 21 bytes" in answer.note


def test_a_kept_connection_that_was_closed_is_made_anew() -> None:
    # The server closes after every answer without saying so; the second round finds that out as it sends.
    with serving(answering()) as service, patient(service.address) as client:
        rounds = [client.recommend(asked(1))[0] for _ in range(4)]
    assert {answer.target.gpus for answer in rounds} == {0.1}


def test_the_deadline_is_one_for_all_calls_of_a_round() -> None:
    jobs = asked(6)
    with serving(answering(), silent) as service, patient(service.address, deadline_s=0.5, jobs_per_call=2) as client:
        began = time.monotonic()
        found = client.recommend(jobs)
        took_s = time.monotonic() - began
    assert [answer.target.gpus for answer in found] == [0.1, 0.1, 0.5, 0.5, 0.5, 0.5]
    assert "did not answer within" in found[2].note
    assert "its time was over before the first try" in found[4].note
    assert took_s < 0.5 + GRACE_S


@pytest.mark.slow
def test_a_round_of_more_than_ten_thousand_jobs_is_split() -> None:
    jobs = [job(f"j{i}", request(4.0, 8.0, 0.5)) for i in range(10_001)]
    with serving(answering()) as service, patient(service.address) as client:
        found = client.recommend(jobs)
    assert [len(body["jobs"]) for body in service.bodies] == [10_000, 1]
    assert [answer.job_id for answer in found] == [each.job_id for each in jobs]
    assert {answer.target.gpus for answer in found} == {0.1}


def test_without_a_guard_targets_need_no_lower_bound() -> None:
    unbound = each(lower_bound=dict.fromkeys(RESOURCES))
    with serving(unbound) as service, patient(service.address) as client:
        [answer] = client.recommend(asked(1), guard="none", theta=0.2)
    assert answer.target.gpus == 0.1
    assert service.bodies[0]["guard"] == "none"
    assert service.bodies[0]["theta"] == 0.2


def test_whatever_a_refusal_says_can_be_written() -> None:
    refusing = replying(http(b'{"title": "half \\ud83d of a pair"}', "422 Unprocessable"))
    with serving(refusing) as service, patient(service.address) as client:
        [answer] = client.recommend(asked(1))
    assert "half ? of a pair" in answer.note
    answer.note.encode()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"job_id": "x" * 257}, "job_id: expected text of at most 256 characters"),
        ({"user": ""}, "user: expected text of at least 1 character"),
        ({"group": "\ud800"}, "group: expected valid Unicode text"),
        ({"wants": request(cpu_cores=math.inf)}, "request.cpu_cores: expected a finite number"),
        ({"instances": 0}, "instances: expected at least 1"),
        ({"submit_ts": 1e300}, "submit_ts: found 1e+300"),
        ({"minimum": request(gpus=-1.0)}, "floors.gpus: expected at least 0"),
    ],
)
def test_a_job_that_would_be_refused_is_not_asked_about(fields: dict, said: str) -> None:
    jobs = [job(**{"job_id": "odd", **fields}), *asked(2)]
    with serving(answering()) as service, patient(service.address) as client:
        odd, *others = client.recommend(jobs)
    assert odd.target == jobs[0].request
    assert said in odd.note
    assert [answer.target.gpus for answer in others] == [0.1, 0.1]
    assert [row["job_id"] for row in service.bodies[0]["jobs"]] == ["j0", "j1"]


def test_a_job_is_told_whole() -> None:
    told = job(
        "a", Request(cpu_cores=4.0, mem_gib=NAN, gpus=0.5), user="u", group="g", vc="v", cluster="c", role="worker",
        workload="bert", gpu_type="T4", instances=3, submit_ts=1596274200.0, opted_out=True,
        minimum=Request(cpu_cores=2.0, mem_gib=NAN, gpus=NAN),
    )  # fmt: skip
    with serving(answering()) as service, patient(service.address) as client:
        [answer] = client.recommend([told])
    assert service.bodies[0]["jobs"] == [
        {
            "job_id": "a", "trace": "toy", "task_type": "ctr", "role": "worker", "cluster": "c", "user": "u",
            "group": "g", "vc": "v", "workload": "bert", "gpu_type": "T4",
            "request": {"cpu_cores": 4.0, "gpus": 0.5}, "instances": 3, "submit_ts": "2020-08-01T09:30:00Z",
            "opted_out": True, "floors": {"cpu_cores": 2.0},
        }
    ]  # fmt: skip
    assert answer.reasons == dict.fromkeys(("cpu_cores", "gpus"), Reason.OPTED_OUT)


def test_the_token_is_sent_and_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    echo = replying(http(json.dumps({"detail": "no such token: s3cret"}).encode(), "401 Unauthorized"))
    caplog.set_level(logging.DEBUG)
    with serving(echo) as service, patient(service.address, token="s3cret") as client:
        [answer] = client.recommend(asked(1))
        shown = repr(client)
    assert "authorization: Bearer s3cret" in service.heads[0]
    assert "401" in answer.note
    assert "s3cret" not in answer.note + shown + caplog.text


def test_redirects_take_the_token_nowhere() -> None:
    with serving(answering()) as elsewhere:
        away = replying(http(b"", "307 Temporary Redirect", location=f"{elsewhere.address}/v1/recommendations"))
        with serving(away) as service, patient(service.address, token="s3cret") as client:
            client.recommend(asked(1))
    assert elsewhere.heads == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"address": "http://user:secret@host"},
        {"jobs_per_call": 10_001},
        {"address": "https://host", "ca_file": Path("there-is-no-such-file")},
    ],
)
def test_parameters_that_cannot_be_meant_are_refused(arguments: dict) -> None:
    with pytest.raises(BadRequest) as refusal:
        Client(arguments.pop("address", "http://127.0.0.1:8080"), **arguments)
    assert "secret" not in str(refusal.value)
