"""The Kubernetes interface on a real API server and scheduler (1.20): webhook, certificate, rights, feedback, extender.

What 1.20 lacks (`matchConditions`, suspended Jobs, resize) is tested elsewhere, with requests recorded from 1.36.
"""

import base64
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.connect.kubernetes import api
from pipelines.connect.kubernetes.config import read_config
from pipelines.connect.kubernetes.feedback import report_of
from pipelines.connect.kubernetes.manifests import write_manifests
from pipelines.connect.kubernetes.objects import quantity
from pipelines.connect.kubernetes.pods import SHRUNK
from pipelines.errors import ConnectError
from tests.benchmarks.serving.processes import free_port
from tests.live.cluster import ROOT, Cluster, Json, address_of, cluster_in, documents_in, wait_for
from tests.modelserve.running import running
from tests.modelserve.server.running import Running, stop, until
from tests.pipelines.connect.kubernetes.api_server import check_kept

pytestmark = pytest.mark.live

GPU = "nvidia.com/gpu"
SPACE = "research"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
NEWER = {"HorizontalPodAutoscaler", "PodDisruptionBudget", "CronJob"}
"""Kinds of which 1.20 serves only an older version."""
FOREIGN = {"Certificate", "Issuer", "Kustomization"}
"""Kinds of cert-manager and kustomize."""
SETTINGS = """
trace = "pai"
cluster = "pai"
mode = "enforce"
group = ["{label:team}"]
user = ["{label:owner}"]
task_type = ["{label:workload}"]
role = ["{label:role}"]

[[limit_ranges]]
namespace = "ranged"
min = { memory = "25Gi" }
"""


