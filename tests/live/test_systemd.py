"""The units of `deploy/systemd` and of the agent under a real systemd, in a Debian root that systemd-nspawn boots.

The root is that of build_site.sh, under an overlay that is gone afterwards; the packages are those of this folder.
Slurm's sacct is a script that prints a recorded text.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.tools import tool
from tests.live.cluster import ROOT
from tests.pipelines.connect.slurm.running import until

pytestmark = pytest.mark.live

PACKAGES = ("features", "modelserve", "pipelines", "scheduler_core", "taut")
SERVICES = ("taut-serve", "taut-slurm", "taut-feedback")
SET_UP = """
useradd --system slurm; useradd --system taut; cp /src/deploy/systemd/* /etc/systemd/system/
cat > /usr/bin/sacct <<'END'
#!/bin/sh
for each; do case $each in --delimiter=*) by=${each#*=};; esac; done
exec sed "s/#271828#/$by/g" /src/tests/pipelines/connect/slurm/sacct.txt
END
chmod 755 /usr/bin/sacct
/opt/taut/bin/taut slurm files --out /etc/taut --cluster taut --url http://127.0.0.1:8080 --socket /run/taut/slurm.sock
cp /etc/taut/taut-slurm.service /etc/systemd/system/
cd /etc/systemd/system
for each in history retrain; do
  mkdir taut-$each.timer.d
  printf '[Timer]\\nOnCalendar=\\nOnActiveSec=1\\nRandomizedDelaySec=0\\n' > taut-$each.timer.d/soon.conf
done
systemctl daemon-reload
systemctl enable --now SERVICES taut-history.timer
"""


class Site:
    """A booted root; `children` is the file of systemd-nspawn's children, whose last is the root's systemd."""

    def __init__(self, children: Path) -> None:
        self.children = children

    def shell(self, code: str) -> str:
        leader = self.children.read_text().split()[-1]
        inside = ["nsenter", "--target", leader, "--all", "--wdns=/", "env", "-i", "PATH=/usr/sbin:/usr/bin"]
        done = subprocess.run([*inside, "sh", "-c", code], capture_output=True, text=True, timeout=120)
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        return self.shell(f"systemctl show --value -p {name} {unit}").strip()

    def active(self) -> bool:
        return self.shell(f"systemctl is-active {' '.join(SERVICES)}").split() == ["active"] * len(SERVICES)

    def journal(self, unit: str) -> list[str]:
        return self.shell(f"journalctl -b -o cat --no-pager _SYSTEMD_UNIT={unit}.service").splitlines()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = Path(os.environ.get("TAUT_SITE", Path.home() / ".cache" / "taut-site"))
    if not (root / "opt/taut/bin/taut").is_file():
        pytest.skip(f"no root in {root}: apt-get install debootstrap, and tests/live/build_site.sh {root}")
    place = next(root.glob("opt/taut/lib/python3*/site-packages")).relative_to(root)
    binds = [f"--bind-ro={ROOT / each}:/{place / each}" for each in PACKAGES]
    options = ["--boot", "--register=no", "--keep-unit", "--private-network", "--console=pipe", "--volatile=overlay"]
    command = [tool("systemd-nspawn"), f"--directory={root}", f"--bind-ro={ROOT}:/src", *binds, *options]
    log = tmp_path_factory.mktemp("site") / "console"
    with log.open("wb") as console:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        until(lambda: process.poll() is None and children.read_text(), what="a booted root")
        made = Site(children)
        until(lambda: made.shell("systemctl is-system-running").strip() in ("running", "degraded"), what="a boot")
        made.shell(SET_UP.replace("SERVICES", " ".join(SERVICES)))
        yield made
    finally:
        process.send_signal(signal.SIGTERM)  # shuts the booted root down
        process.wait(60)


def test_units_are_active_log_plain_lines_and_come_back_when_killed(site: Site) -> None:
    until(site.active, what="active services")
    until(lambda: "no model" in site.shell("curl -s 127.0.0.1:8080/readyz"), what="a service without a model")
    assert [line for line in site.journal("taut-serve") if not line.startswith("{")] == []
    until(lambda: "listening on /run/taut/slurm.sock" in site.journal("taut-slurm"), what="a listening agent")

    site.shell("; ".join(f"systemctl kill --signal=KILL {each}" for each in SERVICES))

    until(lambda: [site.show(each, "NRestarts") for each in SERVICES] == ["1"] * 3 and site.active(), what="restarts")


def test_the_timers_start_history_and_retraining(site: Site) -> None:
    until(lambda: site.show("taut-history", "ExecMainExitTimestamp"), within_s=300, what="a history")
    assert site.show("taut-history", "Result") == "success", site.journal("taut-history")
    site.shell("systemctl start taut-retrain.timer")
    until(lambda: site.show("taut-retrain", "ExecMainExitTimestamp"), within_s=300, what="a retraining")
    [outcome] = [json.loads(line) for line in site.journal("taut-retrain") if line.startswith("{")]
    assert (outcome["trace"], outcome["outcome"]) == ("slurm", "promoted")
    assert site.show("taut-retrain", "Result") == "success"
