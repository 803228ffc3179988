"""The published protocol: what is drawn, and what is left unallocated by whole percents of what was asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.studies.fragmentation.study import PodList, filled_up, inflate
from scheduler_core.errors import BadInput
from scheduler_core.gangs import ANY_GPU_TYPE
from scheduler_core.target import target_of
from tests.scheduler_core.cases import machines

MILLI = st.lists(st.sampled_from([0, 0, 100, 300, 1000, 8000]), min_size=1, max_size=30).filter(any)


@given(MILLI, st.integers(1, 200), st.integers(0, 5))
def test_inflated_pods_ask_for_almost_the_bound(milli: list[int], tenths: int, seed: int) -> None:
    asked, capacity = np.array(milli), max(milli) * tenths // 10 + 1
    order = inflate(asked, capacity, until=1.3, rng=np.random.default_rng(seed))
    total = int(asked[order].sum())
    assert total <= 1.3 * capacity
    if asked.sum() <= 1.3 * capacity:
        assert sorted(order[: len(asked)].tolist()) == list(range(len(asked)))
        assert total + max(milli) > 1.3 * capacity
    else:
        assert len(set(order.tolist())) == len(order) < len(asked)
        assert total + max(milli) > 1.3 * capacity
    assert order.tolist() == inflate(asked, capacity, until=1.3, rng=np.random.default_rng(seed)).tolist()


def test_pods_without_a_gpu_cannot_be_inflated() -> None:
    with pytest.raises(BadInput, match="asks for a GPU"):
        inflate(np.zeros(3, dtype=np.int64), 1000, rng=np.random.default_rng(0))


def test_a_machine_is_filled_by_whole_percents_of_what_was_asked_for() -> None:
    units = np.array([[0, 0, 2000]] * 3)  # two of three fit four GPUs
    no_type = np.full(3, ANY_GPU_TYPE)
    pods = PodList(
        name="tiny", machines=tuple(machines(1)), units=units, gpu_type=no_type, gpu_types=(), target=target_of([])
    )

    rows = filled_up("gpu_packing", 0, pods=pods)

    assert [row["arrived_pct"] for row in rows] == [50, 100]
    assert [row["unallocated_pct"] for row in rows] == pytest.approx([50.0, 0.0])
