import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from features.build import build
from features.columns.feature import Lookback
from features.contract import RESPONSE_CONTRACT
from features.online import EVIDENCE_KEYS
from modelserve.bundle.boosters import raw_outputs
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.predictor import InProcessPredictor
from modelserve.bundle.served import calibrated_run_times, calibrated_use, five_resources
from pipelines.simulation.advice import ConstantPredictor
from scheduler_core.errors import PredictorUnavailable
from scheduler_core.types import Job, Predictor, Request
from tests.modelserve.by_frame import features_of, frame_of, jobs_in, run_times_of

Maker = Callable[[dict[str, Bundle]], Predictor]


def live(bundles: dict[str, Bundle]) -> Predictor:
    from features.online import OnlineHistory  # compiles kernels: only for the tests that need it
    from modelserve.bundle.served import ServedModel
    from modelserve.calls.context import RequestContext
    from modelserve.learning.learned import Learned
    from modelserve.loading.models import Snapshot

    champions = {name: ServedModel.of(bundle, OnlineHistory(bundle.history)) for name, bundle in bundles.items()}
    snapshot = Snapshot(champions=champions, failures={}, generation=1)
    return RequestContext(snapshot=snapshot, learned=Learned())


PREDICTORS: dict[str, Maker] = {
    "live": live,
    "bundles": lambda bundles: InProcessPredictor(bundles=bundles),
    "run-time bundle only": lambda bundles: InProcessPredictor(
        bundles={name: b for name, b in bundles.items() if name.startswith("runtime.")}
    ),
    "no bundles": lambda _: InProcessPredictor(bundles={}),
    "constant": lambda _: ConstantPredictor(run_s=60.0, peak=Request(cpu_cores=1.0, mem_gib=2.0, gpus=0.1)),
}


@pytest.fixture(params=list(PREDICTORS))
def predictor(request: pytest.FixtureRequest, bundles: dict[str, Bundle]) -> Predictor:
    return PREDICTORS[request.param](bundles)


def job(i: int = 0, **changes: object) -> Job:
    said: dict = {
        "job_id": f"new{i}",
        "trace": "pai",
        "task_type": "ctr",
        "role": "worker",
        "user": f"u{i % 7}",
        "group": f"g{i % 4}",
        "gpu_type": "T4",
        "request": Request(cpu_cores=6.0, mem_gib=29.3, gpus=0.5),
        "submit_ts": 1596300000.0 + 600 * i,
    }
    return Job(**{**said, **changes})


JOBS = [
    job(0),
    job(1, task_type="nlp"),
    job(2, user=None, group=None),
    job(3, user="nobody", group="nothing", gpu_type="H999"),
    job(4, request=Request(cpu_cores=math.nan, mem_gib=math.nan, gpus=1.0)),
    job(5, trace="helios"),
    job(6, instances=3, workload="ctr"),
]


def candidates() -> tuple[np.ndarray, np.ndarray]:
    rows = np.repeat(np.arange(len(JOBS)), 4)
    alphas = np.tile([1.0, 0.9, 0.7, 0.5], len(JOBS))
    return rows, np.array([JOBS[i].request.row() for i in rows]) * alphas[:, None]


def same(left: np.ndarray, right: np.ndarray) -> bool:
    return left.tobytes() == right.tobytes()


@pytest.mark.parametrize("maker", ["live", "bundles"])
def test_a_trusted_response_model_moves_the_forecast_of_the_request(
    maker: str, bundles: dict[str, Bundle], responding: Bundle
) -> None:
    ours = [each for each in JOBS if each.trace == "pai" and each.task_type == "ctr"]
    rows = np.repeat(np.arange(len(ours)), 3)
    asked = np.array([ours[i].request.row() for i in rows])
    requests = asked * np.tile([1.0, 0.7, 0.5], len(ours))[:, None]
    predictor, before = (PREDICTORS[maker]({**bundles, **own}) for own in ({responding.card.name: responding}, {}))

    found, plain = predictor.run_times(ours, rows, requests), before.run_times(ours, rows, asked)

    frame = frame_of([replace(each, cluster="pai") for each in ours])
    known = five_resources(RESPONSE_CONTRACT.encode(build(frame, responding.history, RESPONSE_CONTRACT.names)))[rows]
    given = np.column_stack([requests, known[:, 3:]]).astype(np.float32)
    answers = [raw_outputs(responding.boosters["response"], each)[:, 0] for each in (known, given)]
    change = np.exp(answers[1] - answers[0])
    assert found.p50 / plain.p50 == pytest.approx(change, rel=1e-12)
    assert found.p90 / plain.p90 == pytest.approx(change, rel=1e-12)
    assert change[::3].tolist() == [1.0] * len(ours)
    assert 1.05 < change.max() < 1.7
    assert before.sources(ours[0]).judged_by == "run-time forecast; no response model was trained"
    assert predictor.sources(ours[0]).judged_by == "response model: run time surely depends on gpus"
    assert dict(predictor.knowledge(ours)[0].support) == {"gpus": (0.25, 1.0)}


