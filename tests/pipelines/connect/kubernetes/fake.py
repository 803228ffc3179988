"""An API server that lists in pages and streams what a test gives it, on a free port of the loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]


class Cluster:
    """Objects by path, the events of each watch in turn, and the queries that came."""

    def __init__(self, objects: dict[str, list[Json]], *, page: int = 2) -> None:
        self.objects, self.page = objects, page
        self.watches: dict[str, list[list[Json]]] = {}
        self.queries: list[Json] = []
        self.resizes: list[tuple[str, Json]] = []
        self.status = 200


@contextmanager
def api_server(cluster: Cluster) -> Iterator[str]:
    """Serve a cluster; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name that http.server calls
            path, query = urlsplit(self.path).path, {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
            cluster.queries.append({"path": path, **query})
            self.send_response(cluster.status)
            self.send_header("connection", "close")
            self.end_headers()
            if "watch" in query:
                turns = cluster.watches.get(path) or [[{"type": "ERROR", "object": {"code": 410}}]]
                lines = turns.pop(0) if turns else []
                self.wfile.write("".join(json.dumps(each) + "\n" for each in lines).encode())
            else:
                at = int(query.get("continue", 0))
                rest = cluster.objects[path][at : at + cluster.page]
                more = str(at + cluster.page) if at + cluster.page < len(cluster.objects[path]) else ""
                answer = {"items": rest, "metadata": {"resourceVersion": "7", "continue": more}}
                self.wfile.write(json.dumps(answer).encode())

        def do_PATCH(self) -> None:
            patch = json.loads(self.rfile.read(int(self.headers["content-length"])))
            cluster.resizes.append((self.path, patch))
            self.send_response(cluster.status)
            self.send_header("connection", "close")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
