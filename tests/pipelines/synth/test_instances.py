"""A trace of as many instances as are asked for: the largest gangs hold what the drawn ones lack."""

import numpy as np
import polars as pl

from pipelines.synth.calibration import load_calibration
from pipelines.synth.pai import Trace, draw_trace
from pipelines.synth.runtime import WAITING
from pipelines.synth.tables import chunk_tables


def _drawn(instances: int | None) -> Trace:
    return draw_trace(load_calibration(), seed=3, tasks=20_000, tagged_share=None, instances=instances)


def _started(trace: Trace) -> int:
    return int(trace.tasks.instances[trace.tasks.status != WAITING].sum())


def test_as_many_instances_are_drawn_as_asked_for_and_only_large_gangs_grow() -> None:
    plain = _drawn(None)
    wanted = round(1.1 * _started(plain))

    filled = _drawn(wanted)

    assert abs(_started(filled) - wanted) < 0.002 * wanted
    small = plain.tasks.instances < 100
    assert np.array_equal(filled.tasks.instances[small], plain.tasks.instances[small])
    assert (filled.tasks.instances[~small] > plain.tasks.instances[~small]).all()


def test_no_instance_is_taken_away() -> None:
    plain = _drawn(None)

    fewer = _drawn(_started(plain) // 2)

    assert np.array_equal(fewer.tasks.instances, plain.tasks.instances)


def test_every_instance_of_a_larger_gang_has_its_row() -> None:
    trace = _drawn(150_000)
    rows = [frame for name, frame in chunk_tables(trace, 0, len(trace.jobs.group)) if name == "pai_instance_table"]

    table = pl.concat(rows)

    assert table.height == _started(trace)
    assert table["worker_name"].n_unique() == table.height
