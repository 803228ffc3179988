"""The engines of one machine: results in order, a process that dies costs its own unit alone, and none is left over."""

from pathlib import Path

import pytest

from pipelines.engine.engine import RETRIES, Engine, Local, Processes
from pipelines.errors import EngineError, TrainingError
from tests.pipelines.engine.work import Job, alive, runs, square

pytestmark = pytest.mark.slow
ENGINES: list[Engine] = [Local(), Processes(2)]


@pytest.mark.parametrize("engine", ENGINES, ids=["local", "processes"])
def test_results_come_in_the_order_of_the_units(engine: Engine, tmp_path: Path) -> None:
    jobs = [Job(number=n, wait_s=0.1 * (n == 0)) for n in range(5)]

    assert list(engine.run(square, tmp_path, jobs)) == [0, 1, 4, 9, 16]
    assert list(engine.run(square, tmp_path, [])) == []
    assert runs(tmp_path) == [0, 1, 2, 3, 4]
    assert not alive(tmp_path)


@pytest.mark.parametrize("engine", ENGINES, ids=["local", "processes"])
def test_the_error_of_a_unit_is_raised_as_it_is(engine: Engine, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="job 1 failed"):
        list(engine.run(square, tmp_path, [Job(number=0), Job(number=1, fails=True), Job(number=2, wait_s=0.2)]))

    assert not alive(tmp_path)
    assert runs(tmp_path).count(1) == 1  # an error is no death: it is not tried again


def test_a_process_that_dies_costs_its_own_unit_alone(tmp_path: Path) -> None:
    jobs = [Job(number=0, wait_s=0.5), Job(number=1, deaths=2, wait_s=0.1), *(Job(number=n) for n in range(2, 6))]

    assert list(Processes(2).run(square, tmp_path, jobs)) == [0, 1, 4, 9, 16, 25]
    assert runs(tmp_path) == [0, 1, 1, 1, 2, 3, 4, 5]
    assert not alive(tmp_path)


def test_a_unit_that_always_kills_its_process_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="job 7: 4 processes died"):
        list(Processes(1).run(square, tmp_path, [Job(number=7, deaths=99)]))

    assert runs(tmp_path) == [7] * (1 + RETRIES)
    assert not alive(tmp_path)
