import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelserve.callers import ANYONE, Caller
from modelserve.calls.predictions import predict
from modelserve.contract.calls import PREDICT
from modelserve.contract.requests import JobRow
from modelserve.errors import BadRequest, Forbidden
from modelserve.learning.learned import Learned
from modelserve.loading.models import Snapshot
from modelserve.scopes import Scope
from modelserve.service import Service
from tests.examples import examples
from tests.modelserve.answering import (
    NOW,
    REQUEST,
    answer_of,
    folder_of,
    in_process,
    job,
    mixed,
    service_of,
    with_card,
    without_trees,
)
from tests.modelserve.mirrored import NAME


def ask(service: Service, jobs: list[dict[str, object]], caller: Caller = ANYONE, **said: object) -> list[dict]:
    return answer_of(service, PREDICT, caller, jobs=jobs, **said)["predictions"]


def test_answers_equal_those_of_the_commands_to_the_bit(service: Service, place: Path) -> None:
    rows = [JobRow.model_validate(each) for each in mixed(21)]
    found = ask(service, mixed(21))

    expected = predict(rows, in_process(place), trace="pai", now=datetime.fromtimestamp(NOW, UTC))

    for one, other in zip(found, expected, strict=True):
        assert one["job_id"] == other["job_id"]
        assert (one["run_time_s"] or {}).get("p50") == other["run_time_p50_s"]
        assert (one["run_time_s"] or {}).get("p90") == other["run_time_p90_s"]
        for target in ("cpu_cores", "mem_gib", "gpus", "gpu_mem_gib"):
            assert (one["peak_use"] or {}).get(target) == other[f"peak_{target}"]
        assert one["measured_runs"] == other["measured_runs"]
        assert one["models"]["run_time"] == other["model_run_time"]


def test_a_batch_answers_as_single_calls_do_and_keeps_their_order(service: Service) -> None:
    jobs = mixed(40)

    together = ask(service, jobs)

    assert [each["job_id"] for each in together] == [each["job_id"] for each in jobs]
    assert together == [ask(service, [each])[0] for each in jobs]


@pytest.mark.parametrize("changes", [{"task_type": "unheard-of"}, {"trace": "helios"}], ids=str)
def test_what_has_no_model_fails_no_other(service: Service, changes: dict[str, object]) -> None:
    [unknown, known] = ask(service, [job(0, **changes), job(1)])

    assert unknown["run_time_s"] is unknown["peak_use"] is unknown["history"] is None
    assert unknown["reason"] == "no_model"
    assert "runtime." in unknown["note"]
    assert known["reason"] is None


letters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")  # texts with NUL are refused
texts = st.one_of(st.none(), st.sampled_from(["u1", "g1", "ctr", "T4"]), st.text(letters, min_size=1, max_size=20))
amounts = st.one_of(st.none(), st.floats(0.0, 1e6))


@settings(deadline=None, max_examples=examples(60))
@given(
    jobs=st.lists(
        st.fixed_dictionaries(
            {
                "job_id": st.text(letters, min_size=1, max_size=8),
                "task_type": st.sampled_from(["ctr", "nlp"]) | st.text(letters, min_size=1, max_size=5),
                "request": st.fixed_dictionaries(dict.fromkeys(REQUEST, amounts)),
                "user": texts,
                "group": texts,
                "vc": texts,
                "cluster": texts,
                "workload": texts,
                "gpu_type": texts,
                "instances": st.integers(1, 1_000_000),
                "submit_ts": st.sampled_from([None, "1900-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]),
            }
        ),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_is_asked_is_answered_in_order(service: Service, jobs: list[dict[str, object]]) -> None:
    found = ask(service, jobs)

    assert [each["job_id"] for each in found] == [each["job_id"] for each in jobs]
    for each in found:
        assert (each["run_time_s"] is None) == (each["reason"] is not None)


def test_a_model_that_falls_over_takes_only_its_own_output_along(service: Service) -> None:
    fallen = without_trees(service)

    [found, other] = ask(fallen, [job(0), job(1, task_type="nlp")])

    assert found["run_time_s"] is None
    assert found["reason"] == "predictor_unavailable"
    assert f"{NAME}@7" in found["note"]
    assert found["peak_use"]["mem_gib"] > 0
    assert other["reason"] == "no_model"


def test_a_model_that_was_never_read_says_what_is_wrong_with_it(small_bundles: dict[str, Path], tmp_path: Path) -> None:
    folder = folder_of(tmp_path, small_bundles)
    (folder.path / NAME / "7" / "models" / "run_s.ubj").write_bytes(b"damaged")

    [found] = ask(service_of(folder.path), [job()])

    assert found["run_time_s"] is None
    assert found["reason"] == "predictor_unavailable"
    assert "run_s.ubj" in found["note"]
    assert found["peak_use"] is not None


def test_memory_is_never_predicted_below_what_was_killed(place: Path) -> None:
    learned = Learned(floors={("pai", "pai", "group", "g1", "worker"): 77.0})

    [killed, other] = ask(service_of(place, learned=learned), [job(1, group="g1"), job(2, group="g2")])

    assert killed["peak_use"]["mem_gib"] == 77.0
    assert other["peak_use"]["mem_gib"] < 77.0


def test_a_snapshot_is_taken_once(place: Path) -> None:
    service = service_of(place)
    taken = []

    class Moving:
        @property
        def current(self) -> Snapshot:
            taken.append(1)
            return service.models.current

    ask(replace(service, models=Moving()), mixed(20))  # type: ignore[arg-type]

    assert len(taken) == 1


def test_jobs_out_of_reach_or_of_no_trace_are_refused(service: Service, place: Path) -> None:
    bound = Caller(name="t", scopes=frozenset({Scope.PREDICT}), clusters=frozenset({"pai"}))

    with pytest.raises(Forbidden, match=r"jobs\.1\.cluster"):
        ask(service, [job(0, cluster="pai"), job(1, cluster="other")], bound)
    with pytest.raises(Forbidden, match=r"jobs\.0\.cluster"):
        ask(service, [job(0)], bound)
    with pytest.raises(BadRequest, match=r"jobs\.1\.trace"):
        ask(service_of(place, trace=None), [job(0, trace="pai"), job(1)])


def test_nothing_is_logged_where_nothing_is_kept(place: Path) -> None:
    service = service_of(place, answers_kept=0)

    ask(service, [job()])

    assert service.log.records == []  # type: ignore[attr-defined]


def test_unknown_quantiles_are_null(service: Service) -> None:
    [found] = ask(with_card(service, quantiles=(0.5, 0.8)), [job()])

    assert found["run_time_s"]["p90"] is None
    assert math.isfinite(np.log(found["run_time_s"]["p50"]))
