"""Write the files that connect Slurm to the agent: plugin script, prolog and epilog, unit of the agent, settings.

The texts are in `templates`. The plugin script is compiled before it replaces an earlier one, since slurmctld does not
start with a broken script.
"""

import ctypes
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pipelines.connect.files import write_templates
from pipelines.errors import BadUsage

__all__ = ["check_lua", "write_files"]

TEMPLATES: Final = Path(__file__).with_name("templates")
PLUGIN: Final = "job_submit.lua"
KEPT: Final = "slurm.toml"
LIBRARIES: Final = tuple(f"liblua{dot}{version}.so{end}" for end in (".0", "") for dot in ("", "-") for version in
                         ("5.1", "5.3", "5.4", "5.2"))  # fmt: skip
"""Names of the Lua library that slurmctld's plugin may be linked to."""

_PLAIN: Final = re.compile(r"/[\w./+-]*")


def write_files(
    out: Path, *, cluster: str, socket: Path, gpus: Path, program: str, service: str, user: str
) -> list[dict[str, str]]:
    """Write the files to a folder, and return a row for each: file, what it is, where it goes.

    An existing `slurm.toml` stays, since it is edited by hand; all other files are replaced atomically.
    """
    out = out.absolute()
    slots = {
        "OUT": str(out),
        "SOCKET": str(socket.absolute()),
        "GPUS": str(gpus.absolute()),
        "CONFIG": str(out / "slurm.toml"),
        "TAUT": program,
        "CLUSTER": cluster,
        "SERVICE": service,
        "USER": user,
        "HOME": "read-only" if _in_home(program) or _in_home(sys.base_prefix) else "yes",
    }
    for name in ("OUT", "SOCKET", "GPUS"):
        if not _PLAIN.fullmatch(slots[name]):
            raise BadUsage(f"found the path {slots[name]!r}, expected letters, digits and /._+- only")
    if not re.fullmatch(r"[\w.-]{1,100}", cluster):
        raise BadUsage(f"--cluster {cluster[:60]!r}: expected letters, digits and ._- only, as ClusterName")
    if not re.fullmatch(r"[a-z_][\w-]{0,31}", user):
        raise BadUsage(f"--user {user[:40]!r}: expected SlurmUser of slurm.conf, such as slurm")
    if not re.fullmatch(r"https?://[\w.:/\[\]-]{1,200}", service):
        raise BadUsage(f"--url {service[:60]!r}: expected an address as http://127.0.0.1:8080")
    if any(sign in program for sign in "\n\r@"):
        raise BadUsage(f"found the program {shlex.quote(program)}, expected a path on one line")
    return write_templates(out, TEMPLATES, WRITTEN, slots, kept=KEPT, check=_check)


def _in_home(place: str) -> bool:
    """Return whether systemd's ProtectHome=yes would hide a program."""
    return any(Path(place).resolve().is_relative_to(home) for home in ("/home", "/root", "/run/user"))


def _check(name: str, text: str) -> None:
    if name == PLUGIN:
        check_lua(text)


WRITTEN: Final[Mapping[str, str]] = {
    PLUGIN: "asks the agent at submission; copy it beside slurm.conf on the controller",
    "slurm.toml": "settings of the agent: modes by partition and account",
    "taut-slurm.service": "systemd unit of the agent on the controller",
    "prolog.sh": "names the job at its GPUs for dcgm-exporter, on every node",
    "epilog.sh": "takes the name back, on every node",
    "slurm.conf.lines": "three lines for slurm.conf",
}


def check_lua(text: str) -> bool:
    """Compile a Lua script with the library that slurmctld uses; return False if no Lua is installed here."""
    lua = _library()
    if lua is None:
        return False
    lua.luaL_newstate.restype = ctypes.c_void_p
    lua.lua_tolstring.restype = ctypes.c_char_p
    lua.lua_tolstring.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
    lua.luaL_loadstring.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lua.lua_close.argtypes = [ctypes.c_void_p]
    state = lua.luaL_newstate()
    try:
        if lua.luaL_loadstring(state, text.encode()) == 0:
            return True
        message = lua.lua_tolstring(state, -1, None) or b"unknown"
        raise BadUsage(f"the script does not compile: {message.decode(errors='replace')[:200]}; nothing was replaced")
    finally:
        lua.lua_close(state)


def _library() -> ctypes.CDLL | None:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
