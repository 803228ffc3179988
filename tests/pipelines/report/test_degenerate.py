"""Reports of traces that tell next to nothing: what cannot be told is left out with its reason, and nothing breaks."""

from pathlib import Path

import pytest

from pipelines.report.overview import people
from pipelines.report.page import page
from pipelines.report.parts import Note, Traces
from pipelines.report.report import Order, sections
from tests.pipelines.report.tiny import figures, tables
from tests.pipelines.statistics.lakes import Rows, job, make_lake, ran

NO_TIME = [ran(at, 0.0, req_gpus=1.0, user=f"u{at % 3}", vc="v", group="g") for at in range(9)]
NO_HOURS = [job(at, req_gpus=1.0, user=f"u{at}") for at in range(4)]
NO_GPU = [ran(at, 60.0, req_gpus=0.0, user=f"u{at}") for at in range(4)]
ONE = [ran(0, 60.0, req_gpus=1.0, user="u", vc="v", group="g", task_type="ctr")]
LESS_TOLD = [ran(0, 60.0, req_gpus=1.0, user="u"), job(1, req_gpus=1.0, user="w"), ran(2, 9.0, req_gpus=2.0)]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [NO_TIME, NO_HOURS, NO_GPU, ONE, LESS_TOLD])
def test_a_trace_that_tells_little_has_a_page(tmp_path: Path, jobs: Rows) -> None:
    with make_lake(tmp_path, {"jobs": jobs}) as lake:
        made = sections(lake, ("toy",), Order(title="t"))

    assert page("t", "s", made).startswith("<!DOCTYPE html>")
    assert "status_jobs" in figures(made)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [NO_TIME, NO_HOURS])
def test_where_no_gpu_hours_are_known_no_share_of_them_is_drawn(tmp_path: Path, jobs: Rows) -> None:
    with make_lake(tmp_path, {"jobs": jobs}) as lake:
        made = sections(lake, ("toy",), Order(title="t"))

    assert "sizes_jobs_share" in figures(made)
    assert not {"sizes_gpu_hours_share", "status_gpu_hours"} & set(figures(made))
    assert "gpu_hours-by-user" not in tables(made)
    said = [part.text for section in made for part in section.parts if isinstance(part, Note)]
    assert "toy: GPU-hours by user not available; no user has known hours above 0." in said


def test_a_trace_without_hours_leaves_the_other_its_users(tmp_path: Path) -> None:
    make_lake(tmp_path, {"jobs": NO_TIME}, trace="still")
    with make_lake(tmp_path, {"jobs": LESS_TOLD}) as lake:
        made = people(Traces(lake=lake, names=("still", "toy")), None)

    assert set(tables([made])["gpu_hours-by-user"].rows["trace"]) == {"toy"}
