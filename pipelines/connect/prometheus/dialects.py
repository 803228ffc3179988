"""What the exporters publish: metrics, units and labels of DCGM, slurm-job-exporter, cAdvisor and node_exporter.

Pure declarations; `pipelines.connect.prometheus.readings` asks for them. To read another exporter, add a dialect here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pipelines.errors import BadUsage

GIB: Final = 2.0**30
MIB: Final = 2.0**20

_MATCHER: Final = r'\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"\s*'
_MATCHERS: Final = re.compile(f"{_MATCHER}(?:,{_MATCHER})*", re.ASCII)


Labels = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One measure of jobs, machines or GPUs, and the metric that publishes it.

    Attributes
    ----------
    name
        The measure; several metrics may publish the same one.
    where
        PromQL matchers that select the metric's series.
    scale
        Factor from the metric's unit to that of the measure.
    counter
        Whether the metric is a counter; then its increase counts, and the mean is a rate per second.
    job, place, device
        Labels that name the job, the machine and the GPU: the first non-empty label of each group, joined.
    parts
        Labels whose series are added up to one place, such as containers or cores.
    kind
        Label that names the GPU's model, the owner of a pod, or the host behind an address.
    fallback
        Whether the metric counts only for GPUs without another metric of the same measure.
    changes
        Whether to count how often the value changes, instead of its mean.
    peak
        Whether the largest sample is needed.
    """

    name: str
    metric: str
    where: str = ""
    scale: float = 1.0
    counter: bool = False
    job: Labels = ()
    place: Labels = (("instance",),)
    device: Labels = ()
    parts: tuple[str, ...] = ()
    kind: str = ""
    fallback: bool = False
    changes: bool = False
    peak: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the labels that an answer keeps."""
        named = (*self.job, *self.place, *self.device, (self.kind,))
        return tuple(dict.fromkeys(name for group in named for name in group if name))

    def selector(self, match: str, *more: str) -> str:
        """Return the PromQL selector of the metric's series, with the user's matchers and others.

        >>> Measure(name="gpus", metric="X", where='pod!=""').selector('cluster="a"')
        'X{pod!="",cluster="a"}'
        """
        return f"{self.metric}{{{','.join(each for each in (self.where, match, *more) if each)}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The measures of one set of exporters.

    If `by_pod` is true, a place is a pod, which is one instance of a job; otherwise places are parts of the job. If
    `held` is true, the series name no job, and a record is needed of which job held which GPU.
    """

    name: str
    measures: tuple[Measure, ...]
    by_pod: bool = False
    held: bool = False


_HOST: Final[Labels] = (("Hostname", "hostname", "instance"),)
_POD: Final[Labels] = (
    ("exported_namespace", "pod_namespace", "namespace"),
    ("exported_pod", "pod_name", "pod"),
)
"""Labels of a pod on a GPU's series; Prometheus renames them to `exported_` unless it honors the exporter's labels."""

_instance = partial(Measure, place=_HOST, device=(("gpu",), ("GPU_I_ID",)), kind="modelName")
"""Return a measure of a whole GPU, or of each of its MIG devices."""
_gpu = partial(Measure, place=_HOST, device=(("gpu",),), kind="modelName")

