"""Groups of jobs of a site's week, what each of their jobs really needs, and how its script starts it."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

Event = Literal["requeue", "cancel waiting", "cancel running", "update", "wait"]
USERS = ("bin", "daemon", "games", "nobody", "sys", "www-data")

PYTHON = "exec {bin}/python3 {work}"
"""The program under a name that starts no steps of Slurm's, so that CPUs are shrunk, too."""
SRUN = "srun {bin}/work {work}"
OWN = "exec {bin}/work {work}"


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one task does; `first` multiplies the memory of task 0, `peak_mib` comes on top for `peak_s`."""

    mib: float
    cpu_s: float = 0.2
    wall_s: float = 2.2
    threads: int = 1
    peak_mib: float = 0.0
    peak_s: float = 1.3
    first: int = 1
    exit: int = 0

    def words(self) -> str:
        numbers = (round(self.mib), self.cpu_s, self.wall_s, self.threads, round(self.peak_mib), self.peak_s)
        return " ".join(map(str, (*numbers, self.first, self.exit)))


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A job as its user submits it, and what it does; memory is that of one machine."""

    group: str
    user: str
    name: str
    work: Work
    mib: int = 4096
    cpus: int = 8
    script: str = SRUN
    tasks: int = 1
    per_cpu: bool = False
    array: int = 1
    event: Event | None = None
    over_claims: bool = True

    @property
    def need_mib(self) -> float:
        """Memory without which it is killed, in MiB, without that of the shell and of Slurm's own processes."""
        tasks = (self.tasks - 1 + self.work.first) * self.work.mib
        return tasks + self.tasks * self.work.peak_mib

    @property
    def need_cpus(self) -> float:
        return self.tasks * self.work.cpu_s / self.work.wall_s

    def options(self) -> list[str]:
        memory = f"--mem-per-cpu={self.mib // self.cpus}M" if self.per_cpu else f"--mem={self.mib}M"
        words = ["-J", self.name, f"--uid={self.user}", f"-n{self.tasks}", "-N1", memory, "-t", "10"]
        words += [f"-c{self.cpus // self.tasks}", "-o", "/dev/null", "--requeue"]
        words += [f"--array=0-{self.array - 1}"] if self.array > 1 else []
        return words + (["-H"] if self.event in ("update", "wait") else [])


Draw = Callable[[Ask, random.Random, int, int], Ask]
"""Makes a job of a group from its usual one, given the day from 0 on and the number of the job in its group."""
Mean = Callable[[random.Random, int], float]
"""The usual memory of a group's jobs in MiB, given the day."""


def uses(mean: float | Mean, **more: Any) -> Draw:  # Any: values of `Work`
    """Return jobs whose memory varies by a tenth around a mean."""

    def draw(ask: Ask, rng: random.Random, day: int, i: int) -> Ask:
        return replace(ask, work=Work(mib=_varied(rng, mean(rng, day) if callable(mean) else mean), **more))

    return draw


def _varied(rng: random.Random, mib: float) -> float:
    return mib * rng.lognormvariate(0.0, 0.1)


def grows(mib: float, factor: float) -> Draw:
    return uses(lambda rng, day: mib * factor**day)


def peaks(mib: float, share: float, factor: float) -> Draw:
    return uses(lambda rng, day: mib * (factor if rng.random() < share else 1.0))


def named(mib: float, name: Callable[[random.Random, int], str]) -> Draw:
    return lambda ask, rng, day, i: replace(ask, name=name(rng, i), work=Work(mib=_varied(rng, mib)))


def sometimes(event: Event, share: float, wall_s: float = 2.2) -> Draw:
    """Return jobs to a share of which their user does something; one that is cancelled waits for a whole machine."""

    def draw(ask: Ask, rng: random.Random, day: int, i: int) -> Ask:
        made = replace(ask, work=Work(mib=_varied(rng, 100), wall_s=wall_s))
        if rng.random() >= share:
            return made
        return replace(made, event=event, cpus=64 if event == "cancel waiting" else ask.cpus)

    return draw


def bursts(ask: Ask, rng: random.Random, day: int, i: int) -> Ask:
    """Make a peak shorter than the interval between two samples of Slurm."""
    return replace(ask, work=Work(mib=60, peak_mib=rng.uniform(40, 160), peak_s=0.3))


def raised(ask: Ask, rng: random.Random, day: int, i: int) -> Ask:
    large = day >= 2 and rng.random() < 0.15
    return replace(ask, mib=8192 if large else 1024, work=Work(mib=900 if large else _varied(rng, 120)))


def uneven(ask: Ask, rng: random.Random, day: int, i: int) -> Ask:
    return replace(ask, work=Work(mib=_varied(rng, 50), first=5))


def of_many_sizes(ask: Ask, rng: random.Random, day: int, i: int) -> Ask:
    return replace(ask, tasks=rng.choice((1, 2, 4)), work=Work(mib=_varied(rng, 110)))


def fails_at_first(ask: Ask, rng: random.Random, day: int, i: int) -> Ask:
    """Fail soon and small for two days, as with an error in the program; then do what was meant."""
    if day < 2:
        return replace(ask, work=Work(mib=12, wall_s=1.2, cpu_s=0.1, exit=1))
    return replace(ask, work=Work(mib=_varied(rng, 600)))


