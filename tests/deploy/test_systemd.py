"""The systemd units: systemd reads them, each starts a command that takes its options, each timer a service."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.connect.slurm.files import write_files
from tests.deploy.tools import check_command, tool

UNITS = Path(__file__).resolve().parents[2] / "deploy" / "systemd"
PROGRAM = "/opt/taut/bin/taut"


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the texts of all units by name, that of the agent as `taut slurm files` writes it."""
    folder = tmp_path_factory.mktemp("agent")
    write_files(
        folder,
        cluster="taut",
        socket=Path("/run/taut/slurm.sock"),
        gpus=folder,
        program=PROGRAM,
        service="http://127.0.0.1:8080",
        user="slurm",
    )
    return {path.name: path.read_text() for path in (*UNITS.iterdir(), folder / "taut-slurm.service")}


def settings(text: str, name: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{name}=")]


def services(units: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in units.items() if name.endswith(".service")}


def test_systemd_reads_them(units: dict[str, str], tmp_path: Path) -> None:
    for name, text in units.items():
        (tmp_path / name).write_text(text.replace(PROGRAM, sys.executable))

    done = subprocess.run(
        [tool("systemd-analyze"), "verify", *map(str, sorted(tmp_path.iterdir()))],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "taut-" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_each_starts_a_command_with_options_that_it_takes(units: dict[str, str]) -> None:
    for name, text in services(units).items():
        [start] = settings(text, "ExecStart")
        program, *words = shlex.split(start)
        assert program == PROGRAM, name
        check_command(words)


def test_they_may_write_to_their_own_folders_only(units: dict[str, str]) -> None:
    for name, text in services(units).items():
        assert settings(text, "User") in (["taut"], ["slurm"]), name
        assert settings(text, "NoNewPrivileges") == ["yes"], name
        assert settings(text, "ProtectSystem") == ["strict"], name
        assert settings(text, "ProtectHome") in (["yes"], ["read-only"]), name
        owned = [f"/var/lib/{each}" for each in settings(text, "StateDirectory")]
        owned += [f"/var/cache/{each}" for each in settings(text, "CacheDirectory")]
        owned += [f"/run/{each}" for each in settings(text, "RuntimeDirectory")]
        named = [word.rpartition("=")[2] for line in settings(text, "Environment") for word in shlex.split(line)]
        named += shlex.split(settings(text, "ExecStart")[0])
        written = [word.removeprefix("sqlite:///") for word in named if "/var/" in word or "/run/" in word]
        assert [word for word in written if not word.startswith(tuple(owned))] == [], name


def test_each_timer_starts_a_service_that_ends(units: dict[str, str]) -> None:
    timers = {name.removesuffix(".timer") for name in units if name.endswith(".timer")}
    ending = {name.removesuffix(".service") for name, text in units.items() if settings(text, "Type") == ["oneshot"]}
    assert timers == ending == {"taut-history", "taut-retrain"}
    assert {f"taut-{each}.service" for each in ("serve", "slurm", "feedback", "history", "retrain")} == set(
        services(units)
    )
