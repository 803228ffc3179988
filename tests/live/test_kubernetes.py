"""The Kubernetes interface on a real API server and scheduler (1.20): webhook, certificate, rights, feedback, extender.

What 1.20 lacks (`matchConditions`, suspended Jobs, resize) is tested elsewhere, with requests recorded from 1.36.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

import pytest
import yaml

from pipelines.connect.kubernetes import api
from pipelines.connect.kubernetes.config import read_config
from pipelines.connect.kubernetes.feedback import report_of
from pipelines.connect.kubernetes.manifests import write_manifests
from pipelines.connect.kubernetes.objects import quantity
from pipelines.errors import ConnectError
from tests.benchmarks.serving.processes import free_port
from tests.live.cluster import ROOT, Cluster, Json, address_of, cluster_in, documents_in, listed
from tests.live.site import GPU, SETTINGS, Site, gib, here, pod, requests, shrunk
from tests.modelserve.running import running
from tests.modelserve.server.running import stop, until
from tests.pipelines.connect.kubernetes.api_server import check_kept

pytestmark = pytest.mark.live

PODS = "/api/v1/namespaces/research/pods"
NEWER = {"HorizontalPodAutoscaler", "PodDisruptionBudget", "CronJob"}
"""Kinds of which 1.20 serves only an older version."""
FOREIGN = {"Certificate", "Issuer", "Kustomization"}
"""Kinds of cert-manager and kustomize."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_in(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Connect the cluster: apply the manifests, make the certificate, start the service and the webhook."""
    folder = tmp_path_factory.mktemp("site")
    with running(folder, mode="enforce") as address, ExitStack() as stack:
        made = Site(cluster=cluster, folder=folder, service=address, port=free_port(), stack=stack)
        write_manifests(made.manifests, image="taut:0.1.0", url=address, trace="pai", cluster="pai")
        (folder / "kubernetes.toml").write_text(SETTINGS)
        for space in ("taut", "research", "ranged", "quota", "elsewhere"):
            cluster.shell("kubectl", "create", "namespace", space)
        cluster.shell("kubectl", "label", "namespace", "research", "ranged", "quota", "taut.dev/webhook=on")
        known = [here(each, made.port) for each in documents_in(made.manifests) if cluster.serves(each)]
        cluster.shell("kubectl", "apply", "-f", "-", text=listed(known))
        made.renew_certificate()
        made.start_webhook()
        yield made


def test_the_server_takes_every_manifest(site: Site) -> None:
    found = documents_in(ROOT / "deploy", site.manifests)
    served = [each for each in found if site.cluster.serves(each)]
    assert {each["kind"] for each in found if each not in served} <= NEWER | FOREIGN
    said = ""
    for space in {each["metadata"].get("namespace", "taut") for each in served}:
        if space != "taut":
            site.cluster.shell("kubectl", "create", "namespace", space)
        these = [here(each, site.port) for each in served if each["metadata"].get("namespace", "taut") == space]
        said += site.cluster.shell("kubectl", "-n", space, "apply", "--dry-run=server", "-f", "-", text=listed(these))
    assert said.count("(server dry run)") == len(served) >= 15, said


def test_a_pod_is_created_smaller_and_its_user_is_told(site: Site) -> None:
    said = site.cluster.shell("kubectl", "-n", "research", "create", "-f", "-", text=json.dumps(pod(name="told")))
    assert "Warning: taut shrank container main: cpu 6 -> " in said
    stored = site.cluster.call("GET", f"{PODS}/told").json()
    assert quantity(requests(stored)["cpu"]) < 6
    assert gib(stored) < 29
    plain = site.created(pod(name="plain", labels={"taut.dev/mode": "off"}))
    for each in (stored, plain):
        each["metadata"] = {"annotations": each["metadata"].get("annotations") or {}}
    check_kept(plain, stored)