PLANTED, PLANTED_DAY = "planted harm", 4
"""Group of which three jobs at once need far more than ever before at the start of this day, while a fourth waits."""

KINDS: dict[str, tuple[float, Draw, dict[str, Any]]] = {
    "train-small": (1.6, uses(40), {"script": PYTHON}),
    "train": (1.6, uses(60), {}),
    "simulate": (1.6, uses(90), {"script": OWN}),
    "fold": (1.6, uses(120), {"script": PYTHON}),
    "blast": (1.6, uses(160), {}),
    "render": (1.6, uses(220), {"script": OWN}),
    "etl": (1.0, named(70, lambda rng, i: f"etl-{i}"), {"mib": 2048, "cpus": 4, "script": PYTHON}),
    "nf-BWA": (1.0, named(110, lambda rng, i: f"nf-BWA_(s{i})"), {"mib": 2048, "cpus": 4}),
    "snakejob": (1.0, named(90, lambda rng, i: f"snakejob.align.{i}.sh"), {"mib": 2048, "script": PYTHON}),
    "dated": (1.0, named(130, lambda rng, i: f"run_2026-11-{1 + i % 28:02}_{rng.getrandbits(32):08x}"), {"mib": 2048}),
    "drifts up": (1.0, grows(100, 1.12), {"script": PYTHON}),
    "drifts fast": (1.0, grows(100, 1.3), {"script": PYTHON}),
    "drifts down": (1.0, grows(100, 0.85), {"script": PYTHON}),
    "doubles": (1.0, uses(lambda rng, day: 90 if day < 4 else 180), {"script": PYTHON}),
    "spiky": (1.4, peaks(110, 0.07, 3.0), {}),
    "rare peaks": (1.4, peaks(110, 0.04, 2.5), {}),
    "bursts": (1.0, bursts, {}),
    "mpi": (0.7, uses(60), {"tasks": 4}),
    "mpi by CPU": (0.7, uses(50), {"tasks": 8, "per_cpu": True}),
    "mpi of many sizes": (1.4, of_many_sizes, {}),
    "uneven tasks": (0.7, uneven, {"tasks": 4}),
    "array": (0.5, uses(80), {"array": 4}),
    "array sizes": (0.5, uses(lambda rng, day: rng.choice((40, 80, 200))), {"array": 3}),
    "requeued": (1.0, sometimes("requeue", 0.2, 4.0), {}),
    "cancelled waiting": (1.0, sometimes("cancel waiting", 0.4), {}),
    "cancelled running": (1.0, sometimes("cancel running", 0.4, 5.0), {}),
    "updated": (1.0, sometimes("update", 0.3), {}),
    "raises": (1.0, raised, {"script": PYTHON}),
    "raises, too": (1.0, raised, {}),
    "srun in a variable": (1.0, uses(80), {"script": 'RUN="srun -c 8"; $RUN {bin}/work {work}'}),
    "srun in a file": (1.0, uses(80), {"script": ". {bin}/lib.sh; step {bin}/work {work}"}),
    "srun in a wrapper": (1.0, uses(80), {"script": "{bin}/wrapper {bin}/work {work}"}),
    "exact": (1.0, uses(180), {"mib": 243, "cpus": 1, "over_claims": False}),
    "exact small": (1.0, uses(90), {"mib": 135, "cpus": 1, "over_claims": False}),
    "asks too little": (1.0, peaks(70, 0.08, 2.0), {"mib": 120, "cpus": 1, "over_claims": False}),
    "fails at first": (1.0, fails_at_first, {"mib": 2048, "over_claims": False}),
    "two sizes": (1.4, uses(lambda rng, day: rng.choice((60, 450))), {"mib": 3072, "script": PYTHON}),
    "idle": (1.0, uses(15, cpu_s=0.05), {"mib": 2048, "cpus": 16}),
    "seldom": (0.2, uses(100), {}),
    "busy": (0.6, uses(50, cpu_s=2.4, threads=2, wall_s=2.0), {"cpus": 4, "script": PYTHON}),
    PLANTED: (1.6, uses(60), {"over_claims": False}),
}
"""By group: its share of the jobs, how they are made, and what its usual job asks for."""


def day_of_work(rng: random.Random, day: int, jobs: int, made: dict[str, int]) -> Iterator[Ask]:
    """Yield the submissions of a day in random order; `made` counts those of each group."""
    if day == PLANTED_DAY:
        large = Ask(group=PLANTED, user=_user_of(PLANTED), name=PLANTED, work=Work(mib=1000), over_claims=False)
        yield from (replace(large, array=3), replace(large, event="wait"))
    for name in rng.choices(list(KINDS), weights=[share for share, _, _ in KINDS.values()], k=jobs):
        _, draw, asked = KINDS[name]
        made[name] = made.get(name, 0) + 1
        yield draw(Ask(group=name, user=_user_of(name), name=name, work=Work(mib=1.0), **asked), rng, day, made[name])


def _user_of(group: str) -> str:
    return USERS[list(KINDS).index(group) % len(USERS)]
