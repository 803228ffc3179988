"""A proxy before an S3 server that stalls one chosen PUT: before it, within its body, or before its answer."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Literal
from urllib.parse import urlsplit

Phase = Literal["before", "within", "after"]

ENDPOINT: Final = "AWS_ENDPOINT_URL"
CHUNK: Final = 65_536
HEAD_ENDS: Final = b"\r\n\r\n"
CONTINUE: Final = b"HTTP/1.1 100"


class Stalling:
    """Relays connections to `endpoint`; `stall` chooses the PUT at which the next client comes to a stop."""

    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        self._target = (parts.hostname or "", parts.port or 80)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self.stall(None)

    def stall(self, nth: int | None, phase: Phase = "before") -> None:
        """Count PUTs from here on; stall the `nth` (from 1), or none."""
        with self._lock:
            self.puts: list[str] = []
            self.stalled = threading.Event()
            self._nth, self._phase = nth, phase

    def serve(self) -> None:
        """Relay until the listener is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._relay, args=(client,), daemon=True).start()

    def close(self) -> None:
        """Take no further connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as server, suppress(OSError):
            relayed = _Relayed(self, client, server)
            threading.Thread(target=relayed.answers, daemon=True).start()
            relayed.requests()

    def phase_of(self, head: bytes) -> Phase | None:
        """Count a PUT; return where to stall it, None if it passes."""
        with self._lock:
            self.puts.append(head.split(b" ", 2)[1].decode())
            return self._phase if len(self.puts) == self._nth else None


class _Relayed:
    """One connection. A request begins with the first bytes that follow an answer: clients do not send ahead."""

    def __init__(self, proxy: Stalling, client: socket.socket, server: socket.socket) -> None:
        self.proxy, self.client, self.server = proxy, client, server
        self.begins, self.withheld = True, False

    def requests(self) -> None:
        """Relay what the client sends until it closes the connection."""
        while sent := self.client.recv(CHUNK):
            if self.begins and sent.startswith(b"PUT "):
                while HEAD_ENDS not in sent:
                    sent += self.client.recv(CHUNK)
                phase = self.proxy.phase_of(sent)
                if phase in ("before", "within"):
                    self._stop(sent, 0 if phase == "before" else _half(sent))
                    return
                self.withheld = phase == "after"
            self.begins = False
            self.server.sendall(sent)

    def answers(self) -> None:
        """Relay what the server answers, or withhold it."""
        with suppress(OSError):
            while answer := self.server.recv(CHUNK):
                if self.withheld and not answer.startswith(CONTINUE):
                    self.proxy.stalled.set()
                    return
                self.begins = True
                self.client.sendall(answer)
            self.client.shutdown(socket.SHUT_RDWR)

    def _stop(self, sent: bytes, most: int) -> None:
        """Relay at most `most` bytes of a request, and wait until the client is gone."""
        passed = 0
        while sent and passed < most:
            self.server.sendall(sent[: most - passed])
            passed += len(sent)
            sent = self.client.recv(CHUNK) if passed < most else sent
        self.proxy.stalled.set()
        while self.client.recv(CHUNK):
            pass


def _half(sent: bytes) -> int:
    """Return the bytes of a request's head and half its body."""
    head = sent[: sent.index(HEAD_ENDS) + len(HEAD_ENDS)]
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return len(head) + int(lengths[0]) // 2


@contextmanager
def stalling() -> Iterator[Stalling]:
    """Put a proxy before the server of the environment, for this process and its children."""
    endpoint = os.environ[ENDPOINT]
    proxy = Stalling(endpoint)
    threading.Thread(target=proxy.serve, daemon=True).start()
    os.environ[ENDPOINT] = proxy.endpoint
    try:
        yield proxy
    finally:
        os.environ[ENDPOINT] = endpoint
        proxy.close()
