"""A week of a site with a real Slurm, PostgreSQL, service, agent, feedback and nightly retraining; `make live` runs it.

Days are minutes, and jobs take seconds, but they hold the memory and burn the CPU that they are said to need. A ledger
keeps what each job asked for, was given, needs and came to; the test ends in one table of it.
"""

import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import beta

from modelserve.client import Client
from pipelines.connect.slurm.submission import group_of
from tests.benchmarks.serving.processes import free_port
from tests.live.workload import PLANTED, PLANTED_DAY, Ask, day_of_work
from tests.modelserve.store.postgresql import postgresql
from tests.pipelines.connect.slurm.agents import ROOT, agent_command, settings_text, wait_for_socket
from tests.pipelines.connect.slurm.closed_loop import is_ready, mib, taut
from tests.pipelines.connect.slurm.running import Cluster, running_cluster, until

pytestmark = pytest.mark.live

JOBS, DAYS = int(os.environ.get("TAUT_LIVE_JOBS", "2000")), int(os.environ.get("TAUT_LIVE_DAYS", "7"))
FIRST_DAY = 2.0
"""Jobs of the first day, which nothing changes, as a multiple of those of another day."""
PAUSE_S = 0.5
MOST_WAITING = 40
FIELDS = "JobID,State,ReqTRES,AdminComment,Start,End"


