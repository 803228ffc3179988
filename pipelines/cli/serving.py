"""`taut serve | token`: start the prediction service with settings of options, variables and files next to the lake.

Imported only when one of the two is called.
"""

import hashlib
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import typer
from pydantic import ValidationError
from pydantic_settings import SettingsError

from modelserve.callers import Token
from modelserve.errors import BadSettings
from modelserve.scopes import Scope
from modelserve.settings import PREFIX, ServeSettings
from modelserve.wrong_values import fault_of
from pipelines.cli.commands import options_from
from pipelines.cli.options import ALL, DEMO_LAKE, LAKE, SQLITE, Place, place_of, say
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, argument, option
from pipelines.settings import load_settings

DEFAULTS: Final = {
    "host": "127.0.0.1",
    "port": "8080",
    "workers": "1",
    "bundles": "next to the lake",
    "store": "next to the lake",
    "tracking_uri": "next to the lake if it exists",
    "trace": "the only one served",
}
"""Settings of the service that are options too, and their values if neither option nor variable is given."""
Given = options_from(ServeSettings, {name: f"{PREFIX}{name.upper()}, else {other}" for name, other in DEFAULTS.items()})
MASK: Final = "*****"
SECRET: Final = frozenset({"tokens", "tls_key_password"})
"""Settings whose value is never printed, not even in error messages."""

CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def serve(
    given: Given,  # type: ignore[valid-type]  # a class made here
    lake: Path | None = LAKE,
) -> None:
    """Serve predictions and recommendations over HTTP; other settings are variables TAUT_SERVE_*."""
    from modelserve.server import serve as serve_until_stopped
    from modelserve.server.environment import write_log_lines

    settings = serve_settings(lake, asdict(given))
    if "log_format" not in settings.model_fields_set and sys.stderr.isatty():
        settings = settings.model_copy(update={"log_format": "console"})
    write_log_lines(settings.log_format)
    try:
        serve_until_stopped(settings)
    except BadSettings as error:
        raise BadUsage(str(error)) from error


def token(
    name: str = argument(REQUIRED, "Name of the client; it is logged with every call."),
    scope: tuple[Scope, ...] = option(REQUIRED, "Allowed use (may be repeated)."),
    trace: tuple[str, ...] = option((), "Only this trace (may be repeated).", shown=ALL),
    cluster: tuple[str, ...] = option((), "Only this cluster (may be repeated).", shown=ALL),
) -> None:
    """Print a new token on the first line, and its entry for TAUT_SERVE_TOKENS on the second."""
    text = f"taut_{secrets.token_urlsafe(32)}"
    try:
        entry = Token(
            name=name,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            scopes=frozenset(scope),
            traces=frozenset(trace) or None,
            clusters=frozenset(cluster) or None,
        )
    except ValidationError as error:
        raise BadUsage(f"NAME: {fault_of(error.errors()[0])}") from error
    typer.echo(text)
    typer.echo(entry.model_dump_json(exclude_none=True))
    say("The token is shown only once; clients send it as `Authorization: Bearer TOKEN`.")
    say("The service keeps its hash: TAUT_SERVE_TOKENS='[ENTRY, ...]'.")


def serve_settings(lake: Path | None, options: Mapping[str, object]) -> ServeSettings:
    """Return the settings of the service; `options` of the command line that are None count as not given."""
    _check_names(os.environ)
    given = {name: value for name, value in options.items() if value is not None}
    said = _read(given)
    beside = _beside(_place(lake), said)
    return _read({**beside, **given}) if beside else said


def _read(given: Mapping[str, object]) -> ServeSettings:
    try:
        return ServeSettings(**given)  # type: ignore[arg-type]  # pydantic checks every value
    except ValidationError as error:
        faults = "; ".join(_fault(fault["loc"], fault["input"], fault_of(fault)) for fault in error.errors())
        raise BadUsage(f"invalid settings: {faults}") from error
    except SettingsError as error:
        found = re.search(r'field "(\w+)"', str(error))
        name = f"{PREFIX}{found[1].upper()}" if found else f"a variable {PREFIX}*"
        raise BadUsage(f"invalid settings: {name} is not valid JSON") from error


def _fault(where: Sequence[str | int], found: object, expected: str) -> str:
    if not where:
        return expected
    field = str(where[0])
    inside = "".join(f"[{part}]" for part in where[1:])
    value = "" if field in SECRET else f" is {CREDENTIALS.sub(MASK, str(found))[:40]!r}"
    return f"{PREFIX}{field.upper()}{inside}{value}: {expected}"


def _check_names(environment: Mapping[str, str]) -> None:
    """Raise BadUsage for unknown variables `TAUT_SERVE_*`.

    A misspelt TAUT_SERVE_TOKENS, for example, would leave the service without tokens.
    """
    known = {f"{PREFIX}{name.upper()}" for name in ServeSettings.model_fields}
    strange = sorted(name for name in environment if name.upper().startswith(PREFIX) and name.upper() not in known)
    if strange:
        raise BadUsage(f"{', '.join(strange)[:200]}: no such setting; docs/serving.md lists them all")


def _place(lake: Path | None) -> Place:
    """Return where the lake and the models are; in the demo's folder if there are no others."""
    place = place_of(lake, demo=False)
    demo = place_of(DEMO_LAKE)
    nothing = not place.bundles.exists() and not _registry_of(place)
    return demo if lake is None and nothing and demo.bundles.exists() else place


def _registry_of(place: Place) -> str | None:
    """Return the URI of the model registry; None if it is a database file that does not exist."""
    uri = place.tracking_uri
    return uri if not uri.startswith(SQLITE) or Path(uri.removeprefix(SQLITE)).exists() else None


def _beside(place: Place, said: ServeSettings) -> dict[str, object]:
    """Return settings that neither options nor variables give, from the files next to the lake."""
    found: dict[str, object] = {}
    bundles = said.bundles
    if "bundles" not in said.model_fields_set:
        bundles = found["bundles"] = place.bundles
        if "tracking_uri" not in said.model_fields_set:
            found["tracking_uri"] = _registry_of(place)
        if "store" not in said.model_fields_set:
            found["store"] = f"{SQLITE}{place.lake.absolute().parent / 'serve.db'}"
    if "trace" not in said.model_fields_set:
        found["trace"] = load_settings().trace or _only_trace(bundles)
    return found


def _only_trace(bundles: Path) -> str | None:
    """Return the one trace of all cached models; None if they have several traces or there are no models."""
    traces = {folder.name.split(".")[1] for folder in bundles.glob("*.*.*/")} if bundles.is_dir() else set()
    return traces.pop() if len(traces) == 1 else None
