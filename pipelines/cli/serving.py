"""`taut serve | token`: start the prediction service, and make tokens for its clients.

Options and output only; the service is in `modelserve`.
"""

import sys
from dataclasses import asdict
from typing import Any, Final

import typer

from modelserve.scopes import Scope
from pipelines.cli.commands import Lazy, Run, command_of, named, options_from
from pipelines.cli.options import ALL, FORM, LAKE, Format, emit, say
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, argument, option

HELP: Final = "Serve predictions and recommendations over HTTP; other settings are variables TAUT_SERVE_*."
SETTINGS: Final = {
    "host": "127.0.0.1",
    "port": "8080",
    "workers": "1",
    "bundles": "next to the lake",
    "store": "next to the lake",
    "tracking_uri": "next to the lake if it exists",
    "trace": "the only one served",
}
"""Settings of the service that are options too, and their values if neither option nor variable is given."""


def serve() -> Run:
    """Return the command `taut serve`, whose options are settings of the service."""
    from modelserve.settings import PREFIX, ServeSettings

    shown = {name: f"{PREFIX}{name.upper()}, else {other}" for name, other in SETTINGS.items()}
    Given = options_from(ServeSettings, shown)  # a class

    def run(
        given: Given,  # type: ignore[valid-type]  # a class made here
        lake: str | None = LAKE,
        print_settings: bool = option(False, "Print all settings and exit."),
        form: Format = FORM,
    ) -> None:
        _serve(asdict(given), lake, form if print_settings else None)

    run.__doc__ = HELP
    return command_of(run)


def _serve(options: dict[str, Any], lake: str | None, shown: Format | None) -> None:  # Any: values of settings
    """Serve until stopped, or print the settings in the format `shown`."""
    from modelserve.errors import BadSettings
    from modelserve.server import serve as serve_until_stopped
    from modelserve.server.log_lines import write_log_lines
    from pipelines.cli.serve_settings import serve_settings, setting_rows

    settings = serve_settings(lake, options)
    if shown is not None:
        emit(list(setting_rows(settings)), shown)
        return
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
    import hashlib
    import secrets

    from pydantic import ValidationError

    from modelserve.callers import Token
    from modelserve.wrong_values import fault_of

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


COMMANDS: Final = {"serve": Lazy(help=HELP, make=serve), **named(token)}
