"""Read a Kubernetes API server: lists of objects in pages, and their later changes."""

import json
import logging
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
from pydantic_core import from_json

from pipelines.connect.http import FAULTS, TooSlow, content_of, open_client
from pipelines.errors import BadUsage, ConnectError

__all__ = ["ApiServer", "open_api_server"]

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder in which a pod finds the token and the certificate authority of its service account."""

LIMIT_RANGES: Final = "/api/v1/limitranges"

PAGE: Final = 500
MOST_BYTES: Final = 1024 * 2**20
"""Maximum size of a page: a cluster's store keeps at most 1.5 MB of an object."""
ANSWER_S: Final = 300.0
WATCH_S: Final = 300
"""Seconds for which the API server keeps one watch open; the next watch continues where it ended."""

TIMEOUT: Final = httpx2.Timeout(10.0, read=WATCH_S + 30.0)
PAUSES_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)

Object = dict[str, Any]  # Any: JSON of Kubernetes
Change = tuple[str, Object]


log = logging.getLogger("taut.kubernetes")


class _Again(Exception):
    """Raised if a list must be read again from the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServer:
    """An API server: its client, and the file of the token, which Kubernetes renews."""

    client: httpx2.Client
    token_file: Path | None
    sleep: Callable[[float], None] = time.sleep

    def listed(self, path: str) -> tuple[list[Object], str]:
        """Return all objects at a path such as `/api/v1/pods`, and the version at which later changes begin."""
        found: list[Object] = []
        params = {"limit": str(PAGE)}
        while True:
            status, content = self._answer("GET", path, params=params)
            try:
                page = from_json(content) if status == httpx2.codes.OK else None
            except ValueError as error:
                raise self._no_answer(error) from error
            if not isinstance(page, dict):
                raise ConnectError(
                    f"{self.client.base_url}: GET {path} replied {status}; "
                    "expected a list; see that the account may list it"
                )
            found += page.get("items") or []
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return found, str(metadata.get("resourceVersion") or "")
            params = {"limit": str(PAGE), "continue": metadata["continue"]}

    def resize(self, namespace: str, pod: str, container: str, requests: Mapping[str, str]) -> None:
        """Change the requests of a container of a running pod in place."""
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/resize"
        patch = {"spec": {"containers": [{"name": container, "resources": {"requests": dict(requests)}}]}}
        kind = {"content-type": "application/strategic-merge-patch+json"}
        status, _ = self._answer("PATCH", path, headers=kind, content=json.dumps(patch))
        if status != httpx2.codes.OK:
            raise ConnectError(f"PATCH {path} replied {status}; expected 200; see the rights on pods/resize")

    def _answer(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None, **given: Any
    ) -> tuple[int, bytes]:  # Any: as in httpx2
        """Return the status and the body of one call."""
        try:
            with self.client.stream(method, path, headers={**self._headers(), **(headers or {})}, **given) as reply:
                content = content_of(reply, most_bytes=MOST_BYTES, limit_s=ANSWER_S, cure="expected a page of a list")
        except (*FAULTS, TooSlow) as error:
            raise self._no_answer(error) from error
        return reply.status_code, content

    def changes(self, path: str, kind: str) -> Iterator[Change]:
        """Yield RESET, then every object as ADDED, and later each change; never ends.

        After a long break everything is read again, beginning with RESET. Each object gets its `kind`.
        """
        failures = 0
        while True:
            try:
                found, version = self.listed(path)
                yield "RESET", {"kind": kind}
                for each in found:
                    yield "ADDED", {**each, "kind": kind}
                failures = 0
                while True:
                    for change, each in self._watched(path, version):
                        version = str((each.get("metadata") or {}).get("resourceVersion") or version)
                        if change != "BOOKMARK":
                            yield change, {**each, "kind": kind}
            except (ConnectError, _Again) as error:
                if isinstance(error, ConnectError):
                    log.warning("%s", error)
                self.sleep(PAUSES_S[min(failures, len(PAUSES_S) - 1)])
                failures += 1

    def _watched(self, path: str, version: str) -> Iterator[Change]:
        params = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(WATCH_S),
        }
        try:
            with self.client.stream("GET", path, params=params, headers=self._headers()) as reply:
                if reply.status_code != httpx2.codes.OK:
                    raise _Again
                for line in reply.iter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":  # mostly 410: the version is too old
                        raise _Again
                    yield event["type"], event["object"]
        except (*FAULTS, ValueError, KeyError, TypeError) as error:
            raise _Again from error

    def _no_answer(self, error: Exception) -> ConnectError:
        found = f"{self.client.base_url}: {type(error).__name__} {' '.join(str(error).split())[:120]}"
        return ConnectError(f"{found}; expected an API server; see that it, or `kubectl proxy`, runs there")

    def _headers(self) -> Mapping[str, str]:
        if self.token_file is None:
            return {}
        try:
            return {"authorization": f"Bearer {self.token_file.read_text(encoding='utf-8').strip()}"}
        except OSError as error:
            raise ConnectError(
                f"{self.token_file}: no token ({error.strerror}); expected the service account's"
            ) from error


def in_cluster() -> bool:
    """Return whether this runs in a pod that has its service account's token."""
    return "KUBERNETES_SERVICE_HOST" in os.environ and (ACCOUNT / "ca.crt").is_file()


def open_api_server(url: str | None) -> ApiServer:
    """Return the API server at `url` (no token, as for `kubectl proxy`); without `url`, that of this pod's cluster."""
    if url is not None:
        expected = f"--api-server {url[:60]!r}: expected an address such as http://127.0.0.1:8001"
        return ApiServer(client=open_client(url, expected=expected, timeout=TIMEOUT, trust_env=False), token_file=None)
    if not in_cluster():
        raise BadUsage(
            "found no cluster; run in a pod, or give --api-server http://127.0.0.1:8001 with `kubectl proxy`"
        )
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    client = open_client(address, expected=f"{address}: no address", timeout=TIMEOUT, verify=trust, trust_env=False)
    return ApiServer(client=client, token_file=ACCOUNT / "token")
