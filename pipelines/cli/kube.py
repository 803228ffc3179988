"""`taut kube`: connect a Kubernetes cluster to the service; here its admission webhook.

Options and output only. Called by `pipelines.cli`, which registers the commands.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.options import TokenFile, say

if TYPE_CHECKING:
    from modelserve.client import AsyncClient
    from modelserve.server.hooks import Certificate

kube = typer.Typer(
    name="kube",
    no_args_is_help=True,
    help="Connect a Kubernetes cluster: shrink new pods, score nodes, report ended pods.",
)

DRAIN_S = 5.0
"""Seconds for which a stopping webhook still answers, until the cluster sends it no more calls."""

Config = Annotated[
    Path, typer.Option("--config", help="TOML file: names, modes and limit ranges of the cluster's pods.")
]
Host = Annotated[str, typer.Option(help="Address to listen on.")]
TlsCertificate = Annotated[
    Path | None,
    typer.Option(help="PEM file of the certificate chain; read again when it changes.", show_default="plain HTTP"),
]
TlsKey = Annotated[Path | None, typer.Option(help="PEM file of its private key.", show_default=False)]
ServiceUrls = Annotated[list[str], typer.Option("--url", help="Address of the service; repeat it for replicas.")]


@kube.command()
def webhook(
    config: Config,
    url: ServiceUrls,
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 takes a free one.")] = 8443,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    token_file: TokenFile = None,
) -> None:
    """Serve the admission webhook; a pod for which the service is late or fails is created as requested."""
    from modelserve.api.kubernetes.config import read_config
    from modelserve.api.kubernetes.webhook import Webhook, webhook_app
    from modelserve.errors import BadSettings
    from modelserve.server.hooks import serve_hook
    from pipelines.errors import BadUsage

    _write_log()
    try:
        settings = read_config(config)
        asked = Webhook(config=settings, ask=_client(url, token_file).recommend)
        certificate = _certificate(tls_certificate, tls_key)
        serve_hook(webhook_app(asked), host, port, certificate=certificate, drain_s=DRAIN_S, say=say)
    except BadSettings as error:
        raise BadUsage(str(error)) from error


def _client(urls: list[str], token_file: Path | None) -> "AsyncClient":
    from modelserve.api.kubernetes.webhook import DEADLINE_S
    from modelserve.client import AsyncClient, Retries, Timeouts
    from pipelines.cli.remote import token_of

    # The webhook has the deadline; the client's is longer, so that a late service is seen as late.
    return AsyncClient(
        *urls,
        token=token_of(token_file),
        timeouts=Timeouts(connect_s=DEADLINE_S, answer_s=2 * DEADLINE_S, total_s=2 * DEADLINE_S),
        retries=Retries(tries=1),
    )


def _certificate(certificate: Path | None, key: Path | None) -> "Certificate | None":
    from modelserve.server.hooks import Certificate
    from pipelines.errors import BadUsage

    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise BadUsage("--tls-certificate and --tls-key: found one, expected both or neither")
    return Certificate(certificate, key)


def _write_log() -> None:
    from modelserve.server.log_lines import write_log_lines

    write_log_lines("console" if sys.stderr.isatty() else "json")


def register(app: typer.Typer) -> None:
    """Add this file's commands to the app."""
    app.add_typer(kube)
