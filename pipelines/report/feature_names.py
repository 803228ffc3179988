"""Names of features for readers: `user_run_s_p50_20` becomes `user: median run time, last 20`."""

import re
from typing import Final

__all__ = ["readable"]

_KEYS: Final = {
    "vc_gpus": "same VC and GPUs",
    "user": "user",
    "group": "group",
    "vc": "virtual cluster",
    "gpus": "same GPU count",
    "like": "similar jobs",
    "all": "all jobs",
}
_OWN: Final = {
    "req_cpu_cores": "CPU cores requested",
    "req_mem_gib": "memory requested (GiB)",
    "req_gpus": "GPUs requested",
    "instances": "number of instances",
    "total_gpus": "GPUs of all instances",
    "total_cpu_cores": "CPU cores of all instances",
    "total_mem_gib": "memory of all instances",
    "cpu_cores_per_gpu": "CPU cores per GPU",
    "mem_gib_per_gpu": "memory per GPU",
    "mem_gib_per_cpu_core": "memory per CPU core",
    "time_limit_s": "time limit",
    "gpu_type": "GPU type",
    "vc": "virtual cluster",
    "task_type": "task type",
}
_PATTERNS: Final = (
    (r"run_s_last(\d+)", r"run time, \1 jobs ago"),
    (r"(.+)_last(\d+)", r"\1, \2 jobs ago"),
    (r"(.+)_count_(\d+)", r"known \1, last \2"),
    (r"(.+)_(p\d+|max|mean|std|frac)_(\d+)", r"\2 \1, last \3"),
    (r"newest(\d+)_so_far_s", r"run time so far of job \1 before"),
    (r"newest(\d+)_ended", r"whether job \1 before has ended"),
    (r"newest(\d+)_since_s", r"time since job \1 before"),
    (r"newest_run_s_km(\d+)_(\d+)", r"p\1 run time, newest \2"),
    (r"burst(\d+)_(.+)", r"jobs within \1 s: \2"),
)
_WORDS: Final = (
    ("log_run", "log run time"),
    ("run_s", "run time"),
    ("p50", "median"),
    ("short", "share of short jobs"),
    ("failed", "share of failed jobs"),
    ("used_cpu_cores", "CPU use"),
    ("used_gpus", "GPU use"),
    ("gpu_mem_max_gib", "GPU memory peak"),
    ("mem_max_gib", "memory peak"),
)


def readable(feature: str) -> str:
    """Return a feature's name in words; names without a rule keep their words, without underscores.

    >>> readable("user_run_s_p50_20"), readable("req_gpus"), readable("like_running_jobs")
    ('user: median run time, last 20', 'GPUs requested', 'similar jobs: running jobs')
    >>> readable("group_failed_mean_20"), readable("user_run_s_last1")
    ('group: mean share of failed jobs, last 20', 'user: run time, 1 jobs ago')
    """
    if feature in _OWN:
        return _OWN[feature]
    key = next((key for key in _KEYS if feature.startswith(f"{key}_")), None)
    rest = feature if key is None else feature.removeprefix(f"{key}_")
    for pattern, text in _PATTERNS:
        if re.fullmatch(pattern, rest):
            rest = re.sub(pattern, text, rest)
            break
    for name, words in _WORDS:
        rest = rest.replace(name, words)
    rest = rest.replace("_", " ")
    return rest if key is None else f"{_KEYS[key]}: {rest}"
