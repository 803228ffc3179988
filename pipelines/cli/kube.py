"""`taut kube webhook | review | extender | feedback | reclaim | manifests`: connect a Kubernetes cluster.

Options and output only.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.options import Format, FormatOption, TokenFile, emit, say

kube = typer.Typer(
    name="kube",
    no_args_is_help=True,
    help="Connect a Kubernetes cluster to the prediction service.",
)

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

ApiServerUrl = Annotated[
    str | None,
    typer.Option("--api-server", help="Address of `kubectl proxy`.", show_default="the cluster that this pod runs in"),
]
Gpus = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu", help="Extended resource that is a GPU (may be repeated).", show_default="nvidia.com/gpu, amd.com/gpu"
    ),
]


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
    from pipelines.cli.remote import token_of
    from pipelines.connect.kubernetes.serving import serve_app
    from pipelines.connect.kubernetes.webhook import open_webhook

    _write_log()
    app = open_webhook(config, url, token_of(token_file))
    serve_app(app, host, port, certificate=tls_certificate, key=tls_key, say=say)


@kube.command()
def review(
    file: Annotated[str, typer.Argument(help="JSON file of a pod, suspended job or AdmissionReview; - reads stdin.")],
    config: Config,
    url: ServiceUrls,
    token_file: TokenFile = None,
) -> None:
    """Show what the webhook would answer if an object were created: reason, warnings and JSON patch.

    The exit code is 1 if the service did not answer.
    """
    import asyncio
    import json

    from pipelines.cli.remote import token_of
    from pipelines.connect.kubernetes.webhook import review_object
    from pipelines.errors import BadUsage

    try:
        found = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not one JSON object"
        raise BadUsage(f"{file}: {reason}; expected one object, as `kubectl get --output=json` prints it") from error
    answer = asyncio.run(review_object(config, url, token_of(token_file), found))
    typer.echo(json.dumps(answer, indent=2))
    if str(answer["reason"]).startswith("failed"):
        raise typer.Exit(1)


@kube.command()
def extender(
    host: Host = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port; 0 takes a free one.")] = 8444,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    api_server: ApiServerUrl = None,
    gpu: Gpus = None,
) -> None:
    """Serve the scheduler extender, which keeps whole machines free by fragmentation gradient descent."""
    from pipelines.connect.kubernetes.api import open_api_server
    from pipelines.connect.kubernetes.extender import open_extender
    from pipelines.connect.kubernetes.manifests import GPU_RESOURCES
    from pipelines.connect.kubernetes.serving import serve_app

    _write_log()
    server = open_api_server(api_server)
    changes = [server.changes("/api/v1/nodes", "Node"), server.changes("/api/v1/pods", "Pod")]
    app = open_extender(gpu or GPU_RESOURCES, changes)
    serve_app(app, host, port, certificate=tls_certificate, key=tls_key, say=say)


@kube.command()
def feedback(
    config: Config,
    url: ServiceUrls,
    api_server: ApiServerUrl = None,
    once: Annotated[bool, typer.Option("--once", help="Report the pods that have ended by now, and end.")] = False,
    token_file: TokenFile = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Report ended pods to the service: run time, outcome (also OOMKilled), request and allocation."""
    from pipelines.cli.remote import client_of
    from pipelines.connect.kubernetes.api import open_api_server
    from pipelines.connect.kubernetes.config import read_config
    from pipelines.connect.kubernetes.feedback import follow_pods, report_pods

    _write_log()
    settings, server = read_config(config), open_api_server(api_server)
    with client_of(url, token_file, jobs=1) as client:
        if once:
            emit([report_pods(server.listed("/api/v1/pods")[0], settings, client)], form)
        else:
            follow_pods(server.changes("/api/v1/pods", "Pod"), settings, client)


@kube.command()
def reclaim(
    config: Config,
    url: ServiceUrls,
    api_server: ApiServerUrl = None,
    enforce: Annotated[
        bool,
        typer.Option("--enforce", help="Resize pods where the service's mode is enforce; otherwise only list them."),
    ] = False,
    every_s: Annotated[float, typer.Option(min=1.0, max=86_400.0, help="Seconds between two samples.")] = 60.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds, then end.", show_default="until stopped")] = None,
    token_file: TokenFile = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Resize running pods in place to what they use, or list what would be resized."""
    from datetime import UTC, datetime

    from pipelines.cli.remote import client_of, each_round
    from pipelines.connect.kubernetes.api import open_api_server
    from pipelines.connect.kubernetes.config import read_config
    from pipelines.connect.kubernetes.reclaim import Reclaimer

    settings, server = read_config(config), open_api_server(api_server)
    with client_of(url, token_file, jobs=1) as client:
        reclaimer = Reclaimer(server, client, settings, enforce=enforce)
        each_round(lambda: reclaimer.round(datetime.now(UTC)), form, every_s=every_s, rounds=rounds)


@kube.command()
def manifests(
    out: Annotated[Path, typer.Option("--out", help="Folder to fill.")],
    url: Annotated[str, typer.Option("--url", help="Address of the service, as seen from the cluster.")],
    trace: Annotated[str, typer.Option("--trace", help="Trace of the cluster's jobs in the service.")],
    cluster: Annotated[str, typer.Option("--cluster", help="The cluster's name in the service.")],
    image: Annotated[str, typer.Option("--image", help="Image of taut.")] = "taut:0.1.0",
    gpu: Gpus = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Write the manifests of the webhook as plain YAML; apply them with kubectl."""
    from pipelines.connect.kubernetes.manifests import GPU_RESOURCES, write_manifests

    gpus = gpu or GPU_RESOURCES
    emit(write_manifests(out, image=image, url=url, trace=trace, cluster=cluster, gpus=gpus), form)


def _write_log() -> None:
    from modelserve.server.log_lines import write_log_lines

    write_log_lines("console" if sys.stderr.isatty() else "json")


def register(app: typer.Typer) -> None:
    """Add this file's commands to the app."""
    app.add_typer(kube)
