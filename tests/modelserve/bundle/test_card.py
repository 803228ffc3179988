"""The bounds on peak use of similar jobs in a card, and how they hold a usage model's answers."""

from dataclasses import replace

import numpy as np
import pytest

from modelserve.bundle.alike import MANY_RUNS, OWN_RUNS, Alike, held
from modelserve.bundle.bundle import Bundle
from modelserve.bundle.card import USAGE_TARGETS, Card
from scheduler_core.types import Job, PeakUse, Request
from tests.modelserve.bundle.test_predictor import PREDICTORS

ASKED = Request(cpu_cores=6.0, mem_gib=29.296875, gpus=0.5)
NEEDS = {"cpu_cores": 2.0, "mem_gib": 4.0, "gpus": 0.2, "gpu_mem_gib": 1.0}
SEEN = Alike(role="worker", cpu_cores=6.0, mem_gib=29.3, gpus=0.5, groups=60, needs=NEEDS)


def asked(**changed: object) -> Job:
    job = Job(job_id="a", trace="toy", task_type="ctr", role="worker", request=ASKED)
    return replace(job, **changed)  # type: ignore[arg-type]  # whatever fields a test varies


def said(**changed: float) -> dict[str, np.ndarray]:
    return {target: np.array([changed.get(target, 3.0)]) for target in USAGE_TARGETS}


def test_cpu_and_gpu_are_the_bound_and_memory_the_larger_of_bound_and_model() -> None:
    use, runs = held({SEEN.key: SEEN}, [asked()], said(mem_gib=9.0, gpu_mem_gib=0.5), np.array([4]))

    assert {target: values.tolist() for target, values in use.items()} == {
        "cpu_cores": [2.0],
        "mem_gib": [9.0],
        "gpus": [0.2],
        "gpu_mem_gib": [1.0],
    }
    assert runs.tolist() == [60]


@pytest.mark.parametrize(("own", "mem_gib", "gpu_mem_gib"), [(MANY_RUNS, 3.0, 3.9), (MANY_RUNS - 1, 4.0, 6.0)])
def test_a_group_measured_often_speaks_for_itself_with_room(own: int, mem_gib: float, gpu_mem_gib: float) -> None:
    use, runs = held({SEEN.key: SEEN}, [asked()], said(mem_gib=2.0), np.array([own]))

    assert {target: values.tolist() for target, values in use.items()} == {
        "cpu_cores": [pytest.approx(3.3)],
        "mem_gib": [mem_gib],
        "gpus": [3.0],
        "gpu_mem_gib": [pytest.approx(gpu_mem_gib)],
    }
    assert runs.tolist() == [own]


@pytest.mark.parametrize(("runs", "expected"), [(OWN_RUNS, 11.0), (4, 11.0), (0, 4.0)])
def test_memory_is_at_least_the_largest_measured_peak(runs: int, expected: float) -> None:
    extremes = np.array([[11.0 if runs else np.nan, *[np.nan] * 4]])

    use, _ = held({SEEN.key: SEEN}, [asked()], said(mem_gib=2.0), np.array([runs]), extremes)

    assert use["mem_gib"].tolist() == [expected]
    assert use["cpu_cores"].tolist() == [pytest.approx(3.3) if runs == OWN_RUNS else 2.0]


@pytest.mark.parametrize(("predicted", "bound"), [(4.0, 4.4), (5.9, 6.0), (6.0, 6.0), (7.0, 7.7)])
def test_the_room_of_cpu_alone_exceeds_no_request(predicted: float, bound: float) -> None:
    use, _ = held({}, [asked()], said(cpu_cores=predicted), np.array([OWN_RUNS]))

    assert use["cpu_cores"].tolist() == pytest.approx([bound])


def test_sensors_of_parameter_servers_say_nothing() -> None:
    use, runs = held({}, [asked(role="ps")], said(), np.array([400]))

    assert all(np.isnan(values).all() for values in use.values())
    assert runs.tolist() == [0]


@pytest.mark.parametrize("changed", [{"role": "ps"}, {"request": replace(ASKED, gpus=0.25)}])
def test_without_anybody_alike_nothing_is_known(changed: dict[str, object]) -> None:
    use, runs = held({SEEN.key: SEEN}, [asked(**changed)], said(), np.array([0]))

    assert all(np.isnan(values).all() for values in use.values())
    assert runs.tolist() == [0]


@pytest.mark.parametrize(("groups", "own_runs", "stands_behind"), [(None, 4, 4), (3, 4, 4), (60, 4, 60)])
def test_few_runs_of_its_own_group_are_evidence_beside_groups_alike(
    groups: int | None, own_runs: int, stands_behind: int
) -> None:
    found = {} if groups is None else {SEEN.key: SEEN.model_copy(update={"groups": groups})}

    _, runs = held(found, [asked()], said(), np.array([own_runs]))

    assert runs.tolist() == [stands_behind]


@pytest.mark.parametrize("kind", ["live", "bundles"])
def test_a_predictor_holds_its_answers_where_its_card_counts_jobs_alike(kind: str, bundles: dict[str, Bundle]) -> None:
    [bundle] = [each for name, each in bundles.items() if name.startswith("usage.")]
    job = asked(trace=bundle.card.trace, task_type=bundle.card.task_type)

    def answer(alike: tuple[Alike, ...] | None) -> PeakUse:
        card = Card.model_validate({**bundle.card.model_dump(), "alike": alike})
        return PREDICTORS[kind]({card.name: replace(bundle, card=card)}).peak_use([job])

    counted, uncounted, nobody = answer((SEEN,)), answer(None), answer(())

    assert (counted.cpu_cores.tolist(), counted.runs.tolist()) == ([2.0], [60])
    assert counted.mem_gib.tolist() == [max(4.0, *uncounted.mem_gib.tolist())]
    assert np.isfinite(uncounted.cpu_cores).all()
    assert np.isnan(nobody.cpu_cores).all()
    assert nobody.runs.tolist() == [0]
