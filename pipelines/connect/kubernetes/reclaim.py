"""Resize running pods to what they use: one round measures all pods, asks the service, and applies its reservations."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from modelserve.client import Client
from modelserve.contract.reservations import Reserved, RunningJob, Statistics
from pipelines.connect.kubernetes.api import ApiServer
from pipelines.connect.ledger import Ledger
from pipelines.errors import ConnectError

__all__ = ["Reclaimer"]

PODS: Final = "/api/v1/pods"
USAGE: Final = "/apis/metrics.k8s.io/v1beta1/pods"

Object = dict[str, Any]  # Any: JSON of Kubernetes


class Resizes(Protocol):
    """What pods are to the service, and what its reservations change of them."""

    def job(self, pod: Object, usage: Object, now: datetime, known: Statistics | None) -> RunningJob | None:
        """Return a pod as a job with a sample of its use and earlier statistics; None if it is not to be resized."""
        ...

    def requests(self, pod: Object, answer: Reserved) -> Mapping[str, str] | None:
        """Return the requests that a reservation leads to; None if they stay."""
        ...

    def container(self, pod: Object) -> str:
        """Return the name of the container that is resized."""
        ...


class Reclaimer:
    """Measures and resizes the pods of a cluster, round by round; it keeps the statistics of each pod's samples.

    Parameters
    ----------
    resizes
        What pods are to the service, and what its reservations change of them.
    enforce
        Whether pods are resized where the service's mode is `enforce`; otherwise resizes are only listed.
    """

    def __init__(self, server: ApiServer, client: Client, resizes: Resizes, *, enforce: bool) -> None:
        self._server, self._client, self._resizes, self._enforce = server, client, resizes, enforce
        self._ledger = Ledger()

    def round(self, now: datetime) -> list[dict[str, object]]:
        """Measure all pods once, and return a row for each pod that is, or would be, resized."""
        pods, usage = self._server.listed(PODS)[0], {_name(each): each for each in self._server.listed(USAGE)[0]}
        asked = []
        for pod in pods:
            job = self._resizes.job(
                pod, usage.get(_name(pod), {}), now, self._ledger.known(pod["metadata"]["uid"]).statistics
            )
            if job is not None:
                asked.append((pod, job))
        answers = self._ledger.reserved(self._client, [job for _, job in asked])
        rows = []
        for (pod, _), answer in zip(asked, answers, strict=True):
            wanted = self._resizes.requests(pod, answer)
            if wanted is not None:
                rows.append(self._resized(pod, wanted, answer))
        return rows

    def _resized(self, pod: Object, wanted: Mapping[str, str], answer: Reserved) -> dict[str, object]:
        namespace, name = _name(pod)
        row = {"namespace": namespace, "pod": name, "cpu": wanted.get("cpu"), "memory": wanted.get("memory")}
        if not self._enforce or answer.mode != "enforce":
            return row | {"reason": answer.reason, "done": False, "note": f"service {answer.mode}"}
        try:
            self._server.resize(namespace, name, self._resizes.container(pod), wanted)
        except ConnectError as error:
            return row | {"reason": answer.reason, "done": False, "note": str(error)}
        return row | {"reason": answer.reason, "done": True, "note": None}


def _name(found: Mapping[str, Any]) -> tuple[str, str]:  # Any: JSON of Kubernetes
    metadata = found.get("metadata") or {}
    return str(metadata.get("namespace")), str(metadata.get("name"))