@pytest.mark.parametrize(
    ("name", "asked", "space"),
    [
        ("off", pod(labels={"taut.dev/mode": "off"}), "research"),
        ("no-opt-in", pod(), "elsewhere"),
        ("no-gpu", {**pod(), "spec": {"containers": [{"name": "main", "image": "a"}]}}, "research"),
        ("guaranteed", pod(limits={"cpu": "6", "memory": "29Gi"}), "research"),
        ("unknown", pod(labels={"team": "nobody", "owner": "none", "workload": "rl"}), "research"),
        ("small", pod(cpu="1m", memory="1Mi"), "research"),
    ],
)
def test_a_pod_is_created_as_asked(site: Site, name: str, asked: Json, space: str) -> None:
    made = site.created({**asked, "metadata": {**asked["metadata"], "name": name}}, space)
    assert not shrunk(made)
    assert requests(made).items() >= (asked["spec"]["containers"][0].get("resources") or {}).get("requests", {}).items()


def test_a_dry_run_and_a_running_job_stay_and_the_jobs_pods_shrink(site: Site) -> None:
    assert not shrunk(site.cluster.made(f"{PODS}?dryRun=All", pod(name="tried")))
    template = {**pod(), "spec": {**pod()["spec"], "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": template}}
    made = site.cluster.made("/apis/batch/v1/namespaces/research/jobs", job)
    assert requests(made["spec"]["template"]) == {"cpu": "6", "memory": "29Gi"}
    asked, uid = pod(generateName="train-"), made["metadata"]["uid"]
    asked["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    ]
    assert shrunk(site.created(asked))


def test_a_limit_range_and_a_quota_hold_for_the_smaller_request(site: Site) -> None:
    limits = [{"type": "Container", "min": {"memory": "25Gi"}, "default": {"cpu": "8"}}]
    site.cluster.made("/api/v1/namespaces/ranged/limitranges", {"metadata": {"name": "r"}, "spec": {"limits": limits}})
    made: list[Json] = []

    def held() -> bool:  # once the webhook has read the range; before, the server refuses the smaller pod
        answer = site.cluster.call("POST", "/api/v1/namespaces/ranged/pods", pod(generateName="ranged-"))
        made.append(answer.json())
        return answer.is_success

    until(held, within_s=15, what="the range")
    assert shrunk(made[-1])
    assert requests(made[-1])["memory"] == "25Gi"

    quotas, hard = "/api/v1/namespaces/quota/resourcequotas", {"requests.memory": "28Gi"}
    site.cluster.made(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    site.cluster.with_status(f"{quotas}/q", {"hard": hard, "used": {"requests.memory": "0"}})
    plain = pod(generateName="asked-", labels={"taut.dev/mode": "off"})
    until(
        lambda: site.cluster.call("POST", "/api/v1/namespaces/quota/pods", plain).status_code == 403, what="the quota"
    )
    assert gib(site.created(pod(name="fits"), "quota")) < 28


def test_a_renewed_certificate_loses_no_review(site: Site) -> None:
    assert site.webhook is not None
    made: list[Json] = []
    stopped, said = threading.Event(), site.webhook.messages

    def reviews() -> int:
        return sum("research/Pod: " in line for line in said())

    before = reviews()

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
    assert any(map(shrunk, made))  # on a busy machine the service may be late for some
    until(lambda: reviews() - before == len(made), what="a review of each pod")
    assert sum("read a new certificate" in line for line in said()) == 2
    assert not any("HTTP Request" in line for line in said())


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


Right = tuple[str, str, str]  # group, resource, verb


def granted(cluster: Cluster, account: str) -> set[Right]:
    """Return what an account may do besides asking for its rights."""
    asked = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "taut"}}
    path, token = (
        f"/apis/{asked['apiVersion']}/selfsubjectrulesreviews",
        (cluster.account(account) / "token").read_text(),
    )
    rules = cluster.call("POST", path, asked, token=token).json()["status"]["resourceRules"]
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if group != "authorization.k8s.io"
    }


