"""Programs of the system that some tests run: absent, the test is skipped, unless TAUT_REQUIRE_TOOLS=1 (as in CI)."""

import os
import shutil

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