@dataclass(kw_only=True)
class Site:
    """A cluster to which taut is connected as docs/kubernetes.md says: its manifests, service and webhook."""

    cluster: Cluster
    folder: Path
    service: str
    port: int
    webhook: Running | None = None

    @property
    def manifests(self) -> Path:
        return self.folder / "manifests"

    @property
    def config(self) -> Path:
        return self.folder / "kubernetes.toml"

    def renew_certificate(self) -> None:
        """Run the script that makes a certificate, and bring the secret's files to the webhook, as a kubelet does."""
        kept = str(self.folder / "kept")
        self.cluster.shell(str(self.manifests / "certificate.sh"), TAUT_CERTIFICATES=kept)
        secret = self.cluster.call("GET", "/api/v1/namespaces/taut/secrets/taut-webhook-tls").json()
        for name in ("tls.crt", "tls.key"):
            (self.folder / name).write_bytes(base64.b64decode(secret["data"][name]))

    def start_webhook(self) -> None:
        """Start the webhook, which listens on the site's port."""
        tls = ["--tls-certificate", str(self.folder / "tls.crt"), "--tls-key", str(self.folder / "tls.key")]
        words = ["kube", "webhook", "--config", str(self.config), "--url", self.service, "--port", str(self.port), *tls]
        self.webhook = self.cluster.start_taut(self.folder, *words)
        assert address_of(self.webhook)

    def created(self, pod: Json, space: str = SPACE) -> Json:
        return self.cluster.made(f"/api/v1/namespaces/{space}/pods", pod)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_in(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Connect the cluster: apply the manifests, make the certificate, start the service and the webhook."""
    folder = tmp_path_factory.mktemp("site")
    with running(folder, mode="enforce") as address:
        made = Site(cluster=cluster, folder=folder, service=address, port=free_port())
        write_manifests(made.manifests, image="taut:0.1.0", url=address, trace="pai", cluster="pai")
        made.config.write_text(SETTINGS)
        for space in ("taut", SPACE, "ranged", "quota", "elsewhere"):
            cluster.shell("kubectl", "create", "namespace", space)
        for space in (SPACE, "ranged", "quota"):
            cluster.shell("kubectl", "label", "namespace", space, "taut.dev/webhook=on")
        cluster.apply(*(here(each, made.port) for each in documents_in(made.manifests) if cluster.serves(each)))
        made.renew_certificate()
        made.start_webhook()
        until(lambda: shrunk(made.created(pod(generateName="first-"))), what="the webhook's first patch")
        yield made
        stop(made.webhook)


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
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**name, "labels": {**named, **(labels or {})}},
        "spec": {
            "schedulerName": "none",
            "containers": [{"name": "main", "image": "train:1", "resources": resources}],
        },
    }


def shrunk(found: Json) -> bool:
    return SHRUNK in (found["metadata"].get("annotations") or {})


def requests(found: Json) -> Json:
    return found["spec"]["containers"][0]["resources"]["requests"]


def gib(found: Json) -> float:
    return float(quantity(requests(found)["memory"])) / 2**30


def test_the_server_takes_every_manifest(site: Site) -> None:
    found = documents_in(ROOT / "deploy", site.manifests)
    served = [each for each in found if site.cluster.serves(each)]
    spaces = {each["metadata"].get("namespace", "taut") for each in served}
    for space in spaces - {"taut"}:
        site.cluster.shell("kubectl", "create", "namespace", space)
    assert {each["kind"] for each in found if each not in served} <= NEWER | FOREIGN
    assert len(served) >= 15
    said = ""
    for space in spaces:
        these = [here(each, site.port) for each in served if each["metadata"].get("namespace", "taut") == space]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": these})
        said += site.cluster.shell("kubectl", "-n", space, "apply", "--dry-run=server", "-f", "-", text=text)
    assert said.count("(server dry run)") == len(served), said


def test_a_pod_is_created_smaller_and_its_user_is_told(site: Site) -> None:
    asked = pod(name="told")
    said = site.cluster.shell("kubectl", "-n", SPACE, "create", "-f", "-", text=json.dumps(asked))
    assert "Warning: taut shrank container main: cpu 6 -> " in said
    stored = site.cluster.call("GET", f"{PODS}/told").json()
    assert quantity(requests(stored)["cpu"]) < 6
    assert gib(stored) < 29
    assert stored["spec"]["containers"][0]["resources"]["limits"] == {GPU: "1"}
    unshrunk = site.created(pod(name="plain", labels={"taut.dev/mode": "off"}))
    for each in (stored, unshrunk):
        each["metadata"] = {"annotations": each["metadata"].get("annotations") or {}}
    check_kept(unshrunk, stored)


@pytest.mark.parametrize(
    ("name", "asked", "space"),
    [
        ("off", pod(labels={"taut.dev/mode": "off"}), SPACE),
        ("no-opt-in", pod(), "elsewhere"),
        ("no-gpu", {**pod(), "spec": {"containers": [{"name": "main", "image": "a", "resources": {}}]}}, SPACE),
        ("guaranteed", pod(limits={"cpu": "6", "memory": "29Gi"}), SPACE),
        ("unknown", pod(labels={"team": "nobody", "owner": "none", "workload": "rl"}), SPACE),
        ("small", pod(cpu="1m", memory="1Mi"), SPACE),
    ],
)
def test_a_pod_is_created_as_asked(site: Site, name: str, asked: Json, space: str) -> None:
    made = site.created({**asked, "metadata": {**asked["metadata"], "name": name}}, space)
    assert not shrunk(made)
    assert (made["spec"]["containers"][0]["resources"].get("requests") or {}).items() >= (
        asked["spec"]["containers"][0]["resources"].get("requests") or {}
    ).items()


def test_a_dry_run_and_a_running_job_change_nothing(site: Site) -> None:
    tried = site.cluster.call("POST", f"{PODS}?dryRun=All", pod(name="tried")).json()
    assert not shrunk(tried)
    template = {**pod(), "spec": {**pod()["spec"], "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": template}}
    made = site.cluster.made(f"/apis/batch/v1/namespaces/{SPACE}/jobs", job)
    assert requests(made["spec"]["template"]) == {"cpu": "6", "memory": "29Gi"}
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": made["metadata"]["uid"],
        "controller": True,
    }
    asked = pod(generateName="train-")
    asked["metadata"]["ownerReferences"] = [owner]
    assert shrunk(site.created(asked))


def test_a_limit_range_and_a_quota_hold_for_the_smaller_request(site: Site) -> None:
    limits = {"limits": [{"type": "Container", "min": {"memory": "25Gi"}, "default": {"cpu": "8"}}]}
    site.cluster.apply(
        {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "r", "namespace": "ranged"}, "spec": limits}
    )
    made = site.created(pod(name="ranged"), "ranged")
    assert (requests(made)["memory"], made["spec"]["containers"][0]["resources"]["limits"]["cpu"]) == ("25Gi", "8")

    hard = {"requests.memory": "28Gi"}
    path = "/api/v1/namespaces/quota/resourcequotas"
    site.cluster.made(
        path, {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
    )
    site.cluster.with_status(f"{path}/q", {"hard": hard, "used": {"requests.memory": "0"}})

    def refused() -> bool:  # once the server has seen the quota
        asked = pod(generateName="asked-", labels={"taut.dev/mode": "off"})
        return site.cluster.call("POST", "/api/v1/namespaces/quota/pods", asked).status_code == 403

    until(refused, what="the quota")
    assert gib(site.created(pod(name="fits"), "quota")) < 28


def test_a_renewed_certificate_loses_no_patch(site: Site) -> None:
    made: list[Json] = []
    stopped = threading.Event()

    def create() -> None:
        while not stopped.is_set():
            made.append(site.created(pod(generateName="renewed-")))

    thread = threading.Thread(target=create)
    thread.start()
    try:
        for _ in range(2):
            site.renew_certificate()
            time.sleep(3)
    finally:
        stopped.set()
        thread.join(60)
    assert len(made) > 20
    assert all(map(shrunk, made))
    assert sum("read a new certificate" in line for line in site.webhook.messages()) == 2


def test_without_the_webhook_a_pod_is_created_as_asked(site: Site) -> None:
    assert site.webhook is not None
    os.kill(site.webhook.process.pid, signal.SIGSTOP)
    started = time.monotonic()
    assert not shrunk(site.created(pod(name="late")))
    assert time.monotonic() - started < 5
    os.kill(site.webhook.process.pid, signal.SIGCONT)
    stop(site.webhook)
    assert not shrunk(site.created(pod(name="away")))
    site.start_webhook()
    until(lambda: shrunk(site.created(pod(generateName="again-"))), what="a patch")


def granted(cluster: Cluster, account: Path) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of what an account may do besides asking for its rights."""
    asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "taut"}}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    status = cluster.call("POST", path, asked, token=(account / "token").read_text()).json()["status"]
    return {
        (group, resource, verb)
        for rule in status["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if group != "authorization.k8s.io"
    }


def called(cluster: Cluster, name: str) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of the calls that an account's program made, all of them allowed."""
    calls = cluster.audited(f"system:serviceaccount:taut:{name}")
    decisions = {each.get("annotations", {}).get("authorization.k8s.io/decision") for each in calls}
    assert decisions <= {"allow", None}, calls
    found = set()
    for each in calls:
        of = each["objectRef"]
        if of.get("apiGroup") != "authorization.k8s.io":
            resource = "/".join(filter(None, (of["resource"], of.get("subresource"))))
            found.add((of.get("apiGroup", ""), resource, each["verb"]))
    return found


@pytest.mark.parametrize("name", ["feedback", "extender", "reclaim"])
def test_an_account_may_do_what_its_program_calls_and_no_more(site: Site, name: str) -> None:
    cluster, account = site.cluster, site.cluster.account(f"taut-{name}")
    ours = ["--config", str(site.config), "--url", site.service]
    words = {"feedback": ours, "extender": ["--port", "0"], "reclaim": [*ours, "--rounds", "1"]}[name]
    allowed = granted(cluster, account)
    assert allowed
    with cluster.taut(account, "kube", name, *words):
        until(lambda: called(cluster, f"taut-{name}") == allowed, what=f"the calls {sorted(allowed)}")


def test_the_right_to_resize_is_enough(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (site.manifests / "reclaim.yaml").read_text()
    rule = '- {apiGroups: [""], resources: [pods/resize], verbs: [patch]}'
    assert f"# {rule}" in text
    [role] = [each for each in yaml.safe_load_all(text.replace(f"# {rule}", rule)) if each["kind"] == "ClusterRole"]
    before = site.cluster.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/taut-reclaim").json()
    site.cluster.apply(role)
    monkeypatch.setattr(api, "ACCOUNT", site.cluster.account("taut-reclaim"))
    for variable, value in site.cluster.environment().items():
        monkeypatch.setenv(variable, value)
    server = api.open_api_server(None)
    with server.client:
        # 404: allowed, but 1.20 has no such subresource; without the right it is 403.
        until(lambda: "404" in _resize(server), what="the right")
    site.cluster.apply(
        {
            "apiVersion": role["apiVersion"],
            "kind": "ClusterRole",
            "metadata": role["metadata"],
            "rules": before["rules"],
        }
    )


def _resize(server: api.ApiServer) -> str:
    with pytest.raises(ConnectError) as caught:
        server.resize(SPACE, "told", "main", {"cpu": "1"})
    return str(caught.value)


def test_pods_have_accounts_that_exist_and_the_others_have_no_rights(site: Site) -> None:
    found = documents_in(ROOT / "deploy", site.manifests)
    accounts = {each["metadata"]["name"] for each in found if each["kind"] == "ServiceAccount"}
    specs = [each["spec"]["template"]["spec"] for each in found if each["kind"] in ("Deployment", "Job")]
    specs += [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in found if each["kind"] == "CronJob"]
    assert specs
    assert {each["serviceAccountName"] for each in specs if "serviceAccountName" in each} <= accounts
    mounting = {each["serviceAccountName"] for each in specs if each.get("automountServiceAccountToken") is not False}
    assert mounting == {"taut-extender", "taut-feedback", "taut-reclaim"}
    assert granted(site.cluster, site.cluster.account("taut-webhook")) == set()


def ended(site: Site, name: str, *, reason: str = "Completed") -> Json:
    """Let a pod's container end, as a kubelet reports it whose clock is 2 s behind; return the pod.

    After an OOM kill, the pod goes on.
    """
    created = datetime.fromisoformat(site.cluster.call("GET", f"{PODS}/{name}").json()["metadata"]["creationTimestamp"])
    moments = {"startedAt": created - timedelta(seconds=2), "finishedAt": created}
    times = {name: f"{each:%Y-%m-%dT%H:%M:%SZ}" for name, each in moments.items()}
    over = {"terminated": {"exitCode": 0, "reason": reason, **times}}
    states = {"state": {"running": {}}, "lastState": over} if reason == "OOMKilled" else {"state": over}
    container = {"name": "main", "image": "train:1", "imageID": "", "ready": False, "restartCount": 0, **states}
    phase = "Running" if reason == "OOMKilled" else "Succeeded"
    status = {"phase": phase, "startTime": times["startedAt"], "containerStatuses": [container]}
    site.cluster.with_status(f"{PODS}/{name}", status)
    return site.cluster.call("GET", f"{PODS}/{name}").json()


def test_ended_pods_are_reported_also_after_the_server_was_away(site: Site) -> None:
    cluster = site.cluster
    before = site.created(pod(name="first-end"))
    words = ["kube", "feedback", "--config", str(site.config), "--url", site.service]
    with cluster.taut(cluster.account("taut-feedback"), *words) as program:

        def reports() -> int:
            return sum(message.endswith(": 1 new") for message in program.messages())

        until(lambda: ("", "pods", "watch") in called(cluster, "taut-feedback"), what="a watch")
        row = report_of(ended(site, "first-end"), read_config(site.config))
        assert row is not None
        assert (row.request.cpu_cores, row.request.mem_gib, row.outcome) == (6.0, 29.0, "completed")
        assert row.allocation is not None
        assert row.allocation.mem_gib == pytest.approx(gib(before))
        until(lambda: reports() == 1, what="the first report")

        cluster.end("kube-apiserver")
        time.sleep(2)
        cluster.start_server()
        site.created(pod(name="second-end"))
        ended(site, "second-end", reason="OOMKilled")
        until(lambda: reports() == 2, what="the report after the break")
        until(lambda: gib(site.created(pod(generateName="next-"))) > gib(before), within_s=10, what="a higher floor")
        assert program.process.poll() is None


def node(cluster: Cluster, name: str) -> None:
    """Add a node of 8 GPUs that is ready."""
    cluster.made("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
    ready = [{"type": "Ready", "status": "True", "reason": "here", "message": ""}]
    cluster.with_status(f"/api/v1/nodes/{name}", {"capacity": amounts, "allocatable": amounts, "conditions": ready})
    kind = {"content-type": "application/merge-patch+json"}
    cluster.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, headers=kind)


@contextmanager
def scheduling(site: Site, extender: str) -> Iterator[None]:
    """Run a scheduler by the configuration of the manifests, with the extender's address here."""
    settings: Any = yaml.safe_load((site.manifests / "scheduler-configuration.yaml").read_text())
    settings["apiVersion"] = "kubescheduler.config.k8s.io/v1beta1"
    settings["clientConnection"] = {"kubeconfig": str(site.cluster.folder / "kubeconfig")}
    settings["leaderElection"] = {"leaderElect": False}
    settings |= {name: f"127.0.0.1:{free_port()}" for name in ("healthzBindAddress", "metricsBindAddress")}
    settings["extenders"][0]["urlPrefix"] = f"{extender}/kubernetes"
    path = site.folder / "scheduler.json"
    path.write_text(json.dumps(settings))
    site.cluster.launch("kube-scheduler", "--config", str(path), "--secure-port", "0")
    try:
        yield
    finally:
        site.cluster.end("kube-scheduler")


def test_a_scheduler_follows_the_extender_and_goes_on_without_it(site: Site) -> None:
    cluster, path = site.cluster, "/api/v1/namespaces/elsewhere/pods"

    def scheduled(name: str, gpus: int) -> str:
        asked = pod(name=name, cpu="1", memory="1Gi", limits={GPU: str(gpus)})
        del asked["spec"]["schedulerName"]
        site.created(asked, "elsewhere")
        return wait_for(cluster, f"{path}/{name}", "spec", "nodeName")

    for name in ("a", "b"):
        node(cluster, name)
    used = pod(name="used", cpu="40", memory="300Gi", limits={GPU: "4"})
    used["spec"]["nodeName"] = "a"
    site.created(used, "elsewhere")
    with cluster.taut(cluster.account("taut-extender"), "kube", "extender", "--port", "0") as extender:
        until(lambda: len(called(cluster, "taut-extender")) == 4, what="the extender's watches")
        with scheduling(site, address_of(extender)):
            # The scheduler alone spreads pods; the extender keeps node b whole, which the next pod needs.
            assert scheduled("packed", 4) == "a"
            assert scheduled("whole", 8) == "b"
            stop(extender)
            cluster.call("DELETE", f"{path}/packed?gracePeriodSeconds=0")
            cluster.call("DELETE", f"{path}/whole?gracePeriodSeconds=0")
            assert scheduled("spread", 4) == "b"