def test_a_forecast_with_too_few_later_jobs_judges_no_request(bundles: dict[str, Bundle]) -> None:
    bundle = bundles["runtime.pai.ctr"]
    unproven = replace(bundle, card=bundle.card.model_copy(update={"verdict": "too few", "important": ()}))
    before, after = (InProcessPredictor(bundles={each.card.name: each}) for each in (bundle, unproven))

    assert before.knowledge(JOBS[:1])[0].support
    assert not after.knowledge(JOBS[:1])[0].support
    assert after.sources(JOBS[0]).judged_by.startswith("floors of use alone")


def test_quantiles_are_positive_and_sorted_or_unknown(predictor: Predictor) -> None:
    times = predictor.run_times(JOBS, *candidates())

    assert np.array_equal(np.isnan(times.p50), np.isnan(times.p90))
    known = ~np.isnan(times.p50)
    assert (times.p50[known] > 0).all()
    assert (times.p50[known] <= times.p90[known]).all()


def test_one_matrix_equals_row_by_row_to_the_bit(predictor: Predictor) -> None:
    rows, requests = candidates()

    whole = predictor.run_times(JOBS, rows, requests)
    alone = [predictor.run_times([JOBS[i]], np.array([0]), requests[k : k + 1]) for k, i in enumerate(rows)]

    assert same(whole.p50, np.concatenate([each.p50 for each in alone]))
    assert same(whole.p90, np.concatenate([each.p90 for each in alone]))


def test_a_job_without_a_model_is_unknown_and_the_others_are_not(bundles: dict[str, Bundle]) -> None:
    predictor = InProcessPredictor(bundles=bundles)

    times = predictor.run_times(JOBS, np.arange(len(JOBS)), np.array([j.request.row() for j in JOBS]))
    peak = predictor.peak_use(JOBS)

    strangers = [1, 5]
    assert np.flatnonzero(np.isnan(times.p50)).tolist() == strangers
    assert np.flatnonzero(np.isnan(peak.mem_gib)).tolist() == strangers
    assert predictor.knowledge(JOBS)[1].support == {}
    assert predictor.knowledge(JOBS)[0].support["cpu_cores"] == (2.0, 8.0)


def test_the_model_of_the_workload_comes_before_that_of_the_task_type(bundles: dict[str, Bundle]) -> None:
    own = bundles["runtime.pai.ctr"]
    predictor = InProcessPredictor(bundles={"runtime.pai.ctr": own, "runtime.pai.bert": replace(own, version="9")})

    assert predictor.sources(job(workload="bert")).run_time == "runtime.pai.ctr@9"
    assert predictor.sources(job(workload="wide")).run_time == "runtime.pai.ctr@7"
    assert predictor.sources(job(task_type="rl")).run_time is None


def test_a_training_row_is_answered_as_its_frame_is(bundles: dict[str, Bundle], small_jobs: pl.DataFrame) -> None:
    bundle, usage = bundles["runtime.pai.ctr"], bundles["usage.pai.ctr"]
    frame = small_jobs.tail(20)
    jobs = jobs_in(frame)
    predictor = InProcessPredictor(bundles=bundles)

    times = predictor.run_times(jobs, np.arange(20), np.array([j.request.row() for j in jobs]))
    peak = predictor.peak_use(jobs)

    expected = run_times_of(bundle, frame)
    assert same(times.p50, expected.p50)
    matrix = usage.contract.encode(build(frame, usage.history, usage.contract.names))
    assert same(peak.gpus, calibrated_use(usage.card, "gpus", raw_outputs(usage.boosters["gpus"], matrix)))
    begin, stop = Lookback.of(frame, usage.history).span("measured", EVIDENCE_KEYS)
    of_group, of_user = (stop - begin).reshape(-1, 2).T
    assert same(peak.runs, np.where(frame["group"].is_null(), of_user, of_group))


