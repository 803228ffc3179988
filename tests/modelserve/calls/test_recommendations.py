import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelserve.bundle.bundle import Bundle
from modelserve.callers import ANYONE, Caller
from modelserve.calls.recommendations import POLICY, policy_of, recommend
from modelserve.contract.calls import RECOMMEND
from modelserve.contract.requests import JobRow, RecommendBody
from modelserve.learning.learned import Learned, Stop
from modelserve.service import Service
from modelserve.settings import TypePolicy
from tests.examples import examples
from tests.modelserve.answering import NOW, REQUEST, answer_of, folder_of, in_process, job, mixed, service_of
from tests.modelserve.mirrored import NAME, USAGE

RESOURCES = ("cpu_cores", "mem_gib", "gpus")


def ask(service: Service, jobs: list[dict[str, object]], caller: Caller = ANYONE, **said: object) -> list[dict]:
    return answer_of(service, RECOMMEND, caller, jobs=jobs, **said)["recommendations"]


def test_an_answer_has_the_shape_of_the_contract(service: Service) -> None:
    [found] = ask(service, [job()])

    assert {"job_id", "request", "target", "lower_bound", "run_time_s", "run_time_change", "reasons"} < set(found)
    assert found["request"] == REQUEST
    assert found["mode"] == "observe"
    assert found["models"] == {"run_time": f"{NAME}@7", "usage": f"{USAGE}@7"}
    assert found["history"] == "2020-08-01T00:00:00Z"
    assert found["evidence"] == {"measured_runs": found["measured_runs"], "history_age_s": 2 * 86400.0}
    assert found["note"] is None
    assert "shrunk" in found["reasons"].values()


def test_answers_equal_those_of_the_commands(service: Service, place: Path) -> None:
    rows = [JobRow.model_validate(each) for each in mixed(21)]

    found = ask(service, mixed(21))

    expected = recommend(rows, in_process(place), trace="pai", now=datetime.fromtimestamp(NOW, UTC))
    assert [{name: each[name] for name in expected[0]} for each in found] == expected


def test_what_a_group_asks_for_far_above_its_usual_is_kept(service: Service, place: Path) -> None:
    usual, raised = job(0), job(1, group="g0", user="u0", request={**REQUEST, "mem_gib": 117.0})

    found = ask(service, [usual, raised], theta=1.0)

    assert [each["reasons"]["mem_gib"] for each in found] == ["floor", "above_usual"]
    assert found[1]["target"]["mem_gib"] == 117.0
    assert found[1]["target"]["cpu_cores"] == found[0]["target"]["cpu_cores"] < 6.0
    policy = policy_of(RecommendBody.model_validate({"jobs": [usual], "theta": 1.0}), None)
    rows = [JobRow.model_validate(each) for each in (usual, raised)]
    apart = recommend(rows, in_process(place), trace="pai", now=datetime.fromtimestamp(NOW, UTC), policy=policy)
    assert [each["reasons"] for each in apart] == [each["reasons"] for each in found]


def test_where_it_is_trusted_the_response_model_decides_and_says_so(
    small_bundles: dict[str, Path], responding: Bundle, tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, {**small_bundles, "runtime": responding.path})
    rows = [JobRow.model_validate(each) for each in mixed(21)]

    found = ask(service_of(folder.path), mixed(21), guard="none")

    policy = replace(POLICY, guard="none")
    at = datetime.fromtimestamp(NOW, UTC)
    expected = recommend(rows, in_process(folder.path), trace="pai", now=at, policy=policy)
    assert [{name: each[name] for name in expected[0]} for each in found] == expected
    known = [each for each in found if each["models"]["run_time"] is not None]
    assert {each["judged_by"] for each in known} == {"response model: run time surely depends on gpus"}
    assert {each["reasons"]["gpus"] for each in known if each["request"]["gpus"]} == {"important"}
    assert {each["run_time_change"] for each in known} == {0.0}  # cores and memory are left to the floors


def test_a_batch_answers_as_single_calls_do_and_keeps_their_order(service: Service) -> None:
    jobs = mixed(30)

    together = ask(service, jobs)

    assert [each["job_id"] for each in together] == [each["job_id"] for each in jobs]
    assert together == [ask(service, [each])[0] for each in jobs]


def test_targets_are_round_and_lie_between_floor_and_request(service: Service) -> None:
    for found in ask(service, [job(i) for i in range(12)]):
        for resource in RESOURCES:
            target = found["target"][resource]
            assert found["lower_bound"][resource] <= target <= found["request"][resource]
            assert round(target, 6) == target


