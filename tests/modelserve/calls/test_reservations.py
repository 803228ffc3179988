"""Reservations of running jobs: reasons, floors, statistics that go on, and a log that holds no samples."""

import json
from pathlib import Path
from typing import get_args

import pytest

from modelserve.contract.fields import RequestRow
from modelserve.contract.reservations import Fault, InputFault, Reason
from modelserve.service import Service
from modelserve.settings import TypePolicy
from scheduler_core.reserve import ReserveReason, SampleFault
from tests.modelserve.answering import NOW, service_of
from tests.modelserve.running_jobs import LEARNED, POLICY, Row, asked, columns, job, stands


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return service_of(tmp_path, learned=LEARNED)


def test_a_measured_job_reserves_its_mean_spread_and_largest_memory(service: Service) -> None:
    [row] = asked(service, job(gpu_type="T4"))

    assert (row["reason"], row["mode"], row["refused"], row["note"]) == ("measured", "enforce", [], None)
    assert row["mean"]["cpu_cores"] == pytest.approx(row["statistics"]["cpu_cores"]["recent"])
    assert row["spread"]["cpu_cores"] == pytest.approx(POLICY.least_spread * row["mean"]["cpu_cores"])
    assert row["memory"]["mem_gib"] == pytest.approx(POLICY.memory_margin * 4.08)
    assert row["memory"]["gpu_mem_gib"] == pytest.approx(16.0 * row["memory"]["gpu_mem_gpus"])
    assert (row["statistics"]["count"], row["statistics"]["at_s"]) == (30, 1800.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"age_s": POLICY.probation_s - 1.0, "samples": columns(4)}, "probation"),
        ({"samples": columns(2, at_s=[1700.0, 1760.0])}, "probation"),
        ({"samples": ...}, "probation"),
        ({"age_s": 1800.0 + POLICY.stale_s + 1.0}, "stale"),
        ({"held": True}, "held"),
        ({"opted_out": True}, "held"),
        ({"task_type": "nlp"}, "held"),
    ],
)
def test_the_request_stands_for_a_reason(service: Service, changes: Row, reason: str) -> None:
    [row, other] = asked(service, job(**changes), job("b"))

    assert row["reason"] == reason
    assert stands(row)
    assert other["reason"] == "measured"


def test_age_follows_from_the_start(service: Service) -> None:
    start = "2020-08-02T23:29:30Z"  # 1830 s before `NOW`

    [by_age, by_start, ahead] = asked(
        service,
        job(),
        job(age_s=..., start_ts=start),
        job(age_s=..., start_ts="2020-08-03T00:01:00Z", samples=...),
    )

    assert by_age == by_start
    assert ahead["reason"] == "probation"
    assert NOW == 1596412800.0


def test_a_pressing_job_gets_its_request_of_that_resource_back_at_once(service: Service) -> None:
    bursting = columns(10, cpu_cores=[1.0] * 9 + [5.0])

    [row] = asked(service, job(age_s=605.0, samples=bursting))
    again = row["statistics"]
    [later, over] = asked(
        service,
        job(age_s=700.0, samples=..., statistics=again),
        job(age_s=600.0 + POLICY.press_s + 5.0, samples=..., statistics={**again, "at_s": 1190.0}),
    )

    assert (row["reason"], row["mean"]["cpu_cores"], row["spread"]["cpu_cores"]) == ("pressing", 6.0, 0.0)
    assert row["mean"]["gpus"] < 0.2
    assert row["statistics"]["cpu_cores"]["pressed_s"] == 600.0
    assert "cpu_cores" in row["note"]
    assert later["reason"] == "pressing"
    assert over["reason"] == "measured"
    assert over["mean"]["cpu_cores"] == pytest.approx(7.0 / 3.0), "the recent mean: a third of the way from 1 core to 5"


