"""The online history against `build` over a `History` of the same knowledge: to the bit, as it grows."""

import gc
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features import online
from features.columns.feature import Lookback
from features.errors import ContractError
from features.frames import has_ended
from features.history import History
from features.online import OnlineHistory
from tests.examples import examples
from tests.features.job_tables import at, job, job_tables, table, usage_of
from tests.features.online_jobs import check_same, ended_runs, jobs_asked, rows_built, rows_online

EMPTY = History.of(table([]))


def known(base: pl.DataFrame, usage: pl.DataFrame, fed: pl.DataFrame) -> History:
    """The history of a base and of fed jobs, of which only those that have ended are told."""
    told = fed.filter(has_ended())
    kept = base.join(told, on=("cluster", "job_id", "role"), how="anti")
    return History.of(pl.concat([kept, told]), usage)


def running(jobs: pl.DataFrame) -> pl.DataFrame:
    """The jobs as they stood after they started."""
    return jobs.with_columns(
        end_ts=pl.lit(None, dtype=jobs.schema["end_ts"]), run_s=pl.lit(None, dtype=pl.Float64), status=pl.lit("running")
    )


@settings(max_examples=examples(60), deadline=None)
@given(jobs=job_tables(max_size=60), cut=st.integers(0, 60), order=st.randoms(use_true_random=False))
def test_a_fed_history_answers_as_one_built_of_the_same_jobs(
    jobs: pl.DataFrame, cut: int, order: random.Random
) -> None:
    usage = usage_of(jobs)
    places = list(range(jobs.height))
    order.shuffle(places)
    base, fed = jobs[places[:cut]], jobs[places[cut:]]
    history = OnlineHistory(History.of(base, usage))
    rows_online("usage", jobs, history)  # timelines that were looked at before grow like those that were not
    for half in (fed[::2], fed[1::2]):
        history.add(ended_runs(half, usage))
        rows_online("usage", jobs[::3], history)

    found = rows_online("usage", jobs, history)

    check_same(found, rows_built("usage", jobs, known(base, usage, fed)))
    check_same(found, rows_built("usage", jobs, History.from_tail(history.frame())))
    every = rows_built("usage", jobs, known(base, usage, fed), relative=False)
    check_same(rows_online("usage", jobs, history, relative=False), every)


@settings(max_examples=examples(30), deadline=None)
@given(jobs=job_tables(max_size=30))
def test_a_run_is_known_once(jobs: pl.DataFrame) -> None:
    usage = usage_of(jobs)
    runs = ended_runs(jobs, usage)
    history = OnlineHistory(History.of(jobs, usage))
    empty = OnlineHistory(EMPTY)

    assert history.add([replace(run, user="somebody", run_s=1e6) for run in runs]) == 0
    assert (empty.add(runs), empty.add(runs + runs)) == (len(runs), 0)
    check_same(rows_online("usage", jobs, history), rows_built("usage", jobs, History.of(jobs, usage)))


@settings(max_examples=examples(40), deadline=None)
@given(jobs=job_tables(max_size=30), user=st.sampled_from([None, "u9"]))
def test_a_job_that_ran_on_is_replaced_by_its_end(jobs: pl.DataFrame, user: str | None) -> None:
    usage = usage_of(jobs)
    over = jobs.filter(pl.col("run_s").is_not_null() & (pl.col("status") != "running"))
    base = pl.concat([jobs.join(over, on="job_id", how="anti"), running(over)])
    told = over.with_columns(user=pl.coalesce(pl.lit(user), "user"))  # feedback has the last word on what a job is
    history = OnlineHistory(History.of(base, usage))
    rows_online("usage", jobs, history)

    added = history.add(ended_runs(told, usage))

    assert added == over.height
    check_same(rows_online("usage", jobs, history), rows_built("usage", jobs, known(base, usage, told)))


def test_what_is_trimmed_is_seen_by_no_later_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "MAX_FED_ROWS", 500)
    told = table([_run(n) for n in range(4000)])
    later = table([job(n, user=f"u{n % 2}", req_gpus=1.0, submit_ts=at(90 * n)) for n in range(4000, 4050)])
    whole, history = History.of(told), OnlineHistory(EMPTY)

    for start in range(0, told.height, 300):
        history.add(ended_runs(told[start : start + 300]))

    check_same(rows_online("usage", later, history), rows_built("usage", later, whole))
    assert history.frame().height < 2500
    assert history.version == 4000


