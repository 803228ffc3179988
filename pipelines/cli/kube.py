"""`taut kube webhook | review | extender | feedback | reclaim | manifests`: connect a Kubernetes cluster.

Options and output only.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import typer

from pipelines.cli.commands import Commands, Group, named
from pipelines.cli.options import FORM, Format, Service, each_round, emit, say
from pipelines.errors import BadUsage
from pipelines.options import REQUIRED, argument, option

CONFIG: Path = option(REQUIRED, "TOML file: names and modes of the cluster's pods.")
API_SERVER: str | None = option(None, "Address of `kubectl proxy`.", shown="the cluster that this pod runs in")
GPUS: tuple[str, ...] = option(
    (),
    "Extended resource that is a GPU (may be repeated).",
    name="--gpu",
    shown="nvidia.com/gpu, amd.com/gpu",
)


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Options for where a server listens."""

    host: str = option("127.0.0.1", "Address to listen on.")
    tls_certificate: Path | None = option(
        None, "PEM file of the certificate chain; read again when it changes.", shown="plain HTTP"
    )
    tls_key: Path | None = option(None, "PEM file of its private key.")

    def serve(self, app: Any, port: int) -> None:  # Any: an application of starlette
        """Serve an application until stopped."""
        from pipelines.connect.kubernetes.serving import serve_app

        serve_app(app, self.host, port, certificate=self.tls_certificate, key=self.tls_key, say=say)


def webhook(
    listening: Listening,
    service: Service,
    config: Path = CONFIG,
    port: int = option(8443, "Port; 0 takes a free one.", minimum=0, maximum=65_535),
    api_server: str | None = API_SERVER,
) -> None:
    """Serve the admission webhook; a pod for which the service is late or fails is created as requested.

    In a cluster, or with --api-server, LimitRanges are read every 5 s; elsewhere only those of the configuration count.
    """
    from pipelines.connect.kubernetes.webhook import open_webhook

    _write_log()
    listening.serve(open_webhook(config, service.url, service.token(), api_server), port)


def review(
    service: Service,
    file: str = argument(REQUIRED, "JSON file of a pod, suspended job or AdmissionReview; - reads stdin."),
    config: Path = CONFIG,
) -> None:
    """Show what the webhook would answer if an object were created: reason, warnings and JSON patch.

    The exit code is 1 if the service did not answer.
    """
    import asyncio
    import json

    from pipelines.connect.kubernetes.webhook import review_object

    try:
        found = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8"))
        if not isinstance(found, dict):
            raise ValueError
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not one JSON object"
        raise BadUsage(f"{file}: {reason}; expected one object, as `kubectl get --output=json` prints it") from error
    answer = asyncio.run(review_object(config, service.url, service.token(), found))
    typer.echo(json.dumps(answer, indent=2))
    if str(answer["reason"]).startswith("failed"):
        raise typer.Exit(1)


def extender(
    listening: Listening,
    port: int = option(8444, "Port; 0 takes a free one.", minimum=0, maximum=65_535),
    api_server: str | None = API_SERVER,
    gpu: tuple[str, ...] = GPUS,
) -> None:
    """Serve the scheduler extender, which keeps whole machines free by fragmentation gradient descent."""
    from pipelines.connect.kubernetes.api import open_api_server
    from pipelines.connect.kubernetes.extender import open_extender
    from pipelines.connect.kubernetes.manifests import GPU_RESOURCES

    _write_log()
    server = open_api_server(api_server)
    changes = [server.changes("/api/v1/nodes", "Node"), server.changes("/api/v1/pods", "Pod")]
    listening.serve(open_extender(gpu or GPU_RESOURCES, changes), port)


def feedback(
    service: Service,
    config: Path = CONFIG,
    api_server: str | None = API_SERVER,
    once: bool = option(False, "Report the pods that have ended by now, and end."),
    form: Format = FORM,
) -> None:
    """Report ended pods to the service: run time, outcome (also OOMKilled), request and allocation.

    If the service has tokens, this needs one with the scope `accounting`; by others, reports are only shown.
    """
    from pipelines.connect.kubernetes.api import open_api_server
    from pipelines.connect.kubernetes.config import read_config
    from pipelines.connect.kubernetes.feedback import follow_pods, report_pods

    _write_log()
    settings, server = read_config(config), open_api_server(api_server)
    with service.client() as client:
        if once:
            emit([report_pods(server.listed("/api/v1/pods")[0], settings, client)], form)
        else:
            follow_pods(server.changes("/api/v1/pods", "Pod"), settings, client)


def reclaim(
    service: Service,
    config: Path = CONFIG,
    api_server: str | None = API_SERVER,
    enforce: bool = option(False, "Resize pods where the service's mode is enforce; otherwise only list them."),
    every_s: float = option(60.0, "Seconds between two samples.", minimum=1.0, maximum=86_400.0),
    rounds: int | None = option(None, "Rounds, then end.", minimum=1, shown="until stopped"),
    form: Format = FORM,
) -> None:
    """Resize running pods in place to what they use, or list what would be resized."""
    from datetime import UTC, datetime

    from pipelines.connect.kubernetes.api import open_api_server
    from pipelines.connect.kubernetes.config import read_config
    from pipelines.connect.kubernetes.reclaim import Reclaimer

    settings, server = read_config(config), open_api_server(api_server)
    with service.client() as client:
        reclaimer = Reclaimer(server, client, settings, enforce=enforce)
        each_round(lambda: reclaimer.round(datetime.now(UTC)), form, every_s=every_s, rounds=rounds)


def manifests(
    out: Path = option(REQUIRED, "Folder to fill."),
    url: str = option(REQUIRED, "Address of the service, as seen from the cluster."),
    trace: str = option(REQUIRED, "The service's trace for the cluster's jobs."),
    cluster: str = option(REQUIRED, "The cluster's name in the service."),
    image: str = option("taut:0.1.0", "Image of taut."),
    gpu: tuple[str, ...] = GPUS,
    form: Format = FORM,
) -> None:
    """Write the manifests of the webhook as plain YAML; apply them with kubectl."""
    from pipelines.connect.kubernetes.manifests import GPU_RESOURCES, write_manifests

    gpus = gpu or GPU_RESOURCES
    emit(write_manifests(out, image=image, url=url, trace=trace, cluster=cluster, gpus=gpus), form)


def _write_log() -> None:
    from modelserve.server.environment import write_log_lines

    write_log_lines("console" if sys.stderr.isatty() else "json")


COMMANDS: Final[Commands] = {
    "kube": Group(
        help="Connect a Kubernetes cluster to the prediction service.",
        commands=named(webhook, review, extender, feedback, reclaim, manifests),
    )
}
