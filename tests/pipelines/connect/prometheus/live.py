"""A real Prometheus on 127.0.0.1 with blocks made from known series, and a lake that holds the jobs."""

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pipelines.lake.lake import Lake
from tests.benchmarks.serving.processes import free_port
from tests.deploy.tools import tool
from tests.pipelines.connect.prometheus.truth import BLANKS, Job, Series
from tests.pipelines.statistics.lakes import make_lake

READY_S = 60.0


def write_open_metrics(path: Path, series: Iterable[Series]) -> int:
    """Write series as OpenMetrics text, by metric; return the number of samples."""
    by_metric: dict[str, list[Series]] = {}
    for each in series:
        by_metric.setdefault(each.metric, []).append(each)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for metric, group in by_metric.items():
            counter = metric.endswith("_total")
            file.write(f"# TYPE {metric.removesuffix('_total')} {'counter' if counter else 'gauge'}\n")
            for each in group:
                labels = ",".join(f'{name}="{value}"' for name, value in each.labels.items() if value)
                for at, value in zip(each.at_s.tolist(), each.values.tolist(), strict=True):
                    text = str(BLANKS[count % 4]) if value > 9e18 else repr(value)
                    file.write(f"{metric}{{{labels}}} {text} {at:.3f}\n")
                    count += 1
        file.write("# EOF\n")
    return count


def write_blocks(folder: Path, series: Iterable[Series]) -> int:
    """Make Prometheus blocks from series in `folder/data`; return the number of samples."""
    text = folder / "series.om"
    count = write_open_metrics(text, series)
    command = [tool("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(folder / "data")]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return count


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """Run Prometheus on the blocks in `folder/data`; yield its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    (folder / "prometheus.yml").write_text("global: {scrape_interval: 15s}\n")
    command = [
        tool("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    ]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_until_ready(f"{address}/-/ready", process)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_ready(url: str, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        assert process.poll() is None, "Prometheus ended"
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise AssertionError("Prometheus was not ready in time")


def lake_of(folder: Path, jobs: Sequence[Job], **columns: object) -> Lake:
    """Return a lake whose trace `live` holds the jobs, without use."""
    rows = [
        {
            "trace": "live",
            "cluster": "main",
            "job_id": job.job_id,
            "role": "job",
            "task_type": "other",
            "submit_ts": datetime.fromtimestamp(job.start_s - 30, UTC),
            "start_ts": datetime.fromtimestamp(job.start_s, UTC),
            "end_ts": datetime.fromtimestamp(job.end_s, UTC),
            "run_s": job.end_s - job.start_s,
            "run_s_censored": False,
            "status": "completed",
            "instances": 1,
            "req_gpus": float(len(job.gpus)),
            "nodes": len({host for host, _ in job.gpus}),
        }
        | columns
        for job in jobs
    ]
    return make_lake(folder, {"jobs": rows}, trace="live")
