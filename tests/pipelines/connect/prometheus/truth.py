"""A small cluster whose use is known: series as real exporters write them, and what each job used in truth."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

T0 = 1_767_571_200.0  # 2026-01-05 00:00 UTC
INTERVAL_S = 15.0
GIB = 2.0**30
BLANKS = (9223372036854775792, 9223372036854775793, 9223372036854775794, 9223372036854775795)
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series: metric, labels, Unix times and values."""

    metric: str
    labels: Mapping[str, str]
    at_s: Values
    values: Values


@dataclass(slots=True, kw_only=True)
class Job:
    """One job: when and where it ran, and its use in the columns of `usage`."""

    job_id: str
    start_s: float
    end_s: float
    gpus: tuple[tuple[str, int], ...]
    used: dict[str, float] = field(default_factory=dict)


def schedule(rng: np.random.Generator, hosts: int, hours: float, gpus: int = 4) -> list[Job]:
    """Fill hosts with jobs on one, two or all GPUs; all jobs of a host change together, with a pause between."""
    jobs: list[Job] = []
    for host in range(hosts):
        at = T0 + float(rng.uniform(0, 600))
        while at < T0 + hours * 3600 - 1200:
            each = int(rng.choice([1, 2, gpus]))
            for first in range(0, gpus, each):
                long = float(rng.uniform(900, 7200))
                held = tuple((f"n{host}", index) for index in range(first, first + each))
                end = min(at + long, T0 + hours * 3600)
                jobs.append(Job(job_id=str(1000 + len(jobs)), start_s=at, end_s=end, gpus=held))
            at = max(job.end_s for job in jobs[-(gpus // each) :]) + float(rng.uniform(5, 120))
    return jobs


def scrapes(host: str, from_s: float, to_s: float) -> Values:
    """Return the times at which a host is scraped: every 15 s, shifted by host, to the millisecond."""
    shift = (sum(host.encode()) * 1.237) % INTERVAL_S
    first = np.ceil((from_s - shift) / INTERVAL_S)
    return np.round(np.arange(first, np.ceil((to_s - shift) / INTERVAL_S)) * INTERVAL_S + shift, 3)


def busy(rng: np.random.Generator, count: int) -> Values:
    """Return percentages of a GPU: a level with noise, and phases without work."""
    level = rng.uniform(5, 95)
    phases = np.repeat(rng.random(count // 20 + 1) < 0.8, 20)[:count]
    return np.clip(np.round(level * phases + rng.normal(0, 4, count)), 0, 100)


def memory(rng: np.random.Generator, count: int) -> Values:
    """Return used MiB: it grows to a level, with one short peak, not in the first or last two samples."""
    level = rng.uniform(500, 14000)
    used = np.round(level * np.minimum(1.0, np.arange(1, count + 1) / 8) + rng.normal(0, 5, count).clip(-20, 20))
    used = used.clip(1)
    if count > 4:
        used[int(rng.integers(2, count - 2))] += round(level * 0.3)
    return used


def gpu_labels(host: str, gpu: int) -> dict[str, str]:
    """Return the labels of a GPU as dcgm-exporter writes them; hosts with an odd number have the newer spelling."""
    spelling = "hostname" if int(host[1:]) % 2 else "Hostname"
    return {
        "gpu": str(gpu),
        "UUID": f"GPU-{host}-{gpu}",
        "pci_bus_id": f"00000000:{gpu:02X}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": "Tesla T4",
        spelling: host,
        "DCGM_FI_DRIVER_VERSION": "535.154.05",
        "instance": f"{host}:9400",
        "job": "dcgm",
    }


def dcgm(
    rng: np.random.Generator, jobs: list[Job], until_s: float, *, naming: Mapping[str, Mapping[str, str]]
) -> Iterator[Series]:
    """Yield GPU_UTIL and FB_USED of every GPU, with the labels of the job that holds it (`naming`), and set its use."""
    held: dict[tuple[str, int], list[Job]] = {}
    for job in jobs:
        for place in job.gpus:
            held.setdefault(place, []).append(job)
        job.used |= {"used_gpus": 0.0, "gpu_mem_avg_gib": 0.0, "gpu_mem_max_gib": 0.0}
    for (host, gpu), runs in sorted(held.items()):
        at = T0
        for job in [*sorted(runs, key=lambda run: run.start_s), None]:
            labels = gpu_labels(host, gpu)
            idle = scrapes(host, at, until_s if job is None else job.start_s)
            yield Series(metric="DCGM_FI_DEV_GPU_UTIL", labels=labels, at_s=idle, values=np.zeros(len(idle)))
            yield Series(metric="DCGM_FI_DEV_FB_USED", labels=labels, at_s=idle, values=np.full(len(idle), 3.0))
            if job is None:
                break
            times = scrapes(host, job.start_s, job.end_s)
            util, used = busy(rng, len(times)), memory(rng, len(times))
            mine = labels | naming.get(job.job_id, {})
            yield Series(metric="DCGM_FI_DEV_GPU_UTIL", labels=mine, at_s=times, values=util)
            yield Series(metric="DCGM_FI_DEV_FB_USED", labels=mine, at_s=times, values=used)
            job.used["used_gpus"] += float(util.mean()) / 100
            job.used["gpu_mem_avg_gib"] += float(used.mean()) / 1024
            job.used["gpu_mem_max_gib"] += float(used.max()) / 1024
            at = job.end_s


def environment(rng: np.random.Generator, host: str, gpu: int, until_s: float) -> tuple[list[Series], Values]:
    """Return power, temperature, clocks, energy and XID series of one GPU, and its true energy in J per hour."""
    at = scrapes(host, T0, until_s)
    watts = np.round(rng.uniform(30, 70) + rng.normal(0, 3, len(at)), 3)
    drawn_mj = np.round(np.cumsum(watts) * INTERVAL_S * 1000) + 1e9
    drawn_mj[len(at) // 2 :] -= drawn_mj[len(at) // 2] - 1000  # the driver is loaded again
    errors = np.where(at > T0 + 5000, 31.0, 0.0)
    by_metric = {
        "DCGM_FI_DEV_POWER_USAGE": watts,
        "DCGM_FI_DEV_GPU_TEMP": np.round(watts / 2 + 20),
        "DCGM_FI_DEV_SM_CLOCK": np.full(len(at), 1590.0),
        "DCGM_FI_DEV_MEM_CLOCK": np.full(len(at), 5000.0),
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": drawn_mj,
        "DCGM_FI_DEV_XID_ERRORS": errors,
    }
    labels = gpu_labels(host, gpu)
    hour = ((at - T0 - 1e-4) // 3600).astype(int)
    series = [Series(metric=name, labels=labels, at_s=at, values=values) for name, values in by_metric.items()]
    return series, np.array([watts[hour == each].mean() * 3600 for each in range(hour.max() + 1)])


def nodes(host: str, until_s: float, *, cpus: int = 4, busy_frac: float = 0.3, mem_frac: float = 0.6) -> list[Series]:
    """Return the series of node_exporter on one host that is equally busy all the time."""
    at = scrapes(host, T0, until_s)
    where = {"instance": f"{host}:9100", "job": "node"}
    passed = at - T0 + 1000
    series = []
    for cpu in range(cpus):
        for mode, share in (("idle", 1 - busy_frac), ("user", busy_frac), ("iowait", 0.0)):
            labels = where | {"cpu": str(cpu), "mode": mode}
            series.append(Series(metric="node_cpu_seconds_total", labels=labels, at_s=at, values=passed * share))
    gib = np.full(len(at), 64 * GIB)
    series.append(Series(metric="node_memory_MemTotal_bytes", labels=where, at_s=at, values=gib))
    series.append(Series(metric="node_memory_MemAvailable_bytes", labels=where, at_s=at, values=gib * (1 - mem_frac)))
    return series


def slurm_jobs(rng: np.random.Generator, jobs: list[Job], cores: int = 4) -> Iterator[Series]:
    """Yield the series of slurm-job-exporter, cgroups v1, and set the jobs' use."""
    for job in jobs:
        host = job.gpus[0][0]
        at = scrapes(host, job.start_s, job.end_s)
        who = {"user": "u1", "account": "lab", "slurmjobid": job.job_id, "instance": f"{host}:9798", "job": "slurm"}
        rates = rng.uniform(0.05, 1.0, cores)
        for core, rate in enumerate(rates):
            ns = np.round((at - job.start_s) * rate * 1e9)
            labels = who | {"core": str(core)}
            yield Series(metric="slurm_job_core_usage_total", labels=labels, at_s=at, values=ns)
        used = memory(rng, len(at)) * 2.0**20
        high = np.maximum.accumulate(used) + 4096
        yield Series(metric="slurm_job_memory_usage", labels=who, at_s=at, values=used)
        yield Series(metric="slurm_job_memory_max", labels=who, at_s=at, values=high)
        job.used |= {
            "used_cpu_cores": float(rates.sum()),
            "mem_avg_gib": float(used.mean()) / GIB,
            "mem_max_gib": float(high.max()) / GIB,
            "used_gpus": 0.0,
            "gpu_mem_avg_gib": 0.0,
            "gpu_mem_max_gib": 0.0,
        }
        for _, gpu in job.gpus:
            labels = who | {"gpu": str(gpu), "gpu_type": "Tesla T4"}
            util, mib = busy(rng, len(at)), memory(rng, len(at))
            yield Series(metric="slurm_job_utilization_gpu", labels=labels, at_s=at, values=util)
            yield Series(metric="slurm_job_memory_usage_gpu", labels=labels, at_s=at, values=mib * 2.0**20)
            job.used["used_gpus"] += float(util.mean()) / 100
            job.used["gpu_mem_avg_gib"] += float(mib.mean()) / 1024
            job.used["gpu_mem_max_gib"] += float(mib.max()) / 1024


def pods(rng: np.random.Generator, jobs: list[Job], *, restarted: str = "") -> Iterator[Series]:
    """Yield cAdvisor's series of a pod per job, and set the jobs' use.

    The container of the job `restarted` restarts half-way. Of the first job only the labels of its pod name it.
    """
    for job in jobs:
        host = job.gpus[0][0]
        at = scrapes(host, job.start_s, job.end_s)
        rate, used = float(rng.uniform(0.2, 6.0)), memory(rng, len(at)) * 2.0**20
        half = len(at) // 2 if job.job_id == restarted else 0
        for number, part in enumerate((slice(0, half), slice(half, None))):
            labels = {
                "namespace": "ml",
                "pod": f"train-{job.job_id}-abcde",
                "container": "main",
                "id": f"/kubepods/pod{job.job_id}/c{number}",
                "image": "repo/train:1",
                "name": f"c{number}",
                "instance": f"{host}:10250",
                "job": "kubelet",
            }
            since = job.start_s if number == 0 or not half else at[half] - INTERVAL_S
            seconds = (at[part] - since) * rate
            yield Series(metric="container_cpu_usage_seconds_total", labels=labels, at_s=at[part], values=seconds)
            yield Series(metric="container_memory_working_set_bytes", labels=labels, at_s=at[part], values=used[part])
            whole = labels | {"container": "", "image": "", "name": ""}  # the pod's own cgroup
            yield Series(metric="container_cpu_usage_seconds_total", labels=whole, at_s=at[part], values=seconds)
        owner = {"namespace": "ml", "pod": f"train-{job.job_id}-abcde", "owner_kind": "Job", "owner_name": job.job_id}
        state = owner | {"owner_is_controller": "true", "instance": "ksm:8080", "job": "kube-state-metrics"}
        if job is jobs[0]:  # a pod of a gang: only its labels name the job
            gang = {"label_jobset_sigs_k8s_io_jobset_name": job.job_id}
            labelled = {name: state[name] for name in ("namespace", "pod", "instance", "job")} | gang
            yield Series(metric="kube_pod_labels", labels=labelled, at_s=at, values=np.ones(len(at)))
            state["owner_name"] = f"{job.job_id}-workers-0"
        yield Series(metric="kube_pod_owner", labels=state, at_s=at, values=np.ones(len(at)))
        job.used |= {
            "used_cpu_cores": rate,
            "mem_avg_gib": float(used.mean()) / GIB,
            "mem_max_gib": float(used.max()) / GIB,
        }
