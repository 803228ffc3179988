"""A real API server 1.20 with etcd on the loopback, and programs that run as its service accounts."""

import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.benchmarks.serving.processes import free_port
from tests.modelserve.server.running import Running, start, stop, until

ROOT = Path(__file__).resolve().parents[2]
ADMIN = "administrator"
AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
Json = dict[str, Any]

# A pod finds its account in one folder; here each account has a folder of its own.
AS_ACCOUNT = """
import sys
from pathlib import Path
from pipelines.connect.kubernetes import api
api.ACCOUNT = Path(sys.argv.pop(1))
from pipelines.cli import main
main()
"""


def programs() -> Path:
    """Return the folder of the built programs, or skip with the command that builds them."""
    folder = Path(os.environ.get("TAUT_KUBERNETES", Path.home() / ".cache" / "taut-kubernetes"))
    if not (folder / "bin" / "kube-scheduler").is_file():
        pytest.skip(f"no Kubernetes in {folder}: run tests/live/build_kubernetes.sh {folder}")
    return folder / "bin"


def documents_in(*folders: Path) -> list[Json]:
    """Return the Kubernetes objects of all YAML files under some folders."""
    paths = sorted(path for folder in folders for path in folder.rglob("*.yaml"))
    found = [each for path in paths for each in yaml.safe_load_all(path.read_text()) if isinstance(each, dict)]
    return [each for each in found if {"apiVersion", "kind", "metadata"} <= set(each)]


def listed(documents: list[Json]) -> str:
    """Return objects as the text of one list, as kubectl takes it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})


def address_of(one: Running) -> str:
    """Return the address at which a command listens."""

    def found() -> list[str]:
        assert one.process.poll() is None, one.errors
        return [line.removeprefix("listening on ") for line in one.errors if line.startswith("listening on ")]

    until(found, what="listening")
    return found()[0]


@dataclass(kw_only=True)
class Cluster:
    """A running API server; calls go as administrator unless they have a token."""

    folder: Path
    programs: Path
    port: int = field(default_factory=free_port)
    store: str = field(default_factory=lambda: f"http://127.0.0.1:{free_port()}")
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        return self.folder / "certs" / "apiserver.crt"

    @property
    def environment(self) -> dict[str, str]:
        """Return variables with which kubectl finds this cluster, and programs take themselves to run in it."""
        return {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.port),
            "TERM": "dumb",
        }

    def launch(self, name: str, *options: str) -> None:
        """Start one of the programs; its log is NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen([self.programs / name, *options], stdout=log, stderr=log)

    def end(self, name: str) -> None:
        """Kill a program."""
        process = self.running.pop(name)
        process.kill()
        process.wait(30)

    def start_server(self) -> None:
        """Start the API server, and wait until it is ready."""
        here, key, off = self.folder, self.folder / "sa.key", "--disable-admission-plugins ServiceAccount"
        options = f"""
            --etcd-servers {self.store} --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --secure-port {self.port}
            --insecure-port 0 --cert-dir {here}/certs --token-auth-file {here}/tokens.csv --authorization-mode RBAC
            --service-cluster-ip-range 10.0.0.0/24 --service-account-issuer https://kubernetes.default.svc
            --service-account-key-file {key} --service-account-signing-key-file {key} --profiling=false
            --audit-policy-file {here}/audit.yaml --audit-log-path {here}/audit.log {off}
        """
        self.launch("kube-apiserver", *options.split())
        until(self._ready, within_s=120, what="the API server's readiness")

    def _ready(self) -> bool:
        assert self.running["kube-apiserver"].poll() is None, (self.folder / "kube-apiserver.log").read_text()[-2000:]
        try:
            return self.call("GET", "/readyz").is_success
        except (httpx2.TransportError, OSError):
            return False

    def call(self, method: str, path: str, body: Json | None = None, *, token: str = ADMIN, kind: str = "json") -> Any:
        """Return the answer to one call; `kind` is that of the JSON in its body."""
        headers = {"authorization": f"Bearer {token}", "content-type": f"application/{kind}"}
        trust = ssl.create_default_context(cafile=str(self.authority))
        with httpx2.Client(base_url=self.url, verify=trust, timeout=30, trust_env=False) as client:
            return client.request(method, path, content=None if body is None else json.dumps(body), headers=headers)

    def made(self, path: str, body: Json) -> Json:
        """Create an object, and return it as it is stored."""
        answer = self.call("POST", path, body)
        assert answer.is_success, answer.text
        return answer.json()

    def with_status(self, path: str, status: Json) -> Json:
        """Set the status of an object, as its controller or kubelet would, and return the object."""
        answer = self.call("PUT", f"{path}/status", {**self.call("GET", path).json(), "status": status})
        assert answer.is_success, answer.text
        return answer.json()

    def shell(self, *words: str, text: str | None = None, **variables: str) -> str:
        """Run a command, such as kubectl; return what it printed."""
        given = {"env": {**os.environ, **self.environment, **variables}, "input": text, "timeout": 60}
        done = subprocess.run(words, capture_output=True, text=True, check=False, **given)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def serves(self, document: Json) -> bool:
        """Return whether the server has an object's kind."""
        group = document["apiVersion"]
        answer = self.call("GET", f"/apis/{group}" if "/" in group else f"/api/{group}")
        return answer.is_success and document["kind"] in {each["kind"] for each in answer.json()["resources"]}

    def account(self, name: str) -> Path:
        """Return a folder with the token of a service account and the server's certificate, as a pod has it."""
        path = f"/api/v1/namespaces/taut/serviceaccounts/{name}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        folder = self.folder / "accounts" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(self.made(path, asked)["status"]["token"])
        (folder / "ca.crt").write_text(self.authority.read_text())
        return folder

    @contextmanager
    def taut(self, account: str, *words: str) -> Iterator[Running]:
        """Run a command of taut as a service account."""
        one = start([sys.executable, "-c", AS_ACCOUNT, str(self.account(account)), *words], self.environment)
        try:
            yield one
        finally:
            stop(one)

    def audited(self, account: str) -> list[Json]:
        """Return the calls of a service account so far, by the server's audit log."""
        calls = map(json.loads, (self.folder / "audit.log").read_text().splitlines())
        return [each for each in calls if each["user"].get("username") == f"system:serviceaccount:taut:{account}"]


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    """Bring up etcd and an API server whose files are in a folder."""
    cluster = Cluster(folder=folder, programs=programs())
    subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n')
    (folder / "audit.yaml").write_text(json.dumps(AUDIT))
    server = {"server": cluster.url, "certificate-authority": str(cluster.authority)}
    named = {
        "clusters": [{"name": "here", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": ADMIN}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
    }
    (folder / "kubeconfig").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "here", **named})
    )
    own = ["--data-dir", str(folder / "etcd"), "--listen-peer-urls", f"http://127.0.0.1:{free_port()}"]
    try:
        cluster.launch("etcd", *own, "--listen-client-urls", cluster.store, "--advertise-client-urls", cluster.store)
        cluster.start_server()
        yield cluster
    finally:
        for name in list(cluster.running):
            cluster.end(name)
