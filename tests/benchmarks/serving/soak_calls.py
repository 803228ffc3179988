"""The soak's predictions: one job a call at a steady pace, each with an id of its own that has to come back.

Told as one line of JSON for every window of time. Run as a process of its own by `tests.benchmarks.serving.soak`.
"""

import argparse
import gc
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from tests.benchmarks.serving.paced import BROKEN, Answer, drive, even, request

PLACE: Final = b"@@job-id@@"
"""Stands for the id in the bodies that are given."""
REST_S: Final = 0.001
"""Rest between two looks: an hour of spinning would take a core from the service's other processes."""


@dataclass(slots=True)
class Window:
    """What was seen since the last line was told."""

    latencies_s: list[float] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def line(self, number: int) -> str:
        p50, p99, most = np.quantile(self.latencies_s, [0.5, 0.99, 1.0]) * 1e3
        return json.dumps(
            {
                "window": number,
                "outcomes": dict(self.outcomes),
                "models": dict(self.models),
                "p50_ms": p50,
                "p99_ms": p99,
                "max_ms": most,
                "complaints": self.complaints[:5],
            }
        )


def job_id(index: int) -> str:
    """Return the id of call number `index`."""
    return f"soak-{index:09d}"


def judged(answer: Answer) -> tuple[str, str | None]:
    """Return how an answer is counted, and the model it cites."""
    if answer.status == BROKEN:
        return "broken", None
    if answer.status != 200:
        return f"status {answer.status}", None
    found = json.loads(answer.body)["predictions"]
    if [row["job_id"] for row in found] != [job_id(answer.index)]:
        return "wrong id", None
    if found[0]["run_time_s"] is None:
        return "unanswered", None
    return "right", found[0]["models"]["run_time"]


def main() -> None:
    """Send the calls, and tell of each window as it closes."""
    parser = argparse.ArgumentParser(description="send calls with distinct ids")
    parser.add_argument("url")
    parser.add_argument("bodies", type=Path)
    parser.add_argument("--rate", type=float, required=True, help="calls per second")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--window", type=float, required=True, help="seconds per output line")
    asked = parser.parse_args()
    same = job_id(0).encode()
    bodies = asked.bodies.read_bytes().replace(PLACE, same).splitlines()
    halves = [request(asked.url, body).split(same) for body in bodies]
    window, number, size = Window(), 0, int(asked.rate * asked.window)

    def call(index: int) -> bytes:
        before, after = halves[index % len(halves)]
        return before + job_id(index).encode() + after

    def seen(answer: Answer) -> None:
        nonlocal window, number
        outcome, model = judged(answer)
        window.latencies_s.append(answer.latency_s)
        window.outcomes[outcome] += 1
        if model is not None:
            window.models[model] += 1
        if outcome != "right":
            window.complaints.append(f"{job_id(answer.index)}: {outcome}: {answer.body[:200]!r}")
        if len(window.latencies_s) >= size:
            print(window.line(number), flush=True)
            window, number = Window(), number + 1

    gc.disable()
    drive(asked.url, even(asked.rate, asked.seconds), call, seen, rest_s=REST_S)
    if window.latencies_s:
        print(window.line(number), flush=True)


if __name__ == "__main__":
    main()
