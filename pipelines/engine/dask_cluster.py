"""The engine `dask`: units run on the workers of a Dask cluster, which exists already or is started on this machine.

Only this module imports Dask, which is an optional package.
"""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final, TypeVar

from pipelines.engine.engine import RETRIES, Engine
from pipelines.errors import BadUsage, EngineError

try:
    import dask
    from distributed import Client, KilledWorker, LocalCluster, as_completed
    from distributed.comm import CommClosedError
except ImportError as error:
    raise BadUsage("--engine dask needs the package distributed: pip install 'taut[dask]'") from error

__all__ = ["Dask"]

Shared = TypeVar("Shared")
Unit = TypeVar("Unit")
Result = TypeVar("Result")

LOOPBACK: Final = "127.0.0.1"
CONNECT_S: Final = 10
WORKERS_S: Final = 60
"""Seconds that a cluster may have no worker that takes units; a worker short of memory takes none."""
CHECK_S: Final = 5
DECIDING: Final = ("taut", "xgboost", "xgboost-cpu", "scikit-learn", "polars", "duckdb", "numpy")
"""Packages whose versions a result depends on."""


class Dask(Engine):
    """Runs units on the Dask cluster whose scheduler is at `address`; without one, in `workers` processes here."""

    def __init__(self, address: str | None, workers: int) -> None:
        self.address, self.workers = address, workers

    def run(self, work: Callable[[Shared, Unit], Result], shared: Shared, units: Sequence[Unit]) -> Iterator[Result]:
        """Yield the result of each unit, in order; stay connected until the last."""
        with self._client() as client:
            self._check_versions(client)
            yield from self._run_on(client, work, shared, units)

    def _run_on(
        self,
        client: Any,  # Any: Dask's client has no types
        work: Callable[[Shared, Unit], Result],
        shared: Shared,
        units: Sequence[Unit],
    ) -> Iterator[Result]:
        found: dict[int, Result] = {}
        given, left = 0, set(range(len(units)))
        for _ in range(1 + RETRIES):
            if not left:
                return
            for index, result in self._gathered(client, work, shared, {index: units[index] for index in left}):
                left.remove(index)
                found[index] = result
                while given in found:
                    yield found.pop(given)
                    given += 1
        if left:
            raise self._died(units[min(left)])

    def _gathered(
        self,
        client: Any,  # Any: Dask's client has no types
        work: Callable[[Shared, Unit], Result],
        shared: Shared,
        units: Mapping[int, Unit],
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results of some units as they come; leave out those whose shared data were lost with workers.

        Dask itself repeats the unit of a worker that died.
        """
        try:
            held = client.scatter([shared], broadcast=True, hash=False, timeout=WORKERS_S)[0]
        except TimeoutError as error:
            raise self._idle() from error
        except CommClosedError as error:
            if client.status != "running":
                raise self._gone() from error
            return
        futures = {client.submit(work, held, unit, pure=False): index for index, unit in sorted(units.items())}
        for future in self._ended(client, set(futures)):
            try:
                yield futures[future], future.result()
            except KilledWorker as error:
                raise self._died(units[futures[future]]) from error
            except (CancelledError, CommClosedError) as error:
                if client.status != "running":
                    raise self._gone() from error
            future.release()

    def _ended(self, client: Any, futures: set[Any]) -> Iterator[Any]:  # Any: Dask's client and futures have no types
        """Yield each future when it ends; raise EngineError if no worker takes units."""
        while futures:
            try:
                for future in as_completed(list(futures), loop=client.loop, timeout=CHECK_S):
                    futures.remove(future)
                    yield future
            except TimeoutError:
                self._wait_for_worker(client)

    @contextmanager
    def _client(self) -> Iterator[Any]:  # Any: Dask's client has no types
        """Connect to the cluster, or start one of processes that listens on the loopback address alone."""
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        with dask.config.set({"distributed.comm.timeouts.connect": CONNECT_S}):
            if self.address is None:
                with (
                    LocalCluster(
                        n_workers=self.workers,
                        threads_per_worker=1,
                        host=LOOPBACK,
                        dashboard_address=None,
                        scheduler_kwargs={"dashboard_address": f"{LOOPBACK}:0"},  # any free port, without a warning
                        silence_logs=logging.CRITICAL,
                    ) as cluster,
                    Client(cluster, set_as_default=False) as client,
                ):
                    yield client
                return
            try:
                client = Client(self.address, timeout=CONNECT_S, set_as_default=False)
            except (OSError, ValueError) as error:
                raise EngineError(
                    f"no Dask scheduler answers at {self.address}; start one with `dask scheduler`"
                ) from error
            with client:
                yield client

    def _wait_for_worker(self, client: Any) -> None:  # Any: Dask's client has no types
        try:
            client.wait_for_workers(1, timeout=WORKERS_S)
        except TimeoutError as error:
            raise self._idle() from error
        except (CancelledError, OSError) as error:
            raise self._gone() from error

    def _check_versions(self, client: Any) -> None:  # Any: Dask's client has no types
        """Wait for a worker; refuse workers with other versions than here, whose results could differ."""
        self._wait_for_worker(client)
        ours = _installed()
        for worker, theirs in client.run(_installed, on_error="ignore").items():
            if theirs != ours:
                name = next(name for name in ours if theirs.get(name) != ours[name])
                raise EngineError(
                    f"the Dask worker {worker} has {name} {theirs.get(name)}; expected {ours[name]}, as here"
                )

    @property
    def _where(self) -> str:
        return self.address or LOOPBACK

    def _gone(self) -> EngineError:
        return EngineError(
            f"the Dask scheduler at {self._where} is gone; nothing was committed. Start it again and repeat the command"
        )

    def _idle(self) -> EngineError:
        return EngineError(
            f"the Dask scheduler at {self._where} has no worker that takes work after {WORKERS_S} s; nothing was "
            "committed. Start some with `dask worker`; one that is short of memory needs a larger --memory-limit"
        )

    def _died(self, unit: object) -> EngineError:
        cure = (
            "Run it with fewer processes (--threads gives each one more cores), or on a larger machine"
            if self.address is None
            else "Start workers with a larger --memory-limit"
        )
        return EngineError(
            f"{unit}: several workers died while they ran it, probably for lack of memory; nothing was committed. "
            f"{cure}; train models on fewer jobs with --newest"
        )


def _installed() -> dict[str, str | None]:
    return {"python": sys.version.split()[0], **{name: _version(name) for name in DECIDING}}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