@settings(deadline=None, max_examples=examples(40))
@given(
    jobs=st.lists(
        st.fixed_dictionaries(
            {
                "request": st.fixed_dictionaries(
                    {name: st.none() | st.floats(0.0, 1e6) for name in RESOURCES},
                ),
                "floors": st.fixed_dictionaries({name: st.none() | st.floats(0.0, 100.0) for name in RESOURCES}),
                "user": st.none() | st.text(min_size=1, max_size=5) | st.sampled_from(["u1", "u2"]),
                "task_type": st.sampled_from(["ctr", "nlp"]),
            }
        ),
        min_size=1,
        max_size=4,
    ),
    guard=st.sampled_from([None, "usage", "none"]),
    alpha=st.none() | st.floats(0.0, 0.99),
)
def test_whatever_is_asked_no_floor_is_undercut(
    service: Service, jobs: list[dict], guard: str | None, alpha: float | None
) -> None:
    found = ask(service, [job(i, **each) for i, each in enumerate(jobs)], guard=guard, alpha=alpha)

    assert [each["job_id"] for each in found] == [f"a{i}" for i in range(len(jobs))]
    for each, asked in zip(found, jobs, strict=True):
        for resource in RESOURCES:
            want, least = asked["request"][resource], asked["floors"][resource]
            assert (each["target"][resource] is None) == (want is None) == (each["reasons"][resource] is None)
            if want is not None:
                assert min(want, least or 0.0) <= each["target"][resource] <= want


@pytest.mark.parametrize("guard", ["usage", "none"])
def test_of_several_minimums_the_largest_holds(place: Path, guard: str) -> None:
    types = {"ctr": TypePolicy(minimums={"cpu_cores": 5.0, "mem_gib": 1.0})}
    service = service_of(place, types=types)

    [plain] = ask(service, [job()], guard=guard, theta=1.0)
    [higher] = ask(
        service, [job(floors={"cpu_cores": 5.5})], guard=guard, theta=1.0, floors={"mem_gib": 25.0, "cpu_cores": 1.0}
    )

    assert plain["target"]["cpu_cores"] == 5.0
    assert plain["reasons"]["cpu_cores"] == "floor"
    assert (higher["target"]["cpu_cores"], higher["target"]["mem_gib"]) == (5.5, 25.0)
    assert higher["lower_bound"]["mem_gib"] >= 25.0


def test_the_calls_own_values_win_over_the_types() -> None:
    of_type = TypePolicy(theta=0.2, alpha=0.3, guard="none", mem_margin=0.5)
    plain = RecommendBody.model_validate({"jobs": [job()]})
    own = RecommendBody.model_validate({"jobs": [job()], "theta": 0.1, "alpha": 0.0, "guard": "usage"})

    taken = policy_of(plain, of_type)
    assert (taken.theta, taken.alpha0, taken.guard, taken.mem_margin) == (0.2, 0.3, "none", 0.5)
    taken = policy_of(own, of_type)
    assert (taken.theta, taken.alpha0, taken.guard, taken.mem_margin) == (0.1, 0.0, "usage", 0.5)
    assert policy_of(plain, None).theta == 0.05


def test_unless_told_otherwise_the_service_gives_what_is_measured_and_without_floors_the_papers() -> None:
    plain, bare = (RecommendBody.model_validate({"jobs": [job()], **said}) for said in ({}, {"guard": "none"}))

    usual = policy_of(plain, None)
    assert (usual.first_alpha, usual.sure_runs, usual.guard) == (0.05, 50, "usage")
    assert policy_of(bare, None).first_alpha == 0.5
    assert policy_of(plain, TypePolicy(min_runs=60)).min_runs == 60, "more runs than are sure may be asked for"


def test_a_types_policy_says_every_margin_and_how_much_evidence_it_takes() -> None:
    said = {"min_runs": 5, "sure_runs": 60, "minimum_change": 0.1, "cpu_margin": 0.1, "mem_margin": 0.2}
    said |= {"gpu_margin": 0.3, "gpu_mem_margin": 0.4}
    plain = RecommendBody.model_validate({"jobs": [job()]})

    taken = policy_of(plain, TypePolicy.model_validate(said))

    assert {name: getattr(taken, name) for name in said} == said


@pytest.mark.parametrize("said", [{"sure_runs": 2}, {"min_runs": 9, "sure_runs": 8}, {"gpu_margin": -0.1}])
def test_a_types_policy_that_cannot_be_meant_is_refused(said: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"sure_runs|gpu_margin"):
        TypePolicy.model_validate(said)


def test_types_have_their_own_policies_in_one_call(place: Path) -> None:
    service = service_of(place, types={"rl": TypePolicy(minimums={"cpu_cores": 6.0}), "ctr": TypePolicy(alpha=0.9)})

    held, other = ask(service, [job(0, task_type="rl", workload="ctr"), job(1)], theta=1.0)

    assert held["target"]["cpu_cores"] == 6.0
    assert other["target"]["cpu_cores"] == pytest.approx(5.4)


