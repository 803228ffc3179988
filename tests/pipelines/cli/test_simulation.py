"""`taut simulate`: every option, on a lake of two tiny traces; no model is trained here."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.cli.simulation_settings import Settings
from pipelines.lake.ingest import ingest
from pipelines.synth.pai import synthesise
from scheduler_core.queueing import QUEUE_POLICIES
from tests.pipelines.cli.simulating import command
from tests.pipelines.conftest import PHILLY

Taut = Callable[..., list[dict[str, Any]]]

CLUSTER = """
[[machines]]
name = "big"
count = 2
cpu_cores = 96
mem_gib = 512
gpus = 8
gpu_type = "T4"
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake as that of the other commands, with a third of its tasks: each is advised in every run."""
    folder = tmp_path_factory.mktemp("simulated")
    synthesise(folder / "raw", tasks=1000, seed=3, tagged_share=0.9)
    tasks = folder / "raw" / "pai_task_table.csv"
    tasks.write_text("".join(tasks.read_text().splitlines(keepends=True)[::3]))
    ingest("pai", folder / "raw", folder / "lake", as_name="pai-synth")
    ingest("philly", PHILLY.write(folder / "philly"), folder / "lake")
    return folder / "lake"


@pytest.fixture(scope="module")
def taut(lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Taut:
    """Return what runs `taut simulate` and reads its rows."""

    def run(*arguments: str, trace: str = "pai-synth") -> list[dict[str, Any]]:
        where = ["--lake", str(lake), "--trace", trace, "--format", "json"]
        usual = [] if "--predictor" in arguments else ["--predictor", "oracle"]
        words = command(tmp_path_factory.mktemp("settings"), *where, *usual, *arguments)
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.stderr
        rows: list[dict[str, Any]] = json.loads(result.stdout)
        return rows

    return run


@pytest.fixture(scope="module")
def busy(taut: Taut) -> Taut:
    """Return what runs `taut simulate` on a busy cluster, once for each choice of options."""
    return cache(lambda *options: taut(*BUSY, *options))


def said(lake: Path, *arguments: str, trace: str = "pai-synth") -> tuple[int, str]:
    """Return the exit code of `taut simulate` and what it said."""
    result = CliRunner().invoke(app, command(lake.parent, "--lake", str(lake), "--trace", trace, *arguments))
    return result.exit_code, result.stderr


SHORT = ("--hours", "1", "--truth", "contention")
BUSY = (*SHORT, "--rate", "200")
RECORDED = ("--arrivals", "recorded", "--cluster-from", "paper")


def test_every_setting_is_on_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulate.md").read_text(encoding="utf-8")
    options = {option for each in get_command(app).commands["simulate"].made().params for option in each.opts}  # type: ignore[attr-defined]

    assert {
        name
        for name in Settings.model_fields
        if f"--{name.replace('_', '-')}" not in options and f"`{name}`" not in page
    } == set()


@pytest.mark.parametrize(
    ("policy", "arrivals"),
    [*((each, ()) for each in QUEUE_POLICIES), pytest.param("qssf", RECORDED, marks=pytest.mark.slow)],
)
def test_every_policy_runs_under_paired_arms(taut: Taut, policy: str, arrivals: tuple[str, ...]) -> None:
    rows = taut(*SHORT, *arrivals, "--policy", policy)

    assert {row["arm"] for row in rows} == {"requested", "shrunk", "oracle"}
    assert {row["policy"] for row in rows} == {policy}
    for devices in {row["devices"] for row in rows}:
        assert len({(r["submitted"], r["never_fits"]) for r in rows if r["devices"] == devices}) == 1


def test_an_arrival_may_be_one_instance_of_a_job(taut: Taut) -> None:
    options = (*SHORT, "--predictor", "oracle", "--rate", "30")
    whole, single = (
        next(row for row in taut(*options, *more) if row["arm"] == "requested")
        for more in ((), ("--arrivals", "instances"))
    )

    assert single["submitted"] + single["never_fits"] == whole["submitted"] + whole["never_fits"]
    assert 0.0 < single["cpu_allocated_frac"] < whole["cpu_allocated_frac"]


@pytest.mark.parametrize(
    "options",
    [
        ("backfill = 'easy'",),
        ("overtakes = 0",),
        ("sharing = 'devices'",),
        ("--policy", "sjf", "aging = 0.5"),
        ("--policy", "sjf", "preempt = true", "restart_cost_s = 30", "quantum_s = 300"),
        ("--seed", "9"),
        ("--rate", "20"),
        ("mix = {ctr = 1}",),
        ("warm_up_h = 0.5",),
        ("--predictor", "constant"),
        ("alpha0 = 0.8",),
    ],
)
def test_an_option_is_heard(busy: Taut, options: tuple[str, ...]) -> None:
    plain = busy(*options[:2] if options[0] == "--policy" else ())
    heard = busy(*options)

    assert [{**row, "policy": ""} for row in plain] != [{**row, "policy": ""} for row in heard]


def test_running_jobs_are_reclaimed_under_the_truth_shared(taut: Taut, tmp_path: Path) -> None:
    kept = tmp_path / "out"
    rows = taut("--hours", "1", "--rate", "400", "--truth", "shared", "--truth", "unchanged", "--out", str(kept))
    shared = {row["arm"]: row for row in rows if row["truth"] == "shared" and row["devices"] == "all"}
    settled = {row["arm"]: row for row in rows if row["truth"] == "unchanged" and row["devices"] == "all"}

    assert list(shared) == ["requested", "shrunk", "reclaim", "reclaim_prior", "oracle"]
    assert {tuple(row) for row in rows} == {tuple(rows[0])}
    assert shared["requested"]["deployed"] < shared["reclaim"]["deployed"]
    for name in ("deployed", "completed", "gpu_allocated_frac", "gpu_used_frac", "wait_mean_s"):
        assert shared["requested"][name] == pytest.approx(settled["requested"][name]), name
    for name in ("reclaim-shared-all-0", "requested-shared-all-0"):
        log = pl.read_parquet(kept / name / "events.parquet")
        assert {"time_s", "event", "serial"} <= set(log.columns)


def test_options_of_reclaiming_are_heard(taut: Taut) -> None:
    busy = ("--hours", "1", "--rate", "400", "--truth", "shared", "--predictor", "none")
    options = ((), ("z = 0",), ("probation_min = 60",), ("variation = 'cv_1'",))
    plain, *others = ({row["arm"]: row for row in taut(*busy, *option)} for option in options)

    for heard in others:
        assert plain["requested"] == heard["requested"]
        assert plain["reclaim"] != heard["reclaim"]


def test_recorded_jobs_of_a_trace_without_use_run_on_gpus_alone(taut: Taut, lake: Path) -> None:
    [row] = taut("--arrivals", "recorded", trace="philly")
    code, notes = said(lake, "--arrivals", "recorded", "--format", "json", trace="philly")

    assert (row["arm"], row["truth"], row["rate_per_h"]) == ("requested", "unchanged", None)
    assert (row["submitted"], row["completed"], row["failed"]) == (2, 2, 0)
    assert row["cpu_allocated_frac"] is None
    assert row["gpu_allocated_frac"] > 0.0
    assert code == 0
    assert "no job requests cpu_cores or mem_gib: only gpus are allocated" in notes
    assert "the machine table of philly" in notes
    assert "left out: 2 without a run time" in notes


def test_a_window_takes_the_jobs_submitted_in_it(taut: Taut) -> None:
    everything = taut(*RECORDED, "--truth", "unchanged", "--predictor", "none")
    early = taut(*RECORDED, "--truth", "unchanged", "--predictor", "none", "until = '1970-02-01'")
    late = taut(*RECORDED, "--truth", "unchanged", "--predictor", "none", "since = '1970-02-01'")

    counts = [rows[0]["submitted"] + rows[0]["never_fits"] for rows in (everything, early, late)]
    assert counts[0] == counts[1] + counts[2]
    assert min(counts) > 0


def test_a_cluster_comes_from_a_file_or_from_the_trace(taut: Taut, lake: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(CLUSTER)

    small = taut(*SHORT, "--cluster-from", str(file))
    own = taut(*SHORT, "--cluster-from", "machines", "match_gpu_type = true")
    code, notes = said(lake, *SHORT, "--cluster-from", str(file), "--predictor", "none")

    assert small[0]["deployed"] < own[0]["deployed"]
    assert code == 0
    assert "cluster (small.toml): 2 machines, 16 GPUs, 192 cores, 1024 GiB, GPU types T4" in notes


def test_every_run_is_kept_and_the_same_seed_gives_the_same_bytes(taut: Taut, tmp_path: Path) -> None:
    for name in ("one", "two"):
        taut(*SHORT, "--out", str(tmp_path / name))

    one, two = ({f.relative_to(root): f.read_bytes() for f in sorted(root.rglob("*")) if f.is_file()}
                for root in (tmp_path / "one", tmp_path / "two"))  # fmt: skip
    assert one == two
    assert {path.parts[0] for path in one} >= {"simulations.json", "requested-any-all-0", "shrunk-contention-all-0"}
    events = pl.read_parquet(tmp_path / "one" / "shrunk-contention-all-0" / "events.parquet")
    assert {"time_s", "event", "serial", "job_id", "machines"} <= set(events.columns)
    summary = json.loads((tmp_path / "one" / "requested-any-all-0" / "simulation.json").read_text())
    assert summary["settings"]["policy"] == "fifo"
    assert "32 GPUs" in summary["capacity"]


def test_devices_are_said_and_kept_and_every_replication_has_its_seed(lake: Path, tmp_path: Path) -> None:
    kept = ("sharing = 'devices'", "--replications", "2", "--predictor", "none", "--out", str(tmp_path / "out"))
    code, notes = said(lake, *SHORT, "--seed", "4", *kept)

    assert code == 0, notes
    assert "GPUs are shared device by device: up to one GPU per instance comes from a single device" in notes
    for seed in (4, 5):
        folder = tmp_path / "out" / f"requested-any-all-{seed}"
        summary = json.loads((folder / "simulation.json").read_text())
        assert (summary["settings"]["sharing"], summary["settings"]["seed"]) == ("devices", seed)
        devices = pl.read_parquet(folder / "events.parquet").filter(pl.col("event") == "start")["devices"]
        assert devices.str.contains(r"^(m\d/\d:[\d.]+ ?)*$").all()
        assert devices.str.contains(r"/\d:0\.").any(), "parts of GPUs by their device"


@pytest.mark.parametrize(
    ("arguments", "trace", "expected"),
    [
        (("--policy", "magic"), "pai-synth", "srtf"),
        (("--placement", "magic"), "pai-synth", "consolidate"),
        (("--predictor", "magic"), "pai-synth", "one of champion, oracle, constant, none"),
        (("magic = 1",), "pai-synth", "simulate: magic: "),
        (("--policy", "sjf", "--predictor", "none"), "pai-synth", "--predictor champion, oracle or constant"),
        (
            ("--arrivals", "recorded", "--rate", "7"),
            "pai-synth",
            "found rate, mix or replications",
        ),
        (("mix = {ctr = 0}",), "pai-synth", "found a mix without a weight above 0"),
        (("--cluster-from", "nowhere.toml"), "pai-synth", "expected a TOML file of machines"),
        (
            ("--out", "/proc/x"),
            "pai-synth",
            "taut: --out /proc/x: no such file or directory, expected a writable folder",
        ),
        (("overtakes = 1", "backfill = 'easy'"), "pai-synth", "found both overtakes and backfill=easy"),
        (("--placement", "fgd", "sharing = 'pooled'"), "pai-synth", "found pooled GPUs for the placement fgd"),
        (("warm_up_h = 12",), "pai-synth", "expected below 43200 s"),
        (("match_gpu_type = true",), "pai-synth", "machines that name none (the paper's)"),
        (("--truth", "shared", "--placement", "fgd"), "pai-synth", "found placement fgd, expected best_fit; for them"),
        (("--truth", "shared", "backfill = 'easy'"), "pai-synth", "for them use --truth contention"),
        (("--truth", "shared", "--arrivals", "recorded"), "philly", "use --truth unchanged"),
        (("z = 1",), "pai-synth", "found z, probation_min or variation without truth = shared"),
        (("--arrivals", "recorded", "vc = 'none'"), "philly", "--vc: found no job of 'none', expected one of 6214e9"),
    ],
)
def test_what_cannot_be_meant_is_bad_usage(lake: Path, arguments: tuple[str, ...], trace: str, expected: str) -> None:
    usual = () if "--predictor" in arguments else ("--predictor", "oracle")
    code, words = said(lake, *usual, *arguments, trace=trace)

    assert code == 2, words
    assert expected in " ".join(words.split())


@pytest.mark.parametrize(
    ("arguments", "trace", "expected"),
    [
        (("--predictor", "oracle", "--arrivals", "recorded", "since = '2030-01-01'"), "pai-synth", "widen --since and"),
        (("--offline",), "pai-synth", "train with `taut train`"),
        (("--predictor", "none"), "philly", "else use --arrivals recorded"),
    ],
)
def test_what_fails_says_what_to_do(lake: Path, arguments: tuple[str, ...], trace: str, expected: str) -> None:
    code, words = said(lake, *arguments, trace=trace)

    assert code == 1, words
    assert expected in words