def called(cluster: Cluster, account: str) -> set[Right]:
    """Return what an account's program did; the server must have allowed all of it."""
    calls = cluster.audited(account)
    decisions = {each.get("annotations", {}).get("authorization.k8s.io/decision") for each in calls}
    assert decisions <= {"allow", None}, calls
    made = {(each["objectRef"].get("apiGroup", ""), each["objectRef"]["resource"], each["verb"]) for each in calls}
    return {each for each in made if each[0] != "authorization.k8s.io"}


@pytest.mark.parametrize("name", ["feedback", "extender", "reclaim", "webhook"])
def test_an_account_may_do_what_its_program_calls_and_no_more(site: Site, name: str) -> None:
    listening, rounds = ("--port", "0"), ("--rounds", "1")
    options = {"feedback": (), "extender": listening, "reclaim": rounds, "webhook": listening}[name]
    asking = () if name == "extender" else site.asking
    allowed = granted(site.cluster, f"taut-{name}")
    assert allowed
    with site.cluster.taut(f"taut-{name}", "kube", name, *asking, *options):
        until(lambda: called(site.cluster, f"taut-{name}") == allowed, what=f"the calls {sorted(allowed)}")


def test_the_right_to_resize_is_enough(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    text, rule = (
        (site.manifests / "reclaim.yaml").read_text(),
        '- {apiGroups: [""], resources: [pods/resize], verbs: [patch]}',
    )
    assert f"# {rule}" in text
    monkeypatch.setattr(api, "ACCOUNT", site.cluster.account("taut-reclaim"))
    for variable, value in site.cluster.environment.items():
        monkeypatch.setenv(variable, value)

    def said() -> str:
        with pytest.raises(ConnectError) as caught:
            server.resize("research", "told", "main", {"cpu": "1"})
        return str(caught.value)

    server = api.open_api_server(None)
    with server.client:
        assert "replied 403" in said()
        site.cluster.shell("kubectl", "apply", "-f", "-", text=text.replace(f"# {rule}", rule))
        until(lambda: "replied 404" in said(), what="the right")  # allowed, but 1.20 has no such call


def test_pods_have_accounts_that_exist_and_others_mount_no_token(site: Site) -> None:
    found = documents_in(ROOT / "deploy", site.manifests)
    accounts = {each["metadata"]["name"] for each in found if each["kind"] == "ServiceAccount"}
    specs = [each["spec"]["template"]["spec"] for each in found if each["kind"] in ("Deployment", "Job", "StatefulSet")]
    specs += [each["spec"]["jobTemplate"]["spec"]["template"]["spec"] for each in found if each["kind"] == "CronJob"]
    assert {each["serviceAccountName"] for each in specs if "serviceAccountName" in each} <= accounts
    mounting = {
        each.get("serviceAccountName") for each in specs if each.get("automountServiceAccountToken") is not False
    }
    assert mounting == {"taut-extender", "taut-feedback", "taut-reclaim", "taut-webhook"}


def ended(site: Site, name: str, *, killed: bool = False) -> Json:
    """Let a pod end, as a kubelet reports it whose clock is 2 s behind; one killed for memory goes on. Return it."""
    created = datetime.fromisoformat(site.cluster.call("GET", f"{PODS}/{name}").json()["metadata"]["creationTimestamp"])
    moments = {"startedAt": created - timedelta(seconds=2), "finishedAt": created}
    times = {name: f"{each:%Y-%m-%dT%H:%M:%SZ}" for name, each in moments.items()}
    over = {"terminated": {"exitCode": 0, "reason": "OOMKilled" if killed else "Completed", **times}}
    states = {"state": {"running": {}}, "lastState": over} if killed else {"state": over}
    container = {"name": "main", "image": "train:1", "imageID": "", "ready": False, "restartCount": 0, **states}
    phase = {"phase": "Running" if killed else "Succeeded", "startTime": times["startedAt"]}
    return site.cluster.with_status(f"{PODS}/{name}", {**phase, "containerStatuses": [container]})


def test_ended_pods_are_reported_also_after_the_server_was_away(site: Site) -> None:
    cluster, before = site.cluster, site.created(pod(name="first-end"))
    with cluster.taut("taut-feedback", "kube", "feedback", *site.asking) as program:

        def reports() -> int:
            return sum(message.endswith(": 1 new") for message in program.messages())

        until(lambda: ("", "pods", "watch") in called(cluster, "taut-feedback"), what="a watch")
        row = report_of(ended(site, "first-end"), read_config(site.folder / "kubernetes.toml"))
        assert row is not None
        assert row.allocation is not None
        assert (row.request.cpu_cores, row.request.mem_gib, row.outcome) == (6.0, 29.0, "completed")
        assert row.allocation.mem_gib == pytest.approx(gib(before))
        until(lambda: reports() == 1, what="the first report")

        cluster.end("kube-apiserver")
        time.sleep(2)
        cluster.start_server()
        site.created(pod(name="second-end"))
        ended(site, "second-end", killed=True)
        until(lambda: reports() == 2, what="the report after the break")
        until(lambda: gib(site.created(pod(generateName="next-"))) > gib(before), within_s=10, what="a higher floor")
        assert program.process.poll() is None


def node(cluster: Cluster, name: str) -> None:
    """Add a node of 8 GPUs that is ready."""
    cluster.made("/api/v1/nodes", {"metadata": {"name": name}})
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
    ready = [{"type": "Ready", "status": "True", "reason": "here", "message": ""}]
    cluster.with_status(f"/api/v1/nodes/{name}", {"capacity": amounts, "allocatable": amounts, "conditions": ready})
    cluster.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, kind="merge-patch+json")


