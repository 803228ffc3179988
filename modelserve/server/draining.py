"""A uvicorn server that drains before it stops: `/readyz` reports not ready, while calls are still answered.

`/readyz` reads `draining` from the application's state. Created by `modelserve.server.worker`.
"""

import asyncio
import contextlib
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Final

import uvicorn
from starlette.datastructures import State
from uvicorn.config import STARTUP_FAILURE

from modelserve.server.connection import BoundedConfig, Connection

TICKS_PER_SWEEP: Final = 3
"""Uvicorn's ticks between two checks for slow connections; uvicorn ticks ten times a second."""

TICKS_PER_BEAT: Final = 10
TLS_HANDSHAKE_S: Final = 10.0
HURRY_S: Final = 1.0
CLOSE: Final = ("connection", "close")


class DrainingServer(uvicorn.Server):
    """A uvicorn server that drains for `drain_s` at SIGTERM, stops at once at SIGUSR1, and ignores SIGINT.

    `on_start` is called when the server listens, and `on_beat` about once a second from the event loop.
    """

    def __init__(
        self,
        config: BoundedConfig,
        *,
        state: State,
        drain_s: float,
        stop_limit_s: float,
        on_start: Callable[[], None],
        on_beat: Callable[[], None],
    ) -> None:
        super().__init__(config)
        # `_break_off` closes all connections first; a second later, uvicorn cancels the calls that still run.
        config.timeout_graceful_shutdown = math.ceil(stop_limit_s) + 1
        self._state, self._on_start, self._on_beat = state, on_start, on_beat
        self._drain_s, self._stop_limit_s = drain_s, stop_limit_s
        state.draining = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals of a worker.

        Unlike uvicorn, do not raise them again after the end, so that the exit code is 0.
        """
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGTERM: self.drain, signal.SIGUSR1: self.hurry, signal.SIGINT: _leave_to_the_parent}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def drain(self) -> None:
        """Report not ready, close each connection after its next response, and stop after `drain_s`."""
        if self._state.draining:
            return
        self._state.draining = True
        # From now on each response closes its connection, so that no client sends a call on one that is about to close.
        self.config.headers.append(CLOSE)
        encoded = tuple(part.encode() for part in CLOSE)
        self.config.encoded_headers.append((encoded[0], encoded[1]))
        self.server_state.default_headers = [*self.server_state.default_headers, (encoded[0], encoded[1])]
        asyncio.get_running_loop().call_later(self._drain_s, self._stop)

    def hurry(self) -> None:
        """Stop without draining; running calls get `HURRY_S` to end."""
        self._state.draining = True
        self._stop_limit_s = HURRY_S
        self._stop()

    def _stop(self) -> None:
        self.should_exit = True
        asyncio.get_running_loop().call_later(self._stop_limit_s, self._break_off)

    def _break_off(self) -> None:
        # Send no response, so that clients and proxies retry: uvicorn would send a 500, which they do not retry.
        for each in list(self.server_state.connections):
            if isinstance(each, Connection):
                each.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen, as uvicorn does, but with a time limit on TLS handshakes."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        loop = asyncio.get_running_loop()
        handshake_s = TLS_HANDSHAKE_S if self.config.ssl else None
        self.servers = [
            await loop.create_server(
                self._connection,
                sock=listening,
                ssl=self.config.ssl,
                backlog=self.config.backlog,
                ssl_handshake_timeout=handshake_s,
            )
            for listening in sockets or []
        ]
        self.started = True
        self._on_start()

    def _connection(self) -> Connection:
        config = self.config
        if not isinstance(config, BoundedConfig):
            raise TypeError(f"found {type(config).__name__}, expected a BoundedConfig")
        return Connection(config, self.server_state, self.lifespan.state)

    async def on_tick(self, counter: int) -> bool:
        """Close slow connections and call `on_beat` at their intervals, in addition to uvicorn's work."""
        if counter % TICKS_PER_SWEEP == 0:
            self._sweep()
        if counter % TICKS_PER_BEAT == 0:
            self._on_beat()
        return await super().on_tick(counter)

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        for each in list(self.server_state.connections):
            if isinstance(each, Connection):
                each.sweep(now)


def _leave_to_the_parent() -> None:
    """Ignore Ctrl+C: the terminal sends it to all processes, and the parent then stops its workers with SIGTERM."""
