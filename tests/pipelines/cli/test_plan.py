"""`taut plan`: decisions from files, the plan written, and files or options at fault named with their cure."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipelines.cli import app
from pipelines.connect.slurm import plan_loop

JOBS = [
    {"job_id": "1", "request": {"gpus": 2}, "run_s": 7200, "due_ts": "2023-06-01T12:00:00Z"},
    {"job_id": "2", "request": {"gpus": 8}, "run_s": 3600},
]
NODES = '[[nodes]]\nname = "n"\ngpu_type = "V100"\ngpus = 8\n'
AT = ("--at", "2023-06-01T05:00:00")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.jsonl").write_text("\n".join(map(json.dumps, JOBS)))
    (tmp_path / "nodes.toml").write_text(NODES)
    for kind, unit, scale in (("carbon", "carbon_g_per_kwh", 1.0), ("price", "price_usd_per_kwh", 1e-3)):
        rows = [f"2023-06-01T{hour:02d}:00Z,{scale * (400 if hour < 6 else 200)}" for hour in range(24)]
        (tmp_path / f"{kind}.csv").write_text("\n".join([f"ts,{unit}", *rows]) + "\n")
    return tmp_path


def plan(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["plan", *words, "--format", "json"])
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


CARBON = ("carbon", "--jobs", "jobs.jsonl", "--nodes", "nodes.toml", "--grid", "carbon.csv", *AT)


def test_a_carbon_plan_is_printed_and_written(files: Path) -> None:
    # two GPUs of 300 W at 400 g/kWh: 240 g an hour, 480 g until the end; eight GPUs: 960 g
    rows = json.loads(plan(*CARBON, "--budget-g", "300", "--period-s", "3600", "--out", "plan.json"))

    assert [(row["job_id"], row["gpus"], row["reason"]) for row in rows] == [("1", 2, "runs"), ("2", 0, "no_gpus")]
    assert json.loads((files / "plan.json").read_text())["planned_g"] == pytest.approx(240.0)
    whole = json.loads(plan(*CARBON, "--budget-g", "300", "--period-s", "3600", "--budget", "to-completion"))
    assert [row["reason"] for row in whole] == ["budget", "budget"]


@pytest.mark.parametrize("at", ["2023-06-01T05:00:00Z", "2023-06-01T05:00:00.250000Z"])
def test_the_announced_time_of_the_next_decision_can_be_given(files: Path, at: str) -> None:
    rows = json.loads(plan(*CARBON, "--at", at, "--budget-g", "300", "--period-s", "3600"))

    assert [row["reason"] for row in rows] == ["runs", "no_gpus"]


def test_a_hold_waits_for_the_hour_that_yesterday_was_clean(files: Path) -> None:
    lines = [{**JOBS[0], "job_id": f"{slack_s}", "slack_s": slack_s} for slack_s in (0, 8 * 3600)]
    for line in lines:
        del line["due_ts"]
    (files / "jobs.jsonl").write_text("\n".join(map(json.dumps, lines)))

    rows = json.loads(plan("hold", "--jobs", "jobs.jsonl", "--grid", "carbon.csv", "--at", "2023-06-01T23:59:00"))

    assert [row["until_ts"] for row in rows] == [None, "2023-06-02T06:00:00Z"]
    known = json.loads(plan("hold", "--jobs", "jobs.jsonl", "--grid", "carbon.csv", "--at", "2023-06-01T05:59:00"))
    assert known[1]["until_ts"] is None  # the clean hours are to come, so they are unknown


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"jobs.jsonl": '{"job_id": "1"}'}, "jobs.jsonl, line 1: request"),
        ({"jobs.jsonl": ""}, "found no job, expected one JSON object per line"),
        ({"nodes.toml": "[[nodes]"}, "expected TOML such as"),
        ({"jobs.jsonl": "\n".join([json.dumps(JOBS[0])] * 2)}, "jobs.jsonl: jobs: found job_id '1' 2 times"),
        ({"jobs.jsonl": "\n".join([json.dumps(JOBS[0])] * 1001)}, "found 1001 jobs, expected at most 1000"),
        ({"jobs.jsonl": json.dumps({**JOBS[0], "run_s": 1e300})}, "line 1: run_s"),
        (
            {"jobs.jsonl": json.dumps({**JOBS[0], "node": "x-0", "running_gpus": 1})},
            "jobs.jsonl: jobs.0.node: found 'x-0'",
        ),
        ({"nodes.toml": "nodes = 3"}, "found no [[nodes]]"),
        ({"nodes.toml": 'objective = "cost"\n' + NODES}, "found objective"),
        ({"nodes.toml": "surplus = 1\n" + NODES}, "nodes.toml: surplus"),
        ({"nodes.toml": NODES.replace("V100", "H999")}, "found no power of gpu_type 'H999'"),
        ({"carbon.csv": "ts,carbon_g_per_kwh\n2023-01-01T00:00Z,1\n"}, "expected those from 2023-06-01 05:00"),
        ({"carbon.csv": "ts,carbon_g_per_kwh\n2023-06-01T05:00Z,nan\n"}, "carbon.csv, line 2: found 'nan'"),
    ],
)
def test_a_file_at_fault_is_named(files: Path, change: dict[str, str], said: str) -> None:
    for name, text in change.items():
        (files / name).write_text(text)

    message = plan(*CARBON, "--budget-g", "300", code=2)

    assert said in message
    assert message.count("\n") == 1


def test_a_file_of_other_bytes_is_refused(files: Path) -> None:
    (files / "jobs.jsonl").write_bytes(b"\xff\xfe\x00")

    assert "jobs.jsonl: found bytes that are not UTF-8 text" in plan(*CARBON, "--budget-g", "300", code=2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget-g", "inf"), "taut: --budget-g: found inf, expected a finite number"),
        (("--budget-g", "9", "--zone", "DE"), "--zone DE: found with the file"),
        (("--budget-g", "9", "--speed", "9"), "--speed: found without --rounds"),
        (("--budget-g", "3", "--rounds", "2", "--apply", "kubernetes"), "expected with --apply slurm"),
        (("--budget-g", "9", "--apply", "slurm", "--rounds", "9", "--speed", "9000"), "found periods of 0.1 s"),
        (("--budget-g", "9", "--apply", "slurm", "--rounds", "99"), "--grid carbon.csv: found values from"),
        (("--budget-g", "9", "--out", "none/plan.json"), "--out none/plan.json: No such file"),
    ],
)
def test_an_option_at_fault_is_named(files: Path, words: tuple[str, ...], said: str) -> None:
    assert said in plan(*CARBON, *words, code=2)


def test_the_loop_counts_what_runs_and_stops_what_the_budget_does_not_suffice_for(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, sent = [0.0], []
    states = {"1": "RUNNING", "2": "PENDING"}
    monkeypatch.setattr(plan_loop.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(plan_loop.time, "sleep", lambda _: clock.__setitem__(0, clock[0] + 600.0))
    monkeypatch.setattr(plan_loop, "states_of", lambda _: dict(states))

    def carried(commands: list[tuple[str, ...]], say: object) -> int:
        del say
        sent.extend(commands)
        states.update({each[-1]: "SUSPENDED" for each in commands if each[1] == "suspend"})
        states.update({each[-1]: "RUNNING" for each in commands if each[1] == "resume"})
        return 0

    monkeypatch.setattr(plan_loop, "carry_out", carried)
    words = ("--budget-g", "130", "--period-s", "3600", "--rounds", "2", "--apply", "slurm")
    rows = json.loads(plan(*CARBON, *words))

    # 480 g/kWh·kW an hour before 6:00: the running job alone is 240 g; after it 120 g, which fit
    assert [each[1:] for each in sent][:2] == [("suspend", "1"), ("hold", "2")]
    assert ("resume", "1") in [each[1:] for each in sent]
    # A job counts until the look after it was suspended.
    assert [row["spent_g"] for row in rows] == pytest.approx([40.0, 120.0])
    assert all(row["spent_g"] <= row["budget_g"] for row in rows)
