"""A uvicorn server that drains before it stops: `/readyz` reports not ready, while calls are still answered.

`/readyz` reads `draining` from the application's state.
"""

import asyncio
import contextlib
import math
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Final, cast

import uvicorn
from starlette.datastructures import State
from uvicorn.config import STARTUP_FAILURE

from modelserve.server.connection import BoundedConfig, Connection

__all__ = ["DrainingServer"]

SWEEP_TICKS: Final = 3
"""Uvicorn's ticks between two checks for slow connections; uvicorn ticks ten times a second."""
BEAT_TICKS: Final = 10
TLS_HANDSHAKE_S: Final = 10.0
HURRY_S: Final = 1.0
CLOSE: Final = (b"connection", b"close")


class DrainingServer(uvicorn.Server):
    """A uvicorn server that drains for `drain_s` at SIGTERM or SIGINT, and stops at once at SIGUSR1.

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
        on_beat: Callable[[], object],
    ) -> None:
        super().__init__(config)
        # `_break_off` closes all connections first; a second later, uvicorn cancels the calls that still run.
        config.timeout_graceful_shutdown = math.ceil(stop_limit_s) + 1
        self._state, self._on_start, self._on_beat = state, on_start, on_beat
        self._drain_s, self._stop_limit_s = drain_s, stop_limit_s
        state.draining = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals; unlike uvicorn, do not raise them again after the end, so that the exit code is 0."""
        loop = asyncio.get_running_loop()
        for number, handler in {
            signal.SIGTERM: self.drain,
            signal.SIGINT: self.drain,
            signal.SIGUSR1: self.hurry,
        }.items():
            loop.add_signal_handler(number, handler)
        yield

    def drain(self) -> None:
        """Report not ready, close each connection after its next response, and stop after `drain_s`."""
        if not self._state.draining:
            self._state.draining = True
            # From now on each response closes its connection, so that no client sends a call on one about to close.
            self.config.encoded_headers.append(CLOSE)
            self.server_state.default_headers = [*self.server_state.default_headers, CLOSE]
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
        for each in self._connections():
            each.transport.abort()

    def _connections(self) -> list[Connection]:
        return [each for each in self.server_state.connections if isinstance(each, Connection)]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and listen, as uvicorn does, but with a time limit on TLS handshakes."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        config = cast("BoundedConfig", self.config)
        self.servers = [
            await asyncio.get_running_loop().create_server(
                lambda: Connection(config, self.server_state, self.lifespan.state),
                sock=listening,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=TLS_HANDSHAKE_S if config.ssl else None,
            )
            for listening in sockets or []
        ]
        self.started = True
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        """Close slow connections and call `on_beat` at their intervals, in addition to uvicorn's work."""
        if counter % SWEEP_TICKS == 0:
            now = asyncio.get_running_loop().time()
            for each in self._connections():
                each.sweep(now)
        if counter % BEAT_TICKS == 0:
            self._on_beat()
        return await super().on_tick(counter)
