"""`taut serve | token`: start the prediction service, and make tokens for its clients.

Options and output only; the service is in `modelserve`.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from modelserve.scopes import Scope
from pipelines.cli.options import Format, FormatOption, Lake, emit, say

ENV = "TAUT_SERVE_"


def serve(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default=f"{ENV}HOST, else 127.0.0.1")
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 takes a free one.", show_default=f"{ENV}PORT, else 8080")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Worker processes.", show_default=f"{ENV}WORKERS, else 1")] = None,
    bundles: Annotated[
        Path | None,
        typer.Option(help="Folder of mirrored bundles.", show_default=f"{ENV}BUNDLES, else next to the lake"),
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="URL of the store.", show_default=f"{ENV}STORE, else next to the lake")
    ] = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option(help="Registry to mirror.", show_default=f"{ENV}TRACKING_URI, else next to the lake if it exists"),
    ] = None,
    trace: Annotated[
        str | None,
        typer.Option(help="Trace of requests that name none.", show_default=f"{ENV}TRACE, else the only one served"),
    ] = None,
    lake: Lake = None,
    print_settings: Annotated[bool, typer.Option("--print-settings", help="Print all settings and exit.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Serve predictions and recommendations over HTTP; other settings are variables TAUT_SERVE_*."""
    from modelserve.errors import BadSettings
    from modelserve.server import serve as serve_until_told
    from modelserve.server.log_lines import write_log_lines
    from pipelines.cli.serve_settings import serve_settings, setting_rows
    from pipelines.errors import BadUsage

    options = {
        "host": host, "port": port, "workers": workers, "bundles": bundles, "store": store,
        "tracking_uri": tracking_uri, "trace": trace,
    }  # fmt: skip
    settings = serve_settings(lake, options)
    if print_settings:
        emit(list(setting_rows(settings)), form)
        return
    if "log_format" not in settings.model_fields_set and sys.stderr.isatty():
        settings = settings.model_copy(update={"log_format": "console"})
    write_log_lines(settings.log_format)
    try:
        serve_until_told(settings)
    except BadSettings as error:
        raise BadUsage(str(error)) from error


def token(
    name: Annotated[str, typer.Argument(help="Name of the client; it is logged with every call.")],
    scope: Annotated[list[Scope], typer.Option(help="Allowed use (may be repeated).")],
    trace: Annotated[
        list[str] | None, typer.Option(help="Only this trace (may be repeated).", show_default="all of them")
    ] = None,
    cluster: Annotated[
        list[str] | None, typer.Option(help="Only this cluster (may be repeated).", show_default="all of them")
    ] = None,
) -> None:
    """Print a new token on the first line, and its entry for TAUT_SERVE_TOKENS on the second."""
    import hashlib
    import secrets

    from pydantic import ValidationError

    from modelserve.callers import Token
    from modelserve.wrong_values import fault_of
    from pipelines.errors import BadUsage

    text = f"taut_{secrets.token_urlsafe(32)}"
    try:
        entry = Token(
            name=name,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
            scopes=frozenset(scope),
            traces=frozenset(trace) if trace else None,
            clusters=frozenset(cluster) if cluster else None,
        )
    except ValidationError as error:
        raise BadUsage(f"NAME: {fault_of(error.errors()[0])}") from error
    typer.echo(text)
    typer.echo(entry.model_dump_json(exclude_none=True))
    say("The token is shown only once; clients send it as `Authorization: Bearer TOKEN`.")
    say("The service keeps its hash: TAUT_SERVE_TOKENS='[ENTRY, ...]'.")


def register(app: typer.Typer) -> None:
    """Add this file's commands to the app."""
    app.command()(serve)
    app.command()(token)
