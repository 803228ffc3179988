"""Settings as the environment that says them: how the parent hands its settings to the processes it starts.

No process is started here. Called by `modelserve.server.supervisor`; read back by `ServeSettings()` in the child.
"""

import json
import os
from collections.abc import Mapping

from pydantic import SecretStr

from modelserve.settings import PREFIX, ServeSettings


def environment_of(settings: ServeSettings) -> dict[str, str]:
    """Return the variables under which `ServeSettings()` equals `settings`; an absent value is an empty variable."""
    plain = settings.model_dump(mode="json")
    return {f"{PREFIX}{name.upper()}": _text(getattr(settings, name), plain[name]) for name in plain}


def child_environment(settings: ServeSettings, more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process: ours, the settings, and `more`.

    Every worker is one thread at a time; OpenMP's idle threads would spin on cores that other workers need.
    """
    return {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", **os.environ, **environment_of(settings), **more}


def _text(value: object, plain: object) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return plain if isinstance(plain, str) else json.dumps(plain)
