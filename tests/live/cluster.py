"""A real API server 1.20 with etcd on the loopback, and programs that run as its service accounts."""

import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
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
BUILD = Path(__file__).with_name("build_kubernetes.sh")
READY_S = 120.0
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
        pytest.skip(f"no Kubernetes in {folder}: run {BUILD.relative_to(ROOT)} {folder}")
    return folder / "bin"


def documents_in(*folders: Path) -> list[Json]:
    """Return the Kubernetes objects of all YAML files under some folders."""
    paths = sorted(path for folder in folders for path in folder.rglob("*.yaml"))
    found = [each for path in paths for each in yaml.safe_load_all(path.read_text()) if isinstance(each, dict)]
    return [each for each in found if {"apiVersion", "kind", "metadata"} <= set(each)]


@dataclass(kw_only=True)
class Cluster:
    """A running API server; calls go as administrator unless they have a token."""

    folder: Path
    programs: Path
    port: int = field(default_factory=free_port)
    etcd_port: int = field(default_factory=free_port)
    peer_port: int = field(default_factory=free_port)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def authority(self) -> Path:
        return self.folder / "certs" / "apiserver.crt"

    def launch(self, name: str, *options: str) -> None:
        """Start one of the programs; its log is NAME.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen([self.programs / name, *options], stdout=log, stderr=log)

    def end(self, name: str) -> None:
        """Kill a program, if it runs."""
        process = self.running.pop(name, None)
        if process is not None:
            process.kill()
            process.wait(30)

    def start_etcd(self) -> None:
        """Start the store."""
        here = f"http://127.0.0.1:{self.etcd_port}"
        self.launch(
            "etcd", "--data-dir", str(self.folder / "etcd"), "--listen-client-urls", here, "--advertise-client-urls",
            here, "--listen-peer-urls", f"http://127.0.0.1:{self.peer_port}", "--log-level", "error",
        )  # fmt: skip

    def start_server(self) -> None:
        """Start the API server, and wait until it is ready."""
        key = str(self.folder / "sa.key")
        self.launch(
            "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{self.etcd_port}", "--bind-address", "127.0.0.1",
            "--advertise-address", "127.0.0.1", "--secure-port", str(self.port), "--insecure-port", "0",
            "--cert-dir", str(self.folder / "certs"), "--token-auth-file", str(self.folder / "tokens.csv"),
            "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.0.0.0/24",
            "--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", key,
            "--service-account-signing-key-file", key, "--disable-admission-plugins", "ServiceAccount",
            "--audit-policy-file", str(self.folder / "audit.yaml"), "--audit-log-path", str(self.folder / "audit.log"),
            "--profiling=false",
        )  # fmt: skip
        until(self._ready, within_s=READY_S, what="the API server's readiness")

    def _ready(self) -> bool:
        assert self.running["kube-apiserver"].poll() is None, (self.folder / "kube-apiserver.log").read_text()[-2000:]
        try:
            return self.call("GET", "/readyz").status_code == httpx2.codes.OK
        except (httpx2.TransportError, OSError):
            return False

    def call(self, method: str, path: str, body: Json | None = None, *, token: str = ADMIN, **more: Any) -> Any:
        """Return the answer to one call."""
        headers = {"authorization": f"Bearer {token}", **more.pop("headers", {})}
        trust = ssl.create_default_context(cafile=str(self.authority))
        with httpx2.Client(base_url=self.url, verify=trust, timeout=30, trust_env=False) as client:
            return client.request(method, path, json=body, headers=headers, **more)

    def made(self, path: str, body: Json) -> Json:
        """Create an object, and return it as it is stored."""
        answer = self.call("POST", path, body)
        assert answer.status_code == httpx2.codes.CREATED, answer.text
        return answer.json()

    def with_status(self, path: str, status: Json) -> None:
        """Set the status of an object, as its controller or kubelet would."""
        found = {**self.call("GET", path).json(), "status": status}
        answer = self.call("PUT", f"{path}/status", found)
        assert answer.status_code == httpx2.codes.OK, answer.text

    def environment(self) -> dict[str, str]:
        """Return variables with which kubectl finds this cluster, and programs think that they run in it."""
        return {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(self.port),
            "TERM": "dumb",
        }

    def shell(self, *words: str, text: str | None = None, **variables: str) -> str:
        """Run a command, such as kubectl; return what it printed."""
        environment = {**os.environ, **self.environment(), **variables}
        done = subprocess.run(
            words, input=text, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def apply(self, *documents: Json) -> None:
        """Apply objects with kubectl."""
        self.shell(
            "kubectl", "apply", "-f", "-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        )

    def serves(self, document: Json) -> bool:
        """Return whether the server has an object's kind."""
        group = document["apiVersion"]
        answer = self.call("GET", f"/apis/{group}" if "/" in group else f"/api/{group}")
        return answer.is_success and document["kind"] in {each["kind"] for each in answer.json()["resources"]}

    def account(self, name: str, namespace: str = "taut") -> Path:
        """Return a folder with the token of a service account and the server's certificate, as a pod has it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        folder = self.folder / "accounts" / f"{namespace}-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(self.made(path, asked)["status"]["token"])
        (folder / "ca.crt").write_text(self.authority.read_text())
        return folder

    def start_taut(self, account: Path, *words: str) -> Running:
        """Start a command of taut as a service account."""
        return start([sys.executable, "-c", AS_ACCOUNT, str(account), *words], self.environment())

    @contextmanager
    def taut(self, account: Path, *words: str) -> Iterator[Running]:
        """Run a command of taut as a service account."""
        one = self.start_taut(account, *words)
        try:
            yield one
        finally:
            stop(one)

    def audited(self, user: str) -> list[Json]:
        """Return the calls of a user so far, by the server's audit log."""
        lines = (self.folder / "audit.log").read_text().splitlines()
        return [found for line in lines if (found := json.loads(line))["user"].get("username") == user]


def address_of(one: Running) -> str:
    """Return the address at which a command listens."""

    def found() -> list[str]:
        assert one.process.poll() is None, one.errors
        return [line.removeprefix("listening on ") for line in one.errors if line.startswith("listening on ")]

    until(found, what="listening")
    return found()[0]


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    """Bring up etcd and an API server whose files are in a folder."""
    cluster = Cluster(folder=folder, programs=programs())
    subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f'{ADMIN},admin,1,"system:masters"\n')
    (folder / "audit.yaml").write_text(json.dumps(AUDIT))
    (folder / "kubeconfig").write_text(json.dumps(_kubeconfig(cluster)))
    try:
        cluster.start_etcd()
        cluster.start_server()
        yield cluster
    finally:
        for name in list(cluster.running):
            cluster.end(name)


def _kubeconfig(cluster: Cluster) -> Mapping[str, object]:
    server = {"server": cluster.url, "certificate-authority": str(cluster.authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": server}],
        "users": [{"name": "admin", "user": {"token": ADMIN}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
    }


def wait_for(cluster: Cluster, path: str, *keys: str, within_s: float = 30.0) -> Any:
    """Return a field of an object once it is set."""
    end = time.monotonic() + within_s
    while True:
        found: Any = cluster.call("GET", path).json()
        for key in keys:
            found = (found or {}).get(key)
        if found or time.monotonic() > end:
            return found
        time.sleep(0.1)
