"""Running statistics against numpy over whole columns, faults cell by cell, and what `reserve` makes of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.reserve import (
    Reservations,
    ReservePolicy,
    ReserveReason,
    Running,
    SampleFault,
    Samples,
    faults_of,
    measure,
    reserve,
)
from tests.examples import examples

REQUEST = np.array([[6.0, 29.0, 0.5]])
POLICY = ReservePolicy()
FAULTS = tuple(SampleFault)


def samples_of(*jobs: np.ndarray, first_s: float = 60.0) -> Samples:
    """Return one sample a minute of each job, whose use is (samples, 4)."""
    count = np.array([len(job) for job in jobs], dtype=np.int64)
    most = int(count.max())
    use, at_s = np.full((len(jobs), most, 4), np.nan), np.full((len(jobs), most), np.nan)
    for i, job in enumerate(jobs):
        use[i, : len(job)] = job
        at_s[i, : len(job)] = first_s + 60.0 * np.arange(len(job))
    return Samples(count=count, at_s=at_s, use=use, sent=np.ones((len(jobs), 4), dtype=np.bool_))


def reserved(known: Running, request: np.ndarray = REQUEST, *, silent_s: float = 0.0) -> Reservations:
    requests = np.repeat(request, len(known.count), axis=0)
    held = np.zeros(len(known.count), dtype=np.bool_)
    return reserve(requests, known, known.at_s + silent_s, held)


def reason(made: Reservations) -> ReserveReason:
    return tuple(ReserveReason)[int(made.reason[0])]


def use_of(cpu: list[float]) -> np.ndarray:
    return np.array([[each, 0.1, 4.0, 0.2] for each in cpu])


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
def test_statistics_are_those_of_whole_columns(counts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [rng.random((count, 4)) for count in counts]

    found = measure(np.repeat(REQUEST, len(jobs), axis=0), samples_of(*jobs), Running.none(len(jobs)))

    for i, job in enumerate(jobs):
        recent = job[0, :2]
        for each in job[1:, :2]:
            recent = recent + (each - recent) / 3.0
        np.testing.assert_allclose(found.mean[i], job[:, :2].mean(axis=0))
        np.testing.assert_allclose(found.squares[i], job[:, :2].var(axis=0) * len(job), atol=1e-12)
        np.testing.assert_allclose(found.recent[i], recent)
        np.testing.assert_array_equal(found.memory[i], job[:, 2:].max(axis=0))
        assert (found.count[i], found.at_s[i]) == (len(job), 60.0 * len(job))


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_statistics_continue_where_they_stopped(before: int, after: int, seed: int) -> None:
    job = np.random.default_rng(seed).random((before + after, 4))

    first = measure(REQUEST, samples_of(job[:before]), Running.none(1))
    parted = measure(REQUEST, samples_of(job[before:], first_s=60.0 * (before + 1)), first)
    whole = measure(REQUEST, samples_of(job), Running.none(1))

    for name in ("count", "at_s", "mean", "squares", "recent", "memory"):
        np.testing.assert_allclose(getattr(parted, name), getattr(whole, name), atol=1e-12)
    assert first.count[0] == before, "the statistics given are not changed"


def test_a_resource_that_was_not_sampled_keeps_its_request() -> None:
    use = use_of([1.0] * 20)
    use[:, [0, 3]] = np.nan

    made = reserved(measure(REQUEST, samples_of(use), Running.none(1)))

    assert reason(made) == ReserveReason.MEASURED
    assert made.mean[0].tolist() == pytest.approx([6.0, 0.1])
    assert made.spread[0, 0] == 0.0
    assert made.memory[0].tolist() == pytest.approx([4.0 * POLICY.memory_margin, 0.5])


def test_a_job_that_presses_gets_its_request_back_at_once_and_keeps_it_for_a_while() -> None:
    calm, burst = [1.0] * 100, [5.0]
    later = int(POLICY.press_s // 60.0)

    at_once = measure(REQUEST, samples_of(use_of(calm + burst)), Running.none(1))
    held = measure(REQUEST, samples_of(use_of(calm + burst + [1.0] * (later - 1))), Running.none(1))
    over = measure(REQUEST, samples_of(use_of(calm + burst + [1.0] * (later + 5))), Running.none(1))

    for known, expected in ((at_once, "pressing"), (held, "pressing"), (over, "measured")):
        made = reserved(known)
        assert reason(made) == expected
        assert (made.mean[0, 0] == 6.0) == (expected == "pressing")
        assert made.mean[0, 1] == pytest.approx(0.1), "the other resource stays measured"


YOUNGEST = int(POLICY.probation_s // 60.0)


@pytest.mark.parametrize("calm", [YOUNGEST - 1, 10, 40])
def test_the_first_sample_of_a_step_presses_in_young_jobs_too(calm: int) -> None:
    known = measure(REQUEST, samples_of(use_of([1.0] * calm + [4.1])), Running.none(1))

    assert known.pressed_s[0].tolist() == [60.0 * (calm + 1), -np.inf]
    assert reason(reserved(known)) == "pressing"


@pytest.mark.parametrize(
    "cpu",
    [
        [1.0] * (YOUNGEST - 2) + [5.0],  # in the probation
        [0.1, 1.0] + [4.0] * 30,  # a ramp in the probation
        [1.0] * 30 + [3.9],  # recent 1.97, level 2
        [1.0, 5.0] * 15 + [6.0],  # far, but not for a job that varies as much
        [6.5] * 30 + [60.0],  # all of the request is reserved
    ],
)
def test_what_is_near_the_usual_or_early_does_not_press(cpu: list[float]) -> None:
    known = measure(REQUEST, samples_of(use_of(cpu)), Running.none(1))

    assert known.pressed_s[0].tolist() == [-np.inf, -np.inf]


EAGER = ReservePolicy(press_z=1.5)


def pressed_s(cpu: list[float], asked: float) -> float:
    """Return the time of the last press under `EAGER`, from every sample and all samples before it."""
    last, recent = -np.inf, cpu[0]
    for at in range(1, len(cpu)):
        recent += (cpu[at] - recent) / 3.0
        mean, deviation = float(np.mean(cpu[:at])), float(np.std(cpu[:at], ddof=1)) if at > 1 else 0.0
        level = mean + EAGER.press_z * max(deviation, EAGER.least_spread * mean)
        aged = 60.0 * (at + 1) >= EAGER.probation_s and at >= EAGER.min_samples
        last = 60.0 * (at + 1) if aged and recent > level and mean < asked else last
    return last


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(1, 60), st.floats(0.1, 1.5), st.integers(0, 2**32 - 1))
def test_presses_are_those_of_the_rule(count: int, sigma: float, seed: int) -> None:
    jobs = np.random.default_rng(seed).lognormal(0.0, sigma, (5, count, 4))

    known = measure(np.repeat(REQUEST, 5, axis=0), samples_of(*jobs), Running.none(5), EAGER)

    assert known.pressed_s[:, 0].tolist() == [pressed_s(job[:, 0].tolist(), 6.0) for job in jobs]
    assert known.pressed_s[:, 1].tolist() == [pressed_s(job[:, 1].tolist(), 0.5) for job in jobs]


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 30), st.floats(0.0, 1000.0), st.integers(0, 2**32 - 1))
def test_memory_is_never_below_the_largest_sample(count: int, silent_s: float, seed: int) -> None:
    use = np.random.default_rng(seed).random((count, 4)) * [8.0, 1.0, 60.0, 1.0]

    made = reserved(measure(REQUEST, samples_of(use), Running.none(1)), silent_s=silent_s)

    assert (made.memory[0] >= use[:, 2:].max(axis=0)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -1e-9, -5.0, 1e6 + 1.0])
@pytest.mark.parametrize("place", range(4))
def test_a_bad_use_is_found_in_its_cell(value: float, place: int) -> None:
    samples = samples_of(use_of([1.0] * 5), use_of([1.0] * 3))
    samples.use[0, 3, place] = value

    codes = faults_of(samples, np.full(2, -np.inf), np.full(2, 600.0))

    [[job, sample, cell]] = np.argwhere(codes).tolist()
    assert (job, sample, cell) == (0, 3, place + 1)
    assert FAULTS[codes[0, 3, place + 1] - 1] == "out_of_range"


@pytest.mark.parametrize(
    ("times", "faults"),
    [
        ([60.0, 120.0, 660.0], {}),
        ([60.0, 120.0, 661.0], {2: "ahead"}),
        ([60.0, 60.0, 120.0], {1: "out_of_order"}),
        ([100.0, 50.0, 80.0], {1: "out_of_order", 2: "out_of_order"}),
        ([-1.0, 60.0, 120.0], {0: "out_of_range"}),
        ([60.0, np.nan, 120.0], {1: "out_of_range"}),
        ([5.0, 20.0, 30.0], {0: "out_of_order"}),
    ],
)
def test_a_bad_time_is_found(times: list[float], faults: dict[int, str]) -> None:
    samples = samples_of(use_of([1.0] * 3))
    samples.at_s[0] = times

    codes = faults_of(samples, np.array([10.0 if times[0] == 5.0 else -np.inf]), np.array([600.0]))

    assert {i: FAULTS[code - 1] for i, code in enumerate(codes[0, :, 0].tolist()) if code} == faults
    assert not codes[..., 1:].any()


def test_places_without_a_sample_and_columns_not_sent_are_no_faults() -> None:
    samples = samples_of(use_of([1.0] * 5), use_of([1.0]))
    samples.use[:, :, 1] = np.nan
    samples.sent[:, 1] = False

    assert not faults_of(samples, np.full(2, -np.inf), np.full(2, 600.0)).any()
