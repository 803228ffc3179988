"""The rows that serving builds against those of training: real traces replayed, requests changed, threads at once."""

import threading
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.build import with_requests
from features.columns.feature import Lookback
from features.columns.recency import extremes_before
from features.errors import ContractError
from features.frames import has_ended
from features.history import History
from features.online import EndedRun, OnlineHistory
from features.references import PRIOR_LOG_S, build_referenced
from features.rows import RowBuilder
from features.sets import FEATURE_SETS
from pipelines.lake.lake import Lake
from tests.examples import examples
from tests.features.job_tables import at, job, job_tables, real_jobs, table, truncated, usage_of
from tests.features.online_jobs import check_same, contract_of, ended_runs, jobs_asked, rows_built, rows_of, rows_online

SERVED = list(FEATURE_SETS)


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("names", SERVED)
@settings(max_examples=examples(10), deadline=None)
@given(jobs=job_tables())
def test_every_served_set_is_built_as_in_training(names: str, relative: bool, jobs: pl.DataFrame) -> None:
    history = History.of(jobs, usage_of(jobs))

    found = rows_online(names, jobs, OnlineHistory(history), relative=relative)

    check_same(found, rows_built(names, jobs, history, relative=relative))
    assert found.matrix.flags.c_contiguous


@pytest.mark.slow
@pytest.mark.parametrize("trace", ["philly-rebuilt", "pai"])
def test_a_real_trace_is_answered_as_by_build_while_its_runs_end(trace: str, real: Lake) -> None:
    jobs, usage = real_jobs(real, trace)[:12_000], real.table("usage", trace).collect()
    cut = jobs.height * 2 // 3
    base = truncated(jobs, jobs["submit_ts"][cut], ("", ""))  # what runs then is known to run
    history = OnlineHistory(History.from_tail(History.of(base, usage).tail()))
    contract = contract_of("usage", jobs)
    builder, told = RowBuilder.of(contract, relative=True), base[:0]
    for row in range(cut + 1, jobs.height, max(jobs.height // 25, 1)):
        now = jobs["submit_ts"][row]
        over = jobs.filter(has_ended() & (pl.col("end_ts") < now))
        fresh = over.join(told, on=("job_id", "role"), how="anti")  # those known from the base are passed over
        history.add(ended_runs(fresh.sample(fraction=1.0, shuffle=True, seed=row), usage))
        told = over
        asked = jobs[row : row + 3].filter(pl.col("submit_ts") == now)

        found = builder.rows(jobs_asked(asked), history)

        known = pl.concat([base.join(over, on=("job_id", "role"), how="anti"), over])
        told_of = History.of(known, usage)
        built = build_referenced(asked, told_of, "usage", relative=True)
        check_same(found, rows_of(contract, built, extremes_before(Lookback.of(asked, told_of))))


@settings(max_examples=examples(30), deadline=None)
@given(jobs=job_tables(max_size=12), scale=st.sampled_from([0.0, 0.5, 0.75, 1.0]))
def test_counterfactual_requests_are_those_of_frames(jobs: pl.DataFrame, scale: float) -> None:
    history, contract = History.of(jobs), contract_of("usage", jobs)
    builder, asked = RowBuilder.of(contract, relative=True), jobs_asked(jobs)
    index = np.repeat(np.arange(jobs.height), 2)
    requests = jobs.select("req_cpu_cores", "req_mem_gib", "req_gpus").to_numpy()[index] * scale
    built = build_referenced(jobs, history, "usage", relative=True)

    found = builder.with_requests(builder.rows(asked, OnlineHistory(history)).matrix, asked, index, requests)

    expected = contract.encode(with_requests(built.features, jobs, index, requests))
    np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("relative", [True, False])
def test_what_is_kept_of_earlier_rows_changes_no_later_row(relative: bool) -> None:
    jobs = table([_run(n) for n in range(60)])
    contract, asked = contract_of("usage", jobs), jobs_asked(jobs)
    history, builder = (
        OnlineHistory(History.of(jobs[:40])),
        RowBuilder.of(contract_of("usage", jobs), relative=relative),
    )
    later, order = iter(ended_runs(jobs[40:])), np.random.default_rng(1)

    for number in range(200):
        if number % 40 == 39:
            history.add([next(later)])
        one = asked[int(order.integers(len(asked)))]
        moment = one.submit_us + int(order.integers(-1, 2)) * int(order.choice([0, 1, 1_000_000, 10_000_000_000]))
        moved = replace(one, submit_us=moment)

        found = builder.rows([moved], history)

        check_same(found, RowBuilder.of(contract, relative=relative).rows([moved], history))
        assert found.runs.tolist() == [history.measured_runs(moved)]
    assert 1 < len(history.templates) < 200


def test_rows_say_which_states_of_the_history_they_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = table([_run(n) for n in range(300)])
    history, builder = OnlineHistory(History.of(jobs[:200])), RowBuilder.of(contract_of("usage", jobs), relative=True)
    asked, later = jobs_asked(jobs), iter(ended_runs(jobs[200:]))
    look = RowBuilder._templates

    def taught_in_between(*said: object) -> object:
        between.append(next(later))
        return look(*said)  # type: ignore[arg-type]

    class Lock:
        """The history's lock; whenever it is let go, another run ends."""

        def __enter__(self) -> None:
            inner.acquire()

        def __exit__(self, *_: object) -> None:
            inner.release()
            history.lock = inner
            history.add(between)
            history.lock = self  # type: ignore[assignment]

    between: list[EndedRun] = []
    inner = history.lock
    monkeypatch.setattr(RowBuilder, "_templates", taught_in_between)
    history.lock = Lock()  # type: ignore[assignment]

    assert builder.rows(asked[:64], history).versions == (0, 0)
    assert builder.rows(asked[:150], history).versions == (1, 3)
    assert history.version == 4


def test_the_first_job_is_referred_to_the_prior_in_serving_and_in_training() -> None:
    jobs = table([_run(n) for n in range(3)])

    served = rows_online("submit", jobs[:1], OnlineHistory(History.of(jobs[:0])), relative=True)
    trained = build_referenced(jobs[:1], History.of(jobs[:1]), "submit", relative=True)

    assert rows_online("submit", jobs[:0], OnlineHistory(History.of(jobs)), relative=True).matrix.shape == (
        0,
        len(FEATURE_SETS["submit"]),
    )
    for found in (served, trained):
        assert found.reference_log_s.tolist() == [list(PRIOR_LOG_S)]
        assert found.history_log_s.tolist() == [[list(PRIOR_LOG_S)] * 3]


def test_a_job_of_another_trace_is_refused() -> None:
    jobs = table([_run(n) for n in range(3)])
    builder = RowBuilder.of(contract_of("submit", jobs), relative=False)

    with pytest.raises(ContractError, match="found the trace 'u'; expected 't'"):
        builder.rows(jobs_asked(jobs.with_columns(trace=pl.lit("u"))), OnlineHistory(History.of(jobs)))


def test_threads_that_read_while_one_adds_see_whole_rows() -> None:
    jobs = table([_run(n) for n in range(1200)])
    base, fed = jobs[:300], jobs[300:]
    builder = RowBuilder.of(contract_of("submit", jobs), relative=True)
    asked = jobs_asked(table([_run(9000)]))
    history, states = OnlineHistory(History.of(base)), {}
    for stop in range(0, fed.height + 1, 90):
        known = OnlineHistory(History.of(pl.concat([base, fed[:stop]])))
        states[builder.rows(asked, known).matrix.tobytes()] = stop
    seen: list[bytes] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def read() -> None:
        try:
            while not done.is_set():
                seen.append(builder.rows(asked, history).matrix.tobytes())
        except BaseException as error:  # told to the test, whatever it is
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    runs = ended_runs(fed)
    for start in range(0, len(runs), 90):
        history.add(runs[start : start + 90])
    done.set()
    for reader in readers:
        reader.join(timeout=30)

    assert not failures
    assert seen
    assert set(seen) <= set(states)
    assert builder.rows(asked, history).matrix.tobytes() == list(states)[-1]


def _run(number: int) -> dict[str, object]:
    submit, run = number * 40, 30 + number * 7919 % 5000
    times = {"submit_ts": at(submit), "start_ts": at(submit + 5), "end_ts": at(submit + 5 + run), "run_s": float(run)}
    return job(number, user=f"u{number % 3}", group="g", req_gpus=float(number % 2), **times)
