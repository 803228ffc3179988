"""Write the files that connect Slurm to the agent: plugin script, prolog and epilog, unit of the agent, settings.

The texts are in `templates`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pipelines.connect.files import check_texts, write_templates

__all__ = ["write_files"]

TEMPLATES: Final = Path(__file__).with_name("templates")
PLUGIN: Final = "job_submit.lua"
KEPT: Final = "slurm.toml"
WRITTEN: Final[Mapping[str, str]] = {
    PLUGIN: "asks the agent at submission; copy it beside slurm.conf on the controller",
    KEPT: "settings of the agent: modes by partition and account",
    "taut-slurm.service": "systemd unit of the agent on the controller",
    "prolog.sh": "names the job at its GPUs for dcgm-exporter, on every node",
    "epilog.sh": "takes the name back, on every node",
    "slurm.conf.lines": "three lines for slurm.conf",
}
_PATH: Final = (r"/[\w./+-]*", "a path of letters, digits and /._+- only")
_PATTERNS: Final[Mapping[str, tuple[str, str]]] = {
    "out": _PATH,
    "socket": _PATH,
    "gpus": _PATH,
    "cluster": (r"[\w.-]{1,100}", "letters, digits and ._- only, as ClusterName"),
    "user": (r"[a-z_][\w-]{0,31}", "SlurmUser of slurm.conf, such as slurm"),
    "url": (r"https?://[\w.:/\[\]-]{1,200}", "an address as http://127.0.0.1:8080"),
    "program": (r"[^\n\r@]+", "a path on one line"),
}


def write_files(
    out: Path, *, cluster: str, socket: Path, gpus: Path, program: str, service: str, user: str
) -> list[dict[str, str]]:
    """Write the files to a folder, and return a row for each: the file, its purpose and its place.

    An existing `slurm.toml` stays, since it is edited by hand; all other files are replaced atomically.
    """
    places = {"out": str(out.absolute()), "socket": str(socket.absolute()), "gpus": str(gpus.absolute())}
    texts = {"cluster": cluster, "user": user, "url": service, "program": program}
    check_texts((places | texts).items(), _PATTERNS)
    slots = {
        **{name.upper(): text for name, text in places.items()},
        "CONFIG": str(out.absolute() / KEPT),
        "TAUT": program,
        "CLUSTER": cluster,
        "SERVICE": service,
        "USER": user,
        "HOME": "read-only" if _in_home(program) or _in_home(sys.base_prefix) else "yes",
    }
    return write_templates(out.absolute(), TEMPLATES, WRITTEN, slots, kept=KEPT)


def _in_home(place: str) -> bool:
    """Return whether systemd's ProtectHome=yes would hide a program."""
    return any(Path(place).resolve().is_relative_to(home) for home in ("/home", "/root", "/run/user"))