@dataclass(kw_only=True)
class Entry:
    """What became of one submission; `runs` are the rows of accounting, one for each task of an array and each run."""

    ask: Ask
    day: int
    number: int
    delay_s: float
    updated_mib: int | None = None
    runs: list[dict[str, str]] = field(default_factory=list)

    @property
    def asked_mib(self) -> int:
        return self.updated_mib or self.ask.mib

    def verdicts(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield a word for each run: `harm`, `wrong` (changed, and less than it needs), `own` fault, or `fine`."""
        for run in self.runs:
            given_mib, given_cpus = mib(run["mem"]), int(run["cpu"])
            less_mib, less_cpus = given_mib < self.asked_mib, given_cpus < self.ask.cpus
            short = less_mib and given_mib < min(self.ask.need_mib, self.asked_mib)
            took_s = moment(run["end"]) - moment(run["start"])  # longer where others have the machine's cores
            need_cpus = self.ask.need_cpus * min(self.ask.work.wall_s / max(took_s, 1), 1)
            short |= less_cpus and given_cpus < need_cpus
            killed, state = run["state"] == "OUT_OF_MEMORY", run["state"]
            failed = state in ("FAILED", "TIMEOUT") and not self.ask.work.exit
            if (killed and less_mib and self.asked_mib > self.ask.need_mib) or (failed and (less_mib or less_cpus)):
                yield "harm", run
            elif short:
                yield "wrong", run
            elif killed or failed or state == "NODE_FAIL":
                yield "own", run
            else:
                yield "fine", run

    def changed(self, run: dict[str, str]) -> bool:
        return mib(run["mem"]) < self.asked_mib or int(run["cpu"]) < self.ask.cpus


@dataclass(kw_only=True)
class Week:
    """The site and its ledger."""

    slurm: Cluster
    lake: Path
    entries: list[Entry] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    due: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def submit(self, ask: Ask, day: int) -> None:
        home, begun = self.slurm.run / "home", time.monotonic()
        script = ask.script.format(bin=home / "bin", work=ask.work.words())
        command = ["sbatch", "--parsable", *ask.options(), "--wrap", script]
        done = subprocess.run(command, capture_output=True, text=True, env=self.slurm.environment, cwd=home)
        delay_s = time.monotonic() - begun
        if done.returncode:
            self.lost.append(f"{ask.group}: {done.stderr.strip()}")
            return
        entry = Entry(ask=ask, day=day, number=int(done.stdout.strip().splitlines()[-1]), delay_s=delay_s)
        self.entries.append(entry)
        self._plan(entry)

    def _plan(self, entry: Entry) -> None:
        """Plan what the user does about a job later."""
        number, now = str(entry.number), time.monotonic()

        def scontrol(*words: str) -> Callable[[], object]:
            return lambda: self.slurm.command("scontrol", *words, check=False)

        def update() -> None:
            entry.updated_mib = 2048 if entry.number % 2 else 512
            self.slurm.command("scontrol", "update", f"JobId={number}", f"MinMemoryNode={entry.updated_mib}")
            self.slurm.command("scontrol", "release", number)

        if entry.ask.event == "wait":  # until feedback, which looks each 5 s, has reported the harm
            self.due.append((now + 25.0, scontrol("release", number)))
        elif entry.ask.event == "update":
            self.due.append((now + 1.0, update))
        elif entry.ask.event == "requeue":  # it would wait for two minutes; feedback looks at the queue each 30 s
            self.due.append((now + 2.5, scontrol("requeue", number)))
            self.due.append((now + 42.5, scontrol("update", f"JobId={number}", "StartTime=now")))
        elif entry.ask.event:
            self.due.append((now + 2.5, lambda: self.slurm.command("scancel", number, check=False)))

    def act(self) -> None:
        for each in [each for each in self.due if each[0] <= time.monotonic()]:
            self.due.remove(each)
            each[1]()

    def work(self, day: int, asks: Sequence[Ask]) -> None:
        """Submit the jobs of a day, and wait until accounting knows the end of all."""
        for i, ask in enumerate(asks):
            self.submit(ask, day)
            self.act()
            time.sleep(PAUSE_S)
            while i % 10 == 9 and len(self.slurm.command("squeue", "-h", "-r").splitlines()) > MOST_WAITING:
                self.act()
                time.sleep(0.5)

        def over() -> bool:
            self.act()
            time.sleep(0.5)
            return not self.due and self.slurm.command("squeue", "-h") == ""

        until(over, within_s=400, what="an empty queue")
        until(self.read, within_s=90, what="accounting")

    def read(self) -> bool:
        """Read the ends of the jobs; return whether all are there."""
        found: dict[int, list[dict[str, str]]] = defaultdict(list)
        for row in self.slurm.command("sacct", "-aXDnP", "-S", "now-1day", "-o", FIELDS).splitlines():
            job, state, tres, comment, start, end = row.split("|")
            if (number := job.partition("_")[0]).isdecimal() and end != "Unknown":
                run = {"job": job, "state": state.split(" ")[0], "comment": comment, "start": start, "end": end}
                found[int(number)].append({**run, **dict(each.split("=", 1) for each in tres.split(","))})
        for entry in self.entries:
            entry.runs = found[entry.number]
        seen = [each for each in self.entries if each.ask.event != "cancel waiting"]
        return all(len(entry.runs) >= entry.ask.array for entry in seen)


def prepare(slurm: Cluster) -> None:
    """Compile the program of the jobs, write their scripts, and make their users known to accounting."""
    folder = slurm.run / "home" / "bin"
    folder.mkdir()
    source = Path(__file__).with_name("work.c")
    subprocess.run(["gcc", "-O1", "-pthread", "-o", folder / "work", source], check=True)
    (folder / "python3").symlink_to("work")
    (folder / "lib.sh").write_text('step() { srun -c 8 "$@"; }\n')
    (folder / "wrapper").write_text('#!/bin/sh\nexec srun -c 4 "$@"\n')
    (folder / "wrapper").chmod(0o755)
    slurm.command("sacctmgr", "-i", "add", "user", "bin,daemon,sys,www-data", "account=research")


def token(slurm: Cluster, name: str, scope: str) -> tuple[Path, str]:
    """Return the file of a new token, and its entry for the service."""
    said = taut(slurm, "token", name, "--scope", scope, "--trace", "slurm")
    words, entry = said.strip().splitlines()[:2]
    path = slurm.run / f"token-{name}"
    path.write_text(words)
    return path, entry


def serve(slurm: Cluster, lake: Path, store: str) -> str:
    """Start service, agent and feedback as documented, each with a token of its own; return the address."""
    address = f"http://127.0.0.1:{free_port()}"
    scopes = {"agent": "predict", "feedback": "accounting", "owner": "admin"}
    tokens = {name: token(slurm, name, scope) for name, scope in scopes.items()}
    code = "from pipelines.cli import main; main()"
    taut_words = ("nice", "-n", "-15", sys.executable, "-c", code)  # as on cores of their own
    place = {**os.environ, "PYTHONPATH": str(ROOT), "SLURM_CONF": slurm.environment["SLURM_CONF"]}
    slurm.start(
        "service", *taut_words, "serve", "--lake", str(lake), "--port", address.rpartition(":")[2],
        **place, TAUT_SERVE_MODE="enforce", TAUT_SERVE_STORE=store,
        TAUT_SERVE_TOKENS=f"[{','.join(entry for _, entry in tokens.values())}]",
    )  # fmt: skip
    until(lambda: is_ready(address), within_s=90, what="a ready service")
    config = slurm.run / "week.toml"
    config.write_text(settings_text(address, least_mem_mib=32, token_file=str(tokens["agent"][0])))
    slurm.start("agent", "nice", "-n", "-15", *agent_command(config, slurm.socket), PYTHONPATH=str(ROOT))
    wait_for_socket(slurm.socket)
    slurm.start(
        "feedback", *taut_words, "slurm", "feedback", "--url", address, "--token-file", str(tokens["feedback"][0]),
        "--state", str(slurm.run / "feedback.state"), **place,
    )  # fmt: skip
    slurm.reload()
    return address


def night(slurm: Cluster, lake: Path) -> dict[str, Any]:  # Any: JSON
    """Run what the timers run each night; return the line of `taut retrain`."""
    place, begun = ("--lake", str(lake)), time.monotonic()
    taut(slurm, "slurm", "history", *place)
    said = taut(slurm, "retrain", *place, "--trace", "slurm", check=False, TAUT_THREADS="1")
    line: dict[str, Any] = json.loads(said.strip().splitlines()[-1]) if said.strip() else {"outcome": "failed"}
    return {**line, "took_s": time.monotonic() - begun}


def advised(week: Week, client: Client) -> dict[str, tuple[int, str]]:
    """Return, by group of the service, its runs so far, and why its memory is kept or shrunk."""
    ran: Counter[str] = Counter()
    asks: dict[str, Ask] = {}
    for entry in week.entries:
        name = group_of(entry.ask.user, entry.ask.name, entry.ask.tasks) or ""
        ran[name] += sum(run["state"] in ("COMPLETED", "FAILED") for run in entry.runs)
        asks[name] = entry.ask
    jobs = [
        {
            "job_id": "asked", "trace": "slurm", "cluster": "taut", "user": ask.user, "group": name,
            "request": {"cpu_cores": ask.cpus, "mem_gib": ask.mib / 1024},
        }
        for name, ask in asks.items()
    ]  # fmt: skip
    answers = client.recommendations(jobs, trace="slurm")
    return {name: (ran[name], str(each.reasons.mem_gib)) for name, each in zip(asks, answers, strict=True)}


def test_a_week() -> None:
    rng, made = random.Random(27), Counter[str]()
    per_day = JOBS / (DAYS - 1 + FIRST_DAY) / 1.1  # arrays are several jobs
    nights, brakes, first_advice = [], "", {}
    with ExitStack() as stack:
        slurm = stack.enter_context(running_cluster(more="FirstJobId=200000\n"))
        store = stack.enter_context(postgresql()).make_database("taut")
        prepare(slurm)
        week = Week(slurm=slurm, lake=slurm.run / "home" / "lake")
        address = ""
        for day in range(DAYS):
            week.work(day, list(day_of_work(rng, day, round(per_day * (1 if day else FIRST_DAY)), made)))
            nights.append(night(slurm, week.lake))
            if not address:
                address = serve(slurm, week.lake, store)
                stack.callback(lambda: [slurm.end(name) for name in ("feedback", "agent", "service")])
            time.sleep(12)  # feedback looks each 5 s, the service at the registry each 5 s
            with Client(address, token=(slurm.run / "token-owner").read_text()) as client:
                advice = advised(week, client)
                first_advice = first_advice or advice
                held = client.modes().brakes
                brakes = "; ".join(f"{each.group or each.user or each.task_type}: {each.why}" for each in held)
            models = [f"{each['model']} {each['outcome']}: {each['why']}" for each in nights[-1].get("models", [])]
            reasons = dict(Counter(reason for _, reason in advice.values()))
            told(f"day {day + 1}: {nights[-1]['outcome']} {models or nights[-1]}; brakes {brakes}; memory {reasons}")
            told("\n".join(f"  {row}" for row in ledger(week) if row["verdict"] != "fine" and row["day"] == day + 1))
        logs = {name: (slurm.run / "log" / f"{name}.out").read_text() for name in ("service", "agent", "feedback")}
    keep(week, logs)
    rows = table(week, nights, brakes, first_advice, logs)
    told("\n".join(f"{name:<64} {value}" for name, value in rows.items()))
    check(rows)


def told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def ledger(week: Week) -> list[dict[str, object]]:
    return [
        {
            "verdict": word, "group": each.ask.group, "day": each.day + 1, "event": each.ask.event,
            "asked_mib": each.asked_mib, "asked_cpus": each.ask.cpus, "delay_s": round(each.delay_s, 3),
            "needs_mib": round(each.ask.need_mib), "needs_cpus": round(each.ask.need_cpus, 2), **run,
        }
        for each in week.entries
        for word, run in each.verdicts()
    ]  # fmt: skip


def keep(week: Week, logs: dict[str, str]) -> None:
    """Keep the ledger and the logs of the last run for a look at them."""
    folder = ROOT / "build" / "live"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in logs.items():
        (folder / f"{name}.log").write_text(text)
    (folder / "ledger.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ledger(week)))


def table(
    week: Week, nights: Sequence[dict[str, Any]], brakes: str, advice: dict[str, tuple[int, str]], logs: dict[str, str]
) -> dict[str, object]:
    """Return the figures of the week, one a line."""
    judged = [(entry, word, run) for entry in week.entries for word, run in entry.verdicts()]
    changed = sum(entry.changed(run) for entry, _, run in judged)
    harmed = [(entry, run) for entry, word, run in judged if word == "harm"]
    harms = [(entry, run) for entry, run in harmed if entry.ask.group != PLANTED]
    waited = [f"{run['state']} with {run['mem']}" for entry, _, run in judged if entry.ask.event == "wait"]
    upper = float(beta.ppf(0.95, len(harms) + 1, max(changed - len(harms), 1)))
    known = {name: reason for name, (ran, reason) in advice.items() if ran >= 10}
    with_advice = sum(reason not in ("cold_start", "predictor_unavailable") for reason in known.values())
    before, after = ([e.delay_s * 1000 for e in week.entries if (e.day > 0) == late] for late in (False, True))
    rows: dict[str, object] = {
        "jobs that ended (runs of requeued jobs and tasks of arrays)": len(judged),
        "changed by taut": changed,
        "lost submissions": len(week.lost),
        "killed or broken because of taut": len(harms),
        "  upper 95 % bound on their share of the changed": f"{upper:.4f}",
        "  of a group after its earlier harm was reported": again(harms),
        "changed to less than needed, without harm": sum(word == "wrong" for _, word, _ in judged),
        "ended badly by their own request or program": sum(word == "own" for _, word, _ in judged),
        "sbatch without taut (day 1), p50 / p99 ms": quantiles(before),
        "sbatch with taut (later days), p50 / p99 ms": quantiles(after),
        "advice lost or late": sum("no advice" in line for line in logs["agent"].splitlines()),
        "retrains that succeeded": f"{sum(n['outcome'] != 'failed' for n in nights)} of {len(nights)}",
        "  of these with a new model": sum(n["outcome"] == "promoted" for n in nights),
        "  seconds of history and retrain": " ".join(f"{n['took_s']:.0f}" for n in nights),
        "groups of 10 runs with advice after night one": f"{with_advice} of {len(known)}",
        "planted harm: killed, and what became of who waited": f"{len(harmed) - len(harms)}; {'; '.join(waited)}",
        "brakes": brakes or "none",
        "requests given back": logs["feedback"].count("gave back"),
    }
    for day in range(1, DAYS):
        mine = [(e, run) for e, _, run in judged if e.day == day and e.ask.over_claims and not e.updated_mib]
        asked, given = sum(e.ask.mib for e, _ in mine), sum(mib(run["mem"]) for _, run in mine)
        cpus, given_cpus = sum(e.ask.cpus for e, _ in mine), sum(int(run["cpu"]) for _, run in mine)
        rows[f"day {day + 1}: memory, CPUs given of those asked by over-claiming groups"] = (
            f"{given / max(asked, 1):.2f} {given_cpus / max(cpus, 1):.2f}"
        )
    return rows


def again(harms: Sequence[tuple[Entry, dict[str, str]]]) -> int:
    """Return the number of harmed jobs of groups of which one had come to harm 15 s before they started."""
    first: dict[str, float] = {}
    for entry, run in harms:
        first[entry.ask.group] = min(moment(run["end"]), first.get(entry.ask.group, math.inf))
    return sum(moment(run["start"]) > first[entry.ask.group] + 15 for entry, run in harms)


def moment(text: str) -> float:
    """Return a time of sacct in seconds; 0 for a job that never started."""
    return datetime.fromisoformat(text).timestamp() if text[:1].isdigit() else 0.0


def quantiles(values: Sequence[float]) -> str:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return f"{cuts[49]:.0f} / {cuts[98]:.0f}"


def check(rows: dict[str, object]) -> None:
    """Hold the figures to what a site needs before it enforces."""
    never = ("lost submissions", "killed or broken because of taut", "changed to less than needed, without harm")
    assert {name: rows[name] for name in never} == dict.fromkeys(never, 0)
    if DAYS > PLANTED_DAY:
        assert rows["planted harm: killed, and what became of who waited"] == "3; COMPLETED with 4G"
        assert re.fullmatch(rf"[\w-]+/{PLANTED}: 3 of [^;]*", str(rows["brakes"]))
    assert rows["retrains that succeeded"] == f"{DAYS} of {DAYS}"
    with_advice, known = map(int, str(rows["groups of 10 runs with advice after night one"]).split(" of "))
    assert with_advice >= 0.8 * known > 0
    for day in range(3, DAYS + 1):
        shares = str(rows[f"day {day}: memory, CPUs given of those asked by over-claiming groups"]).split()
        assert all(float(share) <= 0.5 for share in shares)
