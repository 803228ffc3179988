"""A Prometheus without a network: canned answers by function and metric, and servers that misbehave."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qs

import httpx2

from pipelines.connect.prometheus.server import Server

Handler = Callable[[httpx2.Request], httpx2.Response]
Rows = Sequence[tuple[Mapping[str, str], float | str]]

NOW_S = 1_767_571_200.0 + 100 * 3600


def answer(rows: Rows, *, kind: str = "vector", **more: object) -> httpx2.Response:
    """Return a successful answer with the series' labels and values."""
    result = [{"metric": dict(labels), "value": [0, str(value)]} for labels, value in rows]
    return httpx2.Response(200, json={"status": "success", "data": {"resultType": kind, "result": result}} | more)


def matrix(rows: Sequence[tuple[Mapping[str, str], Sequence[tuple[float, float | str]]]]) -> httpx2.Response:
    """Return a successful answer with raw samples."""
    result = [{"metric": dict(labels), "values": [[at, str(value)] for at, value in each]} for labels, each in rows]
    return httpx2.Response(200, json={"status": "success", "data": {"resultType": "matrix", "result": result}})


def clock(at_s: float = NOW_S) -> httpx2.Response:
    """Return the answer to `time()`."""
    body = {"status": "success", "data": {"resultType": "scalar", "result": [at_s, str(at_s)]}}
    return httpx2.Response(200, content=json.dumps(body))


def query_of(request: httpx2.Request) -> tuple[str, float]:
    """Return the PromQL of a request and its time."""
    form = parse_qs(request.content.decode())
    return form["query"][0], float(form.get("time", ["nan"])[0])


def server(handler: Handler, **fields: object) -> tuple[Server, list[float]]:
    """Return a server that answers by `handler`, and the list of its pauses."""
    pauses: list[float] = []
    client = httpx2.Client(transport=httpx2.MockTransport(handler), base_url="http://prom:9090")
    made = Server(client=client, address="http://prom:9090", sleep=pauses.append, **fields)
    return made, pauses


class Store:
    """Answers to the queries about an hour: by function and metric; `samples` by metric. All else is empty."""

    def __init__(self, values: Mapping[tuple[str, str], Rows], samples: Mapping[str, object] | None = None) -> None:
        self.values = values
        self.samples = samples or {}
        self.queries: list[str] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        query, _ = query_of(request)
        self.queries.append(query)
        if query == "time()":
            return clock()
        metric = re.search(r"\b(DCGM_\w+|container_\w+|slurm_\w+|node_\w+|kube_\w+)", query)
        name = metric[0] if metric else ""
        if "_over_time" not in query and not re.search(r"\b(increase|changes)\(", query):
            return matrix(self.samples.get(name, []))
        if query.startswith("topk"):
            return answer(self.values.get(("count_over_time", name), [])[:1])
        if " or " in query:
            return answer(self.values.get(("spoilt", name), []))
        function = next(
            f for f in ("count_over_time", "sum_over_time", "max_over_time", "increase", "changes") if f in query
        )
        return answer(self.values.get((function, name), []))


def every(interval_s: float, count: int, value: float = 1.0, start_s: float = 0.0) -> list[tuple[float, float]]:
    """Return samples at a fixed interval."""
    return [(start_s + interval_s * each, value) for each in range(count)]