@pytest.mark.parametrize("guard", ["usage", "none"])
def test_after_a_kill_no_job_of_the_like_is_given_less(place: Path, guard: str) -> None:
    learned = Learned(floors={("pai", "pai", "group", "g1", "worker"): 28.5})
    service = service_of(place, learned=learned)

    named, unnamed, other = ask(
        service, [job(0, group="g1", cluster="pai"), job(1, group="g1"), job(2, group="g2")], guard=guard, theta=1.0
    )

    assert named["target"]["mem_gib"] >= 28.5
    assert unnamed["target"]["mem_gib"] >= 28.5
    assert named["reasons"]["mem_gib"] == "floor"
    assert other["target"]["mem_gib"] < 28.5


def test_a_braked_type_keeps_its_requests_and_says_why(place: Path) -> None:
    scope = ("pai", "", "ctr", "", "")
    stop = Stop(scope=scope, why="5 of the last 200 shrunk jobs were killed for memory", since=1596274200.0)
    learned = Learned(brakes={scope: stop})

    braked, other = ask(service_of(place, learned=learned), [job(0), job(1, task_type="rl", workload="ctr")], theta=1.0)

    assert braked["target"] == braked["request"] == braked["lower_bound"]
    assert set(braked["reasons"].values()) == {"floor"}
    assert braked["note"].startswith("not shrunk: 5 of the last 200")
    assert "since 2020-08-01T09:30:00Z" in braked["note"]
    assert braked["run_time_s"]["p50"] > 0
    assert other["target"] != other["request"]
    assert other["note"] is None


def test_the_mode_is_said_and_changes_nothing(place: Path) -> None:
    learned = Learned(modes={("pai", "", "ctr", "g1"): "enforce"})

    enforced, observed = ask(service_of(place, learned=learned), [job(0, group="g1"), job(0, group="g2")])

    assert (enforced["mode"], observed["mode"]) == ("enforce", "observe")
    [plain] = ask(service_of(place), [job(0, group="g1")])
    assert enforced["target"] == plain["target"]


def test_a_damaged_run_time_bundle_leaves_requests_and_says_what_is_wrong(
    small_bundles: dict[str, Path], tmp_path: Path
) -> None:
    folder = folder_of(tmp_path, small_bundles)
    (folder.path / NAME / "7" / "models" / "run_s.ubj").write_bytes(b"damaged")

    [found, other] = ask(service_of(folder.path), [job(0), job(1, task_type="nlp")])

    assert set(found["reasons"].values()) == {"predictor_unavailable"}
    assert found["target"] == found["request"]
    assert "run_s.ubj" in found["note"]
    assert set(other["reasons"].values()) == {"cold_start"}


def test_a_model_that_falls_over_takes_only_its_own_jobs_along(service: Service) -> None:
    current = service.models.current
    fallen = replace(current.champions[USAGE], bundle=replace(current.champions[USAGE].bundle, forests={}))
    models = {
        **current.champions,
        "runtime.pai.nlp": current.champions[NAME],
        "usage.pai.nlp": replace(fallen, reference=f"{USAGE}@8"),
    }
    moved = SimpleNamespace(current=replace(current, champions=models))

    found = ask(replace(service, models=moved), [job(0, task_type="nlp"), job(1), job(2, task_type="nlp")])  # type: ignore[arg-type]

    fell = [set(each["reasons"].values()) == {"predictor_unavailable"} for each in found]
    assert fell == [True, False, True]
    assert f"{USAGE}@8" in found[0]["note"]
    [unguarded] = ask(replace(service, models=moved), [job(0, task_type="nlp")], guard="none")  # type: ignore[arg-type]
    assert "predictor_unavailable" not in unguarded["reasons"].values()


def test_what_is_counted_and_reclaimed(service: Service) -> None:
    body = RecommendBody.model_validate({"jobs": [job(0, instances=3), job(1, opted_out=True, instances=1)]})

    answered = service.decide(RECOMMEND, body, ANYONE, answer_id="a")
    shrunk, kept = json.loads(answered.body)["recommendations"]

    assert sum(count for key, count in answered.counts.items() if key[1] == "gpus") == 2
    assert answered.counts["recommendation", "cpu_cores", "opted_out"] == 1
    asked, given_ = answered.reclaimed["cpu_cores"]
    assert asked == 24.0
    assert given_ == pytest.approx(3 * shrunk["target"]["cpu_cores"] + kept["target"]["cpu_cores"], abs=1e-5)
    assert answered.models == (f"{NAME}@7", f"{USAGE}@7")


def test_a_floor_above_every_request_refuses_no_call(service: Service) -> None:
    learned = replace(service.feed.learned)  # as after a job killed at 900 000 GiB
    huge = SimpleNamespace(
        mode=learned.mode, braked=learned.braked, seq=learned.seq, memory_floor_gib=lambda *_: 1_080_000.0
    )
    told = replace(service, feed=SimpleNamespace(learned=huge, fresh=lambda: huge))  # type: ignore[arg-type]

    [found] = ask(told, [job()])

    assert found["target"]["mem_gib"] == REQUEST["mem_gib"]
    assert found["reasons"]["mem_gib"] == "floor"
