"""Programs that some tests run, and that files in `deploy` start.

A program of the system that is absent skips the test, unless TAUT_REQUIRE_TOOLS=1 (as in CI).
"""

import os
import shutil
from collections.abc import Sequence
from typing import Any

import pytest

PACKAGES = {
    "nginx": "nginx-light",
    "promtool": "prometheus",
    "chromium": "chromium",
    "munged": "munge",
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "slurmdbd": "slurmdbd slurm-wlm-mysql-plugin",
    "slurmctld": "slurmctld slurm-wlm-basic-plugins lua-socket",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "lua5.1": "lua5.1 lua-socket",
    "openssl": "openssl",
    "systemd-analyze": "systemd",
    "systemd-nspawn": "systemd-container",
    "kubectl": "kubernetes-client",
}


def tool(name: str) -> str:
    """Return the path of a program, or skip; in CI its absence is a failure."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        why = f"{name} is not installed: apt-get install {PACKAGES[name]}"
        if os.environ.get("TAUT_REQUIRE_TOOLS") == "1":
            pytest.fail(why)
        pytest.skip(why)
    return found


def check_command(words: Sequence[str]) -> None:
    """Raise an error if `taut` with these words names no command, or an option that is unknown, missing or wrong."""
    import typer

    from pipelines.cli import app

    found: Any = typer.main.get_group(app)  # a group at first, a command at last
    while hasattr(found, "commands"):
        found, words = found.commands[words[0]], words[1:]
    found.make_context(found.name, list(words), parent=typer.Context(found))
