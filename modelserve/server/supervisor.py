"""The parent process: bind the address, keep the workers and the sync process running, and stop them.

It imports neither uvicorn nor a model and reads no request, so no request can crash it. Called by `taut serve`.

Uvicorn's own `Multiprocess` is not used: it imports the parent's command in every worker, checks for dead workers only
twice a second, and ignores a second signal while it stops.
"""

import logging
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Final

from modelserve.errors import ListenError
from modelserve.server.child import Child, Duty
from modelserve.server.environment import METRICS_FOLDER, STORE_INODE, child_environment, forget_live, metrics_folder
from modelserve.server.listening import address_of, allow_open_files, check_certificate, listening_socket
from modelserve.settings import ServeSettings

WORKER: Final = (sys.executable, "-P", "-m", "modelserve.server.worker")
MIRROR: Final = (sys.executable, "-P", "-m", "modelserve.server.mirroring")
LOOK_EVERY_S: Final = 0.5
END_SPARE_S: Final = 5.0
"""Seconds for a worker to close its resources after draining and its last calls."""

Say = Callable[[str], None]
log = logging.getLogger("taut.server")


def serve(settings: ServeSettings, *, say: Say = log.info, worker: Sequence[str] = WORKER) -> None:
    """Serve until SIGTERM or SIGINT, and return after running calls are answered.

    `say` reports messages for the user, such as the address; `worker` is the command of one worker process.

    Raises
    ------
    BadSettings
        The host is not an address, or the TLS certificate and key cannot be used.
    ListenError
        The server cannot listen on the address, the system allows too few open files, or no worker starts.
    """
    check_certificate(settings)
    connections = allow_open_files(settings.connections_limit)
    if connections < settings.connections_limit:
        say(
            f"the limit of open files (ulimit -n) allows each worker {connections} connections, not "
            f"{settings.connections_limit}"
        )
    with listening_socket(settings.host, settings.port) as listening:
        if not settings.tokens:
            say("tokens are OFF: anyone who reaches this address has full access")
        with metrics_folder(settings.workers) as metrics:
            Supervisor(settings, listening, metrics=metrics, say=say, worker=worker).run()


class Supervisor:
    """The child processes of one server.

    The first SIGTERM or SIGINT drains the workers, the second stops them at once, the third kills them.
    """

    def __init__(
        self,
        settings: ServeSettings,
        listening: socket.socket,
        *,
        metrics: Mapping[str, str],
        say: Say,
        worker: Sequence[str],
    ) -> None:
        self._environment = environment = child_environment(settings, metrics)
        self._settings, self._listening, self._metrics, self._say = settings, listening, metrics, say
        listening.set_inheritable(True)
        self._workers = [
            Child(
                Duty(
                    name=f"worker {slot}",
                    command=(*worker, str(slot), str(listening.fileno())),
                    environment=environment,
                    files=(listening.fileno(),),
                )
            )
            for slot in range(settings.workers)
        ]
        mirrors = settings.tracking_uri is not None
        self._sync = [Child(Duty(name="sync", command=MIRROR, environment=environment))] if mirrors else []
        self._selector = selectors.DefaultSelector()
        self._signals = 0
        self._signals_heeded = 0
        self._kill_at: float | None = None
        self._models_reported = False
        self._failed = False

    def run(self) -> None:
        """Start the processes, restart those that die, and return when a signal has stopped all of them."""
        before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        # Python writes to `woken` when a signal arrives, which ends the wait of the selector.
        ours, woken = socket.socketpair()
        ours.setblocking(False)
        woken.setblocking(False)
        former = signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
        try:
            self._selector.register(ours, selectors.EVENT_READ)
            while self._step(ours):
                pass
        finally:
            for child in self._children():
                child.signal(signal.SIGKILL)
            signal.set_wakeup_fd(former)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            ours.close()
            woken.close()
        if self._failed:
            raise ListenError("no worker started; see its messages above")

    def _children(self) -> list[Child]:
        return [*self._workers, *self._sync]

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _step(self, wakeup: socket.socket) -> bool:
        """Wait for the next event and handle it; return False once all processes have ended."""
        for key, _ in self._selector.select(timeout=self._wait_s()):
            if key.fileobj is wakeup:
                wakeup.recv(4096)
            else:
                self._hear(key.data)
        self._heed_signals()
        now = time.monotonic()
        if self._kill_at is not None:
            if all(child.pid is None for child in self._workers):
                # All workers have ended, so wait only `END_SPARE_S` for the sync process.
                self._kill_at = min(self._kill_at, now + END_SPARE_S)
            if now > self._kill_at:
                self._signal_all(signal.SIGKILL)
            return any(child.pid is not None for child in self._children())
        for child in self._children():
            if child.hangs(now):
                log.error("%s (process %s) hangs; killing it", child.duty.name, child.pid)
                child.signal(signal.SIGKILL)
            if child.due_at is not None and child.due_at <= now:
                self._selector.register(child.start(now), selectors.EVENT_READ, child)
        return True

    def _wait_s(self) -> float:
        due = [child.due_at for child in self._children() if child.due_at is not None]
        return max(0.0, min([LOOK_EVERY_S, *(at - time.monotonic() for at in due)]))

    def _hear(self, child: Child) -> None:
        now = time.monotonic()
        if child.hear(now):
            if child.told is not None and child in self._workers:
                self._note_ready(child.told)
            return
        self._selector.unregister(child.end)
        pid = child.pid
        code = child.bury(now)
        if self._kill_at is not None:
            return
        if child in self._workers:
            forget_live(self._metrics.get(METRICS_FOLDER), str(self._workers.index(child)))
            if not any(each.ever_ready for each in self._workers):
                self._failed = True
                self._begin_end()
                return
        log.error("%s (process %s) ended with %s; starting another", child.duty.name, pid, _ending(code))

    def _note_ready(self, told: Mapping[str, object]) -> None:
        if told.get("store_inode"):
            # A worker that starts later must not create another store, or open one that replaced the first.
            self._environment.setdefault(STORE_INODE, str(told["store_inode"]))
        if not self._models_reported:
            self._models_reported = True
            secure = self._settings.tls_certificate is not None
            self._say(f"listening on {address_of(self._listening, tls=secure)}")  # from now on calls are answered
            self._say(summary(told))

    def _heed_signals(self) -> None:
        while self._signals_heeded < self._signals:
            self._signals_heeded += 1
            if self._kill_at is None:
                self._say(f"ending: draining for {self._settings.drain_s:g} s; a second signal stops at once")
                self._begin_end()
            elif self._signals_heeded == 2:
                self._signal_all(signal.SIGUSR1)
            else:
                self._signal_all(signal.SIGKILL)

    def _begin_end(self) -> None:
        # Close the parent's copy of the socket too, so that connections which no worker accepts are refused.
        self._listening.close()
        self._kill_at = time.monotonic() + self._settings.drain_s + self._settings.stop_limit_s + END_SPARE_S
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._children():
            child.signal(number)


def summary(told: Mapping[str, object]) -> str:
    """Return a text that names the loaded models and the failures in a worker's ready message."""
    models, failures = told.get("models"), told.get("failures")
    text = f"serving {', '.join(models)}" if isinstance(models, list) and models else "serving no model yet"
    if isinstance(failures, dict):
        text += "".join(f"\nleft out {name}: {problem}" for name, problem in failures.items())
    return text


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