def test_statistics_of_an_answer_go_on_in_the_next_call(service: Service) -> None:
    whole, part = columns(30), columns(30)
    first = {name: values[:12] for name, values in part.items()}
    rest = {name: values[12:] for name, values in part.items()}

    [early] = asked(service, job(age_s=720.0, samples=first))
    [parted, at_once] = asked(service, job(samples=rest, statistics=early["statistics"]), job(samples=whole))

    assert parted["statistics"] == at_once["statistics"]
    assert parted["mean"] == at_once["mean"]


def test_what_is_not_measured_keeps_its_part_of_the_request(service: Service) -> None:
    unsampled = {name: values for name, values in columns().items() if name not in ("gpu_mem_gpus", "cpu_cores")}
    of_device = {**unsampled, "gpu_mem_gib": [1.0] * 30}

    [row, unknown] = asked(service, job(samples=unsampled), job(samples=of_device, gpu_type="H999"))

    for each in (row, unknown):
        assert each["reason"] == "measured"
        assert (each["mean"]["cpu_cores"], each["memory"]["gpu_mem_gpus"]) == (6.0, 0.5)
        assert each["note"] == "not measured, so the request stands: cpu_cores, gpu_mem_gpus"
    assert unknown["memory"]["gpu_mem_gib"] is None


def test_what_was_not_requested_is_null_but_for_memory_in_use(service: Service) -> None:
    [row, idle] = asked(service, job(request={"cpu_cores": 6.0}), job(request={"cpu_cores": 6.0}, samples=...))

    assert (row["mean"]["gpus"], row["spread"]["gpus"]) == (None, None)
    assert row["memory"]["mem_gib"] == pytest.approx(POLICY.memory_margin * 4.08)
    assert idle["memory"] == {"mem_gib": None, "gpu_mem_gpus": None, "gpu_mem_gib": None}


def test_floors_after_kills_and_minimums_hold(service: Service) -> None:
    [free, killed, own] = asked(service, job(), job(group="g1"), job(floors={"cpu_cores": 4.0, "mem_gib": 99.0}))

    assert killed["memory"]["mem_gib"] == 28.5 > free["memory"]["mem_gib"]
    assert (own["mean"]["cpu_cores"], own["memory"]["mem_gib"]) == (4.0, 29.0)
    assert own["mean"]["cpu_cores"] + POLICY.z * own["spread"]["cpu_cores"] <= 6.0


def test_the_operators_minimum_holds_too(tmp_path: Path) -> None:
    service = service_of(tmp_path, types={"ctr": TypePolicy(minimums=RequestRow(mem_gib=20.0, gpus=0.4))})

    [row] = asked(service, job())

    assert (row["memory"]["mem_gib"], row["mean"]["gpus"], row["memory"]["gpu_mem_gpus"]) == (20.0, 0.4, 0.4)
    assert row["mode"] == "observe"


def test_a_job_is_answered_alike_whoever_is_in_the_call(service: Service) -> None:
    rows = [job(f"j{i}", samples=columns(5 + i), age_s=400.0 + 60.0 * i) for i in range(20)]
    bad = [job(f"b{i}", samples=columns(5, mem_gib=[-1.0] * 5)) for i in range(5)]

    alone = [asked(service, row)[0] for row in rows]
    together = asked(service, *bad, *rows)

    assert together[5:] == alone


def test_the_log_holds_no_samples(service: Service) -> None:
    asked(service, job(samples=columns(30, cpu_cores=[1.23456] * 30)))

    record = service.log.records[-1]  # type: ignore[attr-defined]
    logged = json.loads(record.context)["body"]
    assert (record.kind, record.models) == ("reservation", "")
    assert logged["jobs"][0]["user"] == "u1", "where an erasure looks for it"
    assert not {"samples", "statistics"} & set(logged["jobs"][0])
    assert len(record.context) < 1500


def test_the_contract_lists_the_reasons_and_faults_of_the_decision() -> None:
    assert set(get_args(Reason)) == {*ReserveReason, "refused"}
    assert set(get_args(Fault)) == {*SampleFault, *get_args(InputFault)}