_GPUS: Final = (
    _instance(name="gpus", metric="DCGM_FI_DEV_GPU_UTIL", scale=0.01),
    # GPU_UTIL does not exist for MIG devices.
    _instance(name="gpus", metric="DCGM_FI_PROF_GR_ENGINE_ACTIVE", where='GPU_I_ID!=""', fallback=True),
    _instance(name="gpu_mem_gib", metric="DCGM_FI_DEV_FB_USED", scale=MIB / GIB, peak=True),
)
_ENVIRONMENT: Final = (
    _gpu(name="power_w", metric="DCGM_FI_DEV_POWER_USAGE", peak=True),
    _gpu(name="temp_c", metric="DCGM_FI_DEV_GPU_TEMP", peak=True),
    _gpu(name="sm_clock_mhz", metric="DCGM_FI_DEV_SM_CLOCK"),
    _gpu(name="mem_clock_mhz", metric="DCGM_FI_DEV_MEM_CLOCK"),
    _gpu(name="energy_w", metric="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", scale=1e-3, counter=True),
    _gpu(name="xid", metric="DCGM_FI_DEV_XID_ERRORS", changes=True, peak=True),
)
_CPU_TIME: Final = "node_cpu_seconds_total"
_MACHINES: Final = (
    Measure(name="cpu_idle", metric=_CPU_TIME, where='mode="idle"', counter=True, parts=("cpu",)),
    Measure(name="cpu_all", metric=_CPU_TIME, counter=True, parts=("cpu", "mode")),
    Measure(name="mem_free_gib", metric="node_memory_MemAvailable_bytes", scale=1 / GIB),
    Measure(name="mem_all_gib", metric="node_memory_MemTotal_bytes", scale=1 / GIB),
    Measure(name="node_name", metric="node_uname_info", kind="nodename"),
)
_slurm = partial(Measure, job=(("slurmjobid",),))
_slurm_gpu = partial(_slurm, device=(("gpu",),), kind="gpu_type")
_OF_POD: Final[Labels] = (("namespace",), ("pod",))
_container = partial(
    Measure, where='container!="",container!="POD",pod!=""', job=_OF_POD, place=(), parts=("container",)
)
_JOB_LABELS: Final = (
    "label_batch_kubernetes_io_job_name",
    "label_job_name",
    "label_jobset_sigs_k8s_io_jobset_name",
    "label_kueue_x_k8s_io_pod_group_name",
    "label_ray_io_cluster",
    "label_training_kubeflow_org_job_name",
    "label_volcano_sh_job_name",
)
"""Labels of pods that name the pod's job, as kube-state-metrics writes them."""


def _of_jobs(labels: Labels) -> tuple[Measure, ...]:
    return tuple(replace(each, job=labels) for each in _GPUS)


_ALL: Final = (
    Dialect(name="dcgm-job", measures=(*_of_jobs((("hpc_job",),)), *_ENVIRONMENT, *_MACHINES)),
    Dialect(name="dcgm-node", measures=(*_GPUS, *_ENVIRONMENT, *_MACHINES), held=True),
    Dialect(
        name="slurm-job-exporter",
        measures=(
            _slurm(name="cpu_cores", metric="slurm_job_core_usage_total", scale=1e-9, counter=True, parts=("core",)),
            _slurm(name="mem_gib", metric="slurm_job_memory_usage", scale=1 / GIB, peak=True),
            _slurm(name="mem_peak_gib", metric="slurm_job_memory_max", scale=1 / GIB, peak=True),
            _slurm_gpu(name="gpus", metric="slurm_job_utilization_gpu", scale=0.01),
            _slurm_gpu(name="gpu_mem_gib", metric="slurm_job_memory_usage_gpu", scale=1 / GIB, peak=True),
            *_MACHINES,
        ),
    ),
    Dialect(
        name="cadvisor",
        measures=(
            _container(name="cpu_cores", metric="container_cpu_usage_seconds_total", counter=True),
            _container(name="mem_gib", metric="container_memory_working_set_bytes", scale=1 / GIB, peak=True),
            Measure(name="owner", metric="kube_pod_owner", job=_OF_POD, place=(), kind="owner_name"),
            *(
                Measure(name="label", metric="kube_pod_labels", where=f'{each}!=""', job=_OF_POD, place=(), kind=each)
                for each in _JOB_LABELS
            ),
            *_of_jobs(_POD),
            *_ENVIRONMENT,
            *_MACHINES,
        ),
        by_pod=True,
    ),
)
DIALECTS: Final[Mapping[str, Dialect]] = {each.name: each for each in _ALL}
"""The dialects by name."""


def checked_matchers(text: str) -> str:
    """Return PromQL label matchers, as `cluster="a100",job=~"dcgm.*"`, if they are well-formed.

    >>> checked_matchers('cluster="a100", job=~"dcgm.*"')
    'cluster="a100", job=~"dcgm.*"'
    """
    if text and not _MATCHERS.fullmatch(text):
        raise BadUsage(f"--match {text[:40]}: expected PromQL label matchers, as 'cluster=\"a100\"'")
    return text.strip()
