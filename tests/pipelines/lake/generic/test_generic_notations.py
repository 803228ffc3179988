"""Kubernetes quantities, decimal commas and percent signs in a table, also together with units."""

from pathlib import Path

from pipelines.lake.generic.opening import opened_source
from pipelines.lake.ingest import check, ingest
from pipelines.lake.lake import Lake

MAPPING = """
[jobs]
file = "pods.csv"
delimiter = ";"
[jobs.columns]
job_id = "pod"
submit_ts = { column = "created", time = "epoch_s" }
run_s = { column = "hours", as = "decimal_comma", unit = "h" }
req_cpu_cores = { column = "cpu", as = "kubernetes_quantity" }
req_mem_gib = { column = "mem", as = "kubernetes_quantity" }
req_gpus = { column = "gpu", as = "kubernetes_quantity" }
[usage.columns]
used_gpus = { column = "util", unit = "percent" }
used_cpu_cores = { column = "busy", as = "decimal_comma", unit = "percent" }
mem_max_gib = { column = "peak", as = "decimal_comma" }
"""
PODS = "pod;created;hours;cpu;mem;gpu;util;busy;peak\na;0;1,5;500m;4Gi;2;85%;12,5 %;3,25\nb;0;2;8;512Mi;1;85;50;1\n"


def test_each_notation_becomes_the_canonical_unit(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(PODS)
    (tmp_path / "m.toml").write_text(MAPPING)
    with opened_source(tmp_path / "m.toml", str(tmp_path)) as opened:
        report = ingest(opened.source, opened.folder, tmp_path / "lake")

    assert report.manifest.rows_quarantined == 0
    jobs, usage = (Lake(tmp_path / "lake").table(name).collect().sort("job_id") for name in ("jobs", "usage"))
    assert jobs.select("run_s", "req_cpu_cores", "req_mem_gib", "req_gpus").rows() == [
        (5400.0, 0.5, 4.0, 2.0),
        (7200.0, 8.0, 0.5, 1.0),
    ]
    assert usage.select("used_gpus", "used_cpu_cores", "mem_max_gib").rows() == [(0.85, 0.125, 3.25), (0.85, 0.5, 1.0)]


def test_other_notations_go_to_quarantine_with_the_expected_one(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_text(PODS + "c;0;1.5;4GB;4gb;x;85%%;1.5;3\n")
    (tmp_path / "m.toml").write_text(MAPPING)
    with opened_source(tmp_path / "m.toml", str(tmp_path)) as opened:
        problems = {each.rule: each for each in check(opened.source, opened.folder, tmp_path / "lake").problems}

    names = ("run_s", "req_cpu_cores", "req_mem_gib", "req_gpus", "used_gpus", "used_cpu_cores")
    assert set(problems) == {f"unparsable_{name}" for name in names}
    assert "decimal comma" in problems["unparsable_run_s"].cure
    assert "as Kubernetes writes them: 4Gi" in problems["unparsable_req_mem_gib"].cure
    assert "with or without a percent sign" in problems["unparsable_used_gpus"].cure
    assert problems["unparsable_req_mem_gib"].found == "req_mem_gib = 4gb"
