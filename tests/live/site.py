"""A cluster of Kubernetes 1.20 to which taut is connected, and the pods of its tests."""

import base64
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from pipelines.connect.kubernetes.objects import quantity
from pipelines.connect.kubernetes.pods import SHRUNK
from tests.live.cluster import Cluster, Json, address_of
from tests.modelserve.server.running import Running, until

GPU = "nvidia.com/gpu"
SETTINGS = """
trace = "pai"
cluster = "pai"
mode = "enforce"
group = ["{label:team}"]
user = ["{label:owner}"]
task_type = ["{label:workload}"]
role = ["{label:role}"]
"""


@dataclass(kw_only=True)
class Site:
    """A cluster to which taut is connected as docs/kubernetes.md says: its manifests, service and webhook."""

    cluster: Cluster
    folder: Path
    service: str
    port: int
    stack: ExitStack
    webhook: Running | None = None

    @property
    def manifests(self) -> Path:
        return self.folder / "manifests"

    @property
    def asking(self) -> tuple[str, ...]:
        """Return the options of commands that ask the service."""
        return ("--config", str(self.folder / "kubernetes.toml"), "--url", self.service)

    def renew_certificate(self) -> None:
        """Run the script that makes a certificate, and bring the secret's files to the webhook, as a kubelet does."""
        kept = str(self.folder / "kept")
        self.cluster.shell(str(self.manifests / "certificate.sh"), TAUT_CERTIFICATES=kept)
        secret = self.cluster.call("GET", "/api/v1/namespaces/taut/secrets/taut-webhook-tls").json()
        for name in ("tls.crt", "tls.key"):
            (self.folder / name).write_bytes(base64.b64decode(secret["data"][name]))

    def start_webhook(self) -> Running:
        """Start the webhook on the site's port, and wait until it shrinks pods."""
        tls = ["--tls-certificate", str(self.folder / "tls.crt"), "--tls-key", str(self.folder / "tls.key")]
        words = ["kube", "webhook", *self.asking, "--port", str(self.port), *tls]
        self.webhook = self.stack.enter_context(self.cluster.taut("taut-webhook", *words))
        assert address_of(self.webhook)
        until(lambda: shrunk(self.created(pod(generateName="first-"))), what="a patch")
        return self.webhook

    def created(self, pod: Json, space: str = "research") -> Json:
        return self.cluster.made(f"/api/v1/namespaces/{space}/pods", pod)


def here(document: Json, port: int) -> Json:
    """Return a manifest with what differs here: the service's address, and what 1.20 does not have."""
    document = deepcopy(document)
    if (document["kind"], document["metadata"]["name"]) == ("Service", "taut-webhook"):
        document["spec"] = {"type": "ExternalName", "externalName": "localhost"}
    for each in document.get("webhooks") or []:
        del each["matchConditions"]
        each["clientConfig"]["service"]["port"] = port
    return document


def pod(
    *, cpu: str = "6", memory: str = "29Gi", limits: Json | None = None, labels: Json | None = None, **name: str
) -> Json:
    """Return a pod with a GPU of the group that the small models know; no scheduler takes it."""
    named = {"team": "g0", "owner": "u1", "workload": "ctr", "role": "worker"}
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {GPU: "1", **(limits or {})}}
    main = {"name": "main", "image": "train:1", "resources": resources}
    metadata = {**name, "labels": {**named, **(labels or {})}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "none", "containers": [main]},
    }


def shrunk(found: Json) -> bool:
    return SHRUNK in (found["metadata"].get("annotations") or {})


def requests(found: Json) -> Json:
    return found["spec"]["containers"][0]["resources"].get("requests") or {}


def gib(found: Json) -> float:
    return float(quantity(requests(found)["memory"])) / 2**30