def test_offsets_are_added_in_log_units_before_sorting(bundles: dict[str, Bundle]) -> None:
    card, rng = bundles["runtime.pai.ctr"].card, np.random.default_rng(3)
    raw, reference = np.sort(rng.normal(3.0, 1.0, (50, 2))), rng.normal(0.0, 1.0, (50, 2))
    reference[:, 1] = reference[:, 0]
    plain, raised, crossed = (
        calibrated_run_times(card.model_copy(update={"offsets": offsets}), raw, reference)
        for offsets in ({}, {"p50": 0.5, "p90": 0.5}, {"p50": 9.0, "p90": 0.0})
    )

    assert plain.p90 == pytest.approx(np.exp(raw[:, 1] + reference[:, 1]))
    assert raised.p90 == pytest.approx(plain.p90 * math.exp(0.5))
    assert crossed.p90 == pytest.approx(plain.p50 * math.exp(9.0))
    assert crossed.p50 == pytest.approx(plain.p90)


def test_a_model_that_could_not_be_read_does_not_answer_as_if_there_were_none(bundles: dict[str, Bundle]) -> None:
    damaged = InProcessPredictor(
        bundles={name: bundle for name, bundle in bundles.items() if name.startswith("usage.")},
        failures={"runtime.pai.ctr": "run_s.ubj: changed"},
    )

    with pytest.raises(PredictorUnavailable, match=r"run_s\.ubj: changed"):
        damaged.run_times([job()], np.array([0]), np.ones((1, 3)))
    assert damaged.sources(job()).failure == "run_s.ubj: changed"
    assert damaged.sources(job(task_type="nlp")).failure is None
    assert damaged.peak_use([job()]).runs.any()


@pytest.mark.parametrize(
    ("changes", "runs"),
    [
        ({"user": "nobody", "group": "g1"}, "of g1"),
        ({"user": "u2", "group": None}, "of u2"),
        ({"user": "u2", "group": "unseen"}, 0),
        ({"user": "u2", "group": "g1"}, "of g1"),
        ({"user": "nobody", "group": "g1", "role": "chief"}, 0),
        ({"user": None, "group": None}, 0),
    ],
)
def test_runs_count_the_measured_jobs_of_the_like(
    bundles: dict[str, Bundle], small_jobs: pl.DataFrame, changes: dict[str, object], runs: int | str
) -> None:
    if isinstance(runs, str):
        column = "group" if runs.endswith("g1") else "user"
        runs = small_jobs.filter(pl.col(column) == runs.removeprefix("of ")).height

    assert InProcessPredictor(bundles=bundles).peak_use([job(**changes)]).runs.tolist() == [runs]


def test_what_a_model_cannot_answer_comes_out_as_unavailable(bundles: dict[str, Bundle]) -> None:
    odd = InProcessPredictor(bundles={"runtime.helios.ctr": bundles["runtime.pai.ctr"]})
    jobs = [job(trace="helios")]
    broken = InProcessPredictor(
        bundles={"runtime.pai.ctr": replace(bundles["runtime.pai.ctr"], contract=bundles["usage.pai.ctr"].contract)}
    )

    with pytest.raises(PredictorUnavailable, match="trace"):
        odd.run_times(jobs, np.array([0]), np.ones((1, 3)))
    with pytest.raises(PredictorUnavailable):
        broken.run_times([job()], np.array([0]), np.ones((1, 3)))


def test_a_relative_model_answers_against_the_like(bundles: dict[str, Bundle], small_jobs: pl.DataFrame) -> None:
    plain = bundles["runtime.pai.ctr"]
    bundle = replace(plain, card=plain.card.model_copy(update={"relative": True, "offsets": {}}))

    frame = small_jobs.head(50)
    jobs = jobs_in(frame)
    requests = np.array([each.request.row() for each in jobs])
    answer = InProcessPredictor(bundles={bundle.card.name: bundle}).run_times(jobs, np.arange(50), requests)

    built = features_of(bundle, frame)
    raw = raw_outputs(bundle.boosters["run_s"], bundle.contract.encode(built.features)) + built.reference_log_s
    assert np.ptp(built.reference_log_s) > 0
    assert answer.p50 == pytest.approx(np.exp(raw.min(axis=1)))
    assert answer.p90 == pytest.approx(np.exp(raw.max(axis=1)))
