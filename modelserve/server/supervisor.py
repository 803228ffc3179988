"""The parent process: it binds the address, keeps the workers and the sync process running, and ends them in order.

It imports neither uvicorn nor a model: what happens to one request cannot hurt it. Called by `taut serve`.

Uvicorn's own `Multiprocess` starts workers through `multiprocessing`, which imports the parent's command in each of
them, looks for dead workers twice a second, and is deaf to a second signal once it is ending; hence this one.
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
from modelserve.server.environment import child_environment
from modelserve.server.listening import address_of, check_certificate, listening_socket
from modelserve.server.totals import METRICS_FOLDER, forget_live, metrics_folder
from modelserve.settings import ServeSettings

WORKER: Final = (sys.executable, "-m", "modelserve.server.worker")
MIRROR: Final = (sys.executable, "-m", "modelserve.server.mirroring")
LOOK_EVERY_S: Final = 0.5
END_SPARE_S: Final = 5.0
"""What a worker is given beyond draining and its calls, to close what it has open."""

Say = Callable[[str], None]
log = logging.getLogger("taut.server")


def serve(settings: ServeSettings, *, say: Say = log.info, worker: Sequence[str] = WORKER) -> None:
    """Serve until a signal asks to end, and return once every call at work is answered.

    `say` is told where the server listens and what it serves; `worker` is the command of one worker process.

    Raises
    ------
    BadSettings
        A host that is no address, or a certificate and key that cannot be used.
    ListenError
        The address cannot be listened on, or no worker starts.
    """
    check_certificate(settings)
    with listening_socket(settings.host, settings.port) as listening:
        say(f"listening on {address_of(listening, tls=settings.tls_certificate is not None)}")
        if not settings.tokens:
            say("tokens are OFF: whoever reaches this address may ask, report and change everything")
        with metrics_folder(settings.workers) as metrics:
            Supervisor(settings, listening, metrics=metrics, say=say, worker=worker).run()


class Supervisor:
    """The processes of one server; the first signal drains, the second hurries, the third kills."""

    def __init__(
        self,
        settings: ServeSettings,
        listening: socket.socket,
        *,
        metrics: Mapping[str, str],
        say: Say,
        worker: Sequence[str],
    ) -> None:
        environment = child_environment(settings, metrics)
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
        self._said_models = False
        self._failed = False

    def run(self) -> None:
        """Keep the processes running until the end was asked for and they have ended."""
        before = {number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)}
        # A signal wakes the selector, however long it would still wait.
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
            raise ListenError("no worker started; expected one to, what it said is above")

    def _children(self) -> list[Child]:
        return [*self._workers, *self._sync]

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._signals += 1

    def _step(self, wakeup: socket.socket) -> bool:
        """Wait for the next thing to happen, see to it; False once nothing is left to wait for."""
        for key, _ in self._selector.select(timeout=self._wait_s()):
            if key.fileobj is wakeup:
                wakeup.recv(4096)
            else:
                self._hear(key.data)
        self._heed_signals()
        now = time.monotonic()
        if self._kill_at is not None:
            if all(child.pid is None for child in self._workers):
                # Nobody is served any more: a sync process in the midst of the registry is not waited for long.
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
            if child.told is not None and not self._said_models and child in self._workers:
                self._said_models = True
                self._say(summary(child.told))
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

    def _heed_signals(self) -> None:
        while self._signals_heeded < self._signals:
            self._signals_heeded += 1
            if self._kill_at is None:
                self._say(f"ending: draining for {self._settings.drain_s:g} s; a second signal hurries")
                self._begin_end()
            elif self._signals_heeded == 2:
                self._signal_all(signal.SIGUSR1)
            else:
                self._signal_all(signal.SIGKILL)

    def _begin_end(self) -> None:
        # Once the workers stop to listen nobody does: a connection that no worker took is refused, not left hanging.
        self._listening.close()
        self._kill_at = time.monotonic() + self._settings.drain_s + self._settings.stop_limit_s + END_SPARE_S
        self._signal_all(signal.SIGTERM)

    def _signal_all(self, number: signal.Signals) -> None:
        for child in self._children():
            child.signal(number)


def summary(told: Mapping[str, object]) -> str:
    """Say what the first worker that was ready had loaded."""
    models, failures = told.get("models"), told.get("failures")
    said = f"serving {', '.join(models)}" if isinstance(models, list) and models else "serving no model yet"
    if isinstance(failures, dict):
        said += "".join(f"\nleft out {name}: {problem}" for name, problem in failures.items())
    return said


def _ending(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
