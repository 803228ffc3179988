"""The webhook and the extender against their bars, over loopback sockets, with a real service of two small models."""

import http.client
import json
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final
from urllib.parse import urlsplit

from modelserve.contract.requests import RecommendBody
from pipelines.connect.kubernetes.extender import NodeView, extender_app
from pipelines.connect.kubernetes.webhook import open_webhook
from tests.benchmarks.harness import Bar, Row, alternately, amount_row, benchmark
from tests.modelserve.running import running, serving
from tests.pipelines.connect.kubernetes.api_server import recorded

ROUNDS: Final = 5
CALLS: Final = 200
NODES: Final = 1000
PODS: Final = 3000
REVIEW_BAR: Final = Bar(side="at most", value=10.0)
VERB_BAR: Final = Bar(side="at most", value=20.0)
CONFIG: Final = 'trace = "pai"\nmode = "enforce"\ngroup = ["{label:team}"]\ntask_type = ["{label:kind}"]\n'


def calls_ms(url: str, path: str, body: bytes) -> list[float]:
    """Return the milliseconds of each call on one connection, without the first few."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    taken = []
    for number in range(CALLS + 10):
        begin = time.perf_counter()
        connection.request("POST", path, body, {"content-type": "application/json"})
        reply = connection.getresponse()
        content = reply.read()
        assert reply.status == 200, content
        if number >= 10:
            taken.append((time.perf_counter() - begin) * 1000.0)
    connection.close()
    return taken


def webhook_rows() -> list[Row]:
    """Time reviews that are answered with the service's advice, and the service alone, in turn."""
    review = recorded("pod-of-job")
    review["request"]["object"]["metadata"]["labels"] |= {"team": "g0", "kind": "ctr"}
    request = {"cpu_cores": 6.0, "mem_gib": 29.0, "gpus": 1.0}
    job = {"job_id": "a", "task_type": "ctr", "group": "g0", "request": request, "floors": {"gpus": 1.0}}
    alone = RecommendBody.model_validate({"trace": "pai", "jobs": [job]}).model_dump_json(exclude_none=True).encode()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "kubernetes.toml"
        config.write_text(CONFIG)
        with running(Path(folder)) as url, serving(open_webhook(config, [url], None, None)) as webhook:
            measures = {
                "service": lambda: calls_ms(url, "/v1/recommendations", alone),
                "review": lambda: calls_ms(webhook, "/kubernetes/mutate", json.dumps(review).encode()),
            }
            ms = alternately(measures, ROUNDS)
    p50 = {name: [median(each) for each in rounds] for name, rounds in ms.items()}
    return [
        amount_row("a review with the service's advice: p50", p50["review"], unit="ms", bar=REVIEW_BAR),
        amount_row("of that, the service alone: p50", p50["service"], unit="ms"),
    ]


def extender_rows() -> list[Row]:
    """Time both verbs for a pod and all nodes of a cluster that is partly full."""
    rng, view = random.Random(0), NodeView(["nvidia.com/gpu"])
    names = [f"node-{i}" for i in range(NODES)]
    for name in names:
        amounts = {"cpu": "96", "memory": "512Gi", "nvidia.com/gpu": "8"}
        view.apply("ADDED", {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}})
    for i in range(PODS):
        cpu, gpus = str(rng.randint(1, 30)), str(rng.choice([0, 1, 1, 2, 4, 8]))
        amounts = {"cpu": cpu, "memory": "8Gi", "nvidia.com/gpu": gpus}
        spec = {"nodeName": rng.choice(names), "containers": [{"resources": {"requests": amounts}}]}
        view.apply("ADDED", {"kind": "Pod", "metadata": {"uid": str(i)}, "spec": spec, "status": {"phase": "Running"}})
    rows = []
    with serving(extender_app(view)) as url:
        for verb in ("filter", "prioritize"):
            body = json.dumps({**recorded(f"extender-{verb}"), "NodeNames": names}).encode()
            rounds = [median(calls_ms(url, f"/kubernetes/{verb}", body)) for _ in range(ROUNDS)]
            rows.append(amount_row(f"{verb}, {NODES} nodes, {PODS} pods: p50", rounds, unit="ms", bar=VERB_BAR))
    return rows


main = partial(benchmark, "kubernetes", __doc__, {"webhook": webhook_rows, "extender": extender_rows})

if __name__ == "__main__":
    main()