def start_scheduler(site: Site, extender: str) -> None:
    """Start a scheduler by the configuration of the manifests, with the extender's address here."""
    settings: Any = yaml.safe_load((site.manifests / "scheduler-configuration.yaml").read_text())
    settings["apiVersion"] = "kubescheduler.config.k8s.io/v1beta1"
    settings["clientConnection"] = {"kubeconfig": str(site.cluster.folder / "kubeconfig")}
    settings["leaderElection"] = {"leaderElect": False}
    settings |= {name: f"127.0.0.1:{free_port()}" for name in ("healthzBindAddress", "metricsBindAddress")}
    settings["extenders"][0]["urlPrefix"] = f"{extender}/kubernetes"
    path = site.folder / "scheduler.json"
    path.write_text(json.dumps(settings))
    site.cluster.launch("kube-scheduler", "--config", str(path), "--secure-port", "0")


def test_a_scheduler_follows_the_extender_and_goes_on_without_it(site: Site) -> None:
    cluster, path = site.cluster, "/api/v1/namespaces/elsewhere/pods"

    def scheduled(name: str, gpus: int) -> str:
        asked = pod(name=name, cpu="1", memory="1Gi", limits={GPU: str(gpus)})
        del asked["spec"]["schedulerName"]
        site.created(asked, "elsewhere")
        until(lambda: cluster.call("GET", f"{path}/{name}").json()["spec"].get("nodeName"), what=f"a node for {name}")
        return cluster.call("GET", f"{path}/{name}").json()["spec"]["nodeName"]

    for name in ("a", "b"):
        node(cluster, name)
    used = pod(name="used", cpu="40", memory="300Gi", limits={GPU: "4"})
    used["spec"]["nodeName"] = "a"
    site.created(used, "elsewhere")
    with cluster.taut("taut-extender", "kube", "extender", "--port", "0") as extender:
        until(lambda: len(called(cluster, "taut-extender")) == 4, what="the extender's watches")
        start_scheduler(site, address_of(extender))
        # The scheduler alone spreads pods; the extender keeps node b whole, which the next pod needs.
        assert scheduled("packed", 4) == "a"
        assert scheduled("whole", 8) == "b"
    for name in ("packed", "whole"):
        cluster.call("DELETE", f"{path}/{name}?gracePeriodSeconds=0")
    assert scheduled("spread", 4) == "b"