@pytest.mark.parametrize("began", [0, 300])
def test_a_history_grows_no_further_than_it_may(began: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "MAX_FED_ROWS", 100)
    monkeypatch.setattr(online, "GROWTH_ROWS", 300)
    told = table([_run(n) for n in range(1500)])
    elsewhere = ended_runs(table([_run(n) for n in range(50)]).with_columns(cluster=pl.lit("quiet")))
    history = OnlineHistory(History.of(told[:began]))
    history.add(elsewhere)

    for start in range(began, told.height, 50):
        history.add(ended_runs(told[start : start + 50]))

    kept = history.frame().filter(pl.col("cluster") != "quiet")
    assert 300 + began <= kept.height <= 300 + began + 100
    assert kept["job_id"].to_list() == told["job_id"].to_list()[-kept.height :]
    assert history.frame().height - kept.height == 50
    assert history.replaced > 5


def _run(number: int) -> dict[str, object]:
    submit, run = number * 90, 30 + number * 7919 % 5000
    times = {"submit_ts": at(submit), "start_ts": at(submit + 5), "end_ts": at(submit + 5 + run), "run_s": float(run)}
    return job(number, user=f"u{number % 2}", group="g", req_gpus=1.0, **times)


def test_a_vc_is_of_the_cluster_that_most_of_its_jobs_ran_on() -> None:
    rows = [("c", "v"), ("d", "v"), ("d", "v"), ("c", "w"), ("c", "w"), ("c", None)]
    told = table([job(n, cluster=cluster, vc=vc, submit_ts=at(n)) for n, (cluster, vc) in enumerate(rows)])
    history = OnlineHistory(History.of(told))

    assert [history.cluster_of(vc) for vc in ("v", "w", "unheard of", None)] == ["d", "c", "c", "c"]
    assert OnlineHistory(EMPTY).cluster_of("v") is None


def test_a_run_of_another_trace_is_refused() -> None:
    runs = ended_runs(table([_run(1), _run(2)]))
    history = OnlineHistory(EMPTY)

    with pytest.raises(ContractError, match="found the trace 'u'; expected 't'"):
        history.add([runs[0], replace(runs[1], trace="u")])

    assert (history.version, history.trace) == (0, None)


@pytest.mark.parametrize("base", ["none", "all"])
def test_names_that_nobody_has_take_no_memory(base: str) -> None:
    told = table([_run(n) for n in range(50)])
    history = OnlineHistory(EMPTY if base == "none" else History.of(told))
    strangers = table([job(n, user=f"x{n}", group=f"y{n}", submit_ts=at(9000) + timedelta(n)) for n in range(60)])

    rows_online("submit", strangers, history)

    assert _known_keys(history) <= 1


def test_a_report_leaves_no_frame_behind() -> None:
    history = OnlineHistory(EMPTY)
    runs = ended_runs(table([_run(n) for n in range(60)]))
    history.add(runs[:10])
    before = _frames()

    for start in range(10, 60, 5):
        history.add(runs[start : start + 5])

    assert _frames() == before
    assert history.frame().height == 60


def _frames() -> int:
    gc.collect()
    # `type`, since `isinstance` raises on dead weak proxies that other tests left behind.
    return sum(issubclass(type(each), pl.DataFrame) for each in gc.get_objects())


def _known_keys(history: OnlineHistory) -> int:
    timelines: Sequence[object] = list(history._timelines)
    return len(timelines)


@settings(max_examples=examples(20), deadline=None)
@given(jobs=job_tables(max_size=40), cut=st.integers(0, 40))
def test_measured_runs_are_those_behind_an_answer_and_by_role_those_of_the_group(jobs: pl.DataFrame, cut: int) -> None:
    usage = usage_of(jobs)
    history = OnlineHistory(History.of(jobs[:cut], usage))
    history.add(ended_runs(jobs[cut:], usage))
    seen = Lookback.of(jobs, known(jobs[:cut], usage, jobs[cut:]))
    begin, stop = seen.span("measured", online.EVIDENCE_KEYS)
    of_group, of_user = (stop - begin).reshape(-1, 2).T

    asked = jobs_asked(jobs)
    runs = [history.measured_runs(each) for each in asked]

    assert runs == np.where(jobs["group"].is_null().to_numpy(), of_user, of_group).tolist()
    for each in asked:
        by_role = history.measured_by_role(each)
        in_each_role = {role: history.measured_runs(replace(each, role=role)) for role in jobs["role"].unique()}
        assert by_role == {role: runs for role, runs in in_each_role.items() if runs and each.group is not None}
        assert list(by_role.values()) == sorted(by_role.values(), reverse=True)
