"""The access log: one line for each call, written beside the event loop.

No bodies, tokens or query strings: a line holds what is counted, not what was said. Called by the gate.
"""

import json
import queue
import sys
import threading
import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal, TextIO

from modelserve.api.calls import Call
from modelserve.background import give_way

WAITING_LIMIT: Final = 50_000
"""Lines that may wait for a slow reader of stderr; what comes after them is dropped and counted."""

TOGETHER_S: Final = 0.05
"""How long lines are gathered before they are written: one write for many calls."""


class AccessLog:
    """The lines of one worker, written by a thread of their own; `dropped` counts those that nobody would read."""

    def __init__(self, form: Literal["json", "console"], *, out: TextIO | None = None) -> None:
        self.dropped = 0
        self._out = out
        self._line = json_line if form == "json" else console_line
        self._waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start to write."""
        self._thread = threading.Thread(target=self._write, name="access-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, and end."""
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join(timeout=5.0)
            self._thread = None

    def put(self, call: Call, duration_s: float) -> None:
        """Take the line of a call that has ended; never blocks."""
        if self._thread is None or self._waiting.qsize() >= WAITING_LIMIT:
            self.dropped += 1
            return
        self._waiting.put(self._line(call, duration_s, time.time()))

    def _write(self) -> None:
        give_way()
        going = True
        while going:
            lines = [self._waiting.get()]
            time.sleep(TOGETHER_S)
            while not self._waiting.empty():
                lines.append(self._waiting.get())
            going = None not in lines
            out = self._out or sys.stderr
            try:
                out.write("".join(line for line in lines if line is not None))
                out.flush()
            except (OSError, ValueError):  # nobody reads; calls are answered all the same
                self.dropped += len(lines)


def json_line(call: Call, duration_s: float, at_s: float) -> str:
    """Return a call's line as JSON; only what came from outside and may hold anything is escaped."""
    caller = "null" if call.caller is None else _quoted(call.caller.name)
    trace = call.traceparent
    return (
        f'{{"ts":"{_moment(at_s)}","level":"info","event":"request","request_id":"{call.request_id}",'
        f'"answer_id":"{call.answer_id}","method":{_quoted(call.method[:16])},"route":"{call.route}",'
        f'"status":{call.status},"duration_s":{duration_s:.6f},"caller":{caller},"rows":{call.rows},'
        f'"models":{_listed(call.models)}' + (f',"traceparent":"{trace}"}}\n' if trace else "}\n")
    )


def console_line(call: Call, duration_s: float, at_s: float) -> str:
    """Return a call's line for a person to read."""
    caller = "-" if call.caller is None else call.caller.name
    models = ",".join(call.models) or "-"
    return (
        f"{_moment(at_s)} {call.status} {call.method[:16]} {call.route} {duration_s * 1e3:.2f} ms "
        f"rows={call.rows} caller={caller} models={models} id={call.request_id}\n"
    )


@lru_cache(maxsize=256)
def _quoted(text: str) -> str:
    return json.dumps(text)


@lru_cache(maxsize=256)
def _listed(texts: tuple[str, ...]) -> str:
    return json.dumps(texts)


@lru_cache(maxsize=2)
def _second(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _moment(at_s: float) -> str:
    whole_s = int(at_s)
    return f"{_second(whole_s)}.{int((at_s - whole_s) * 1e3):03d}+00:00"
