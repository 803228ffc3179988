"""A real Slurm for the slow tests of this folder, brought up once."""

from collections.abc import Iterator

import pytest

from tests.pipelines.connect.slurm.running import Cluster, running_cluster


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """Yield a running cluster whose plugin asks an agent at `socket`, which no test has started yet."""
    with running_cluster() as cluster:
        yield cluster
