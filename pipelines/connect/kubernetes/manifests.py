"""Write the manifests that connect a cluster to the service: settings, webhook, certificate, extender and the rest.

The texts are in `templates`, as plain YAML.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pipelines.connect.files import check_texts, write_templates

__all__ = ["GPU_RESOURCES", "write_manifests"]

TEMPLATES: Final = Path(__file__).with_name("templates")
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
"""Extended resources that are GPUs, unless others are named."""

WRITTEN: Final[Mapping[str, str]] = {
    "settings.yaml": "names and modes; edit it, it is never replaced",
    "webhook.yaml": "the webhook, with the right to read limit ranges",
    "certificate.yaml": "its certificate by cert-manager",
    "certificate.sh": "its certificate without cert-manager; run it monthly",
    "extender.yaml": "the scheduler extender, with the right to read nodes and pods",
    "scheduler-configuration.yaml": "tells a scheduler to ask the extender",
    "feedback.yaml": "reports ended pods to the service, with the right to read pods",
    "reclaim.yaml": "lists which running pods would be resized; it may do it, too",
    "webhook-configuration.yaml": "shows the webhook new pods and suspended jobs; apply it last",
}
KEPT: Final = "settings.yaml"
WEBHOOKS: Final = 3
"""Webhooks in the configuration, which all get the certificate."""

_PATTERNS: Final[Mapping[str, tuple[str, str]]] = {
    "image": (r"[\w.:/@-]{1,300}", "an image such as registry/taut:0.1.0"),
    "url": (r"https?://[\w.:/\[\]-]{1,300}", "an address such as http://taut.taut"),
    "trace": (r"[\w.-]{1,100}", "letters, digits and ._- only"),
    "cluster": (r"[\w.-]{1,100}", "letters, digits and ._- only"),
    "gpu": (r"[\w.-]{1,200}/[\w.-]{1,63}", "an extended resource such as nvidia.com/gpu"),
}


def write_manifests(
    out: Path, *, image: str, url: str, trace: str, cluster: str, gpus: Sequence[str] = GPU_RESOURCES
) -> list[dict[str, str]]:
    """Write the manifests to a folder, and return one row for each file: its name and its purpose.

    `url` is the address of the service, `trace` and `cluster` the names of the cluster's jobs in it, and `gpus` the
    extended resources that are GPUs.
    """
    named = [("image", image), ("url", url), ("trace", trace), ("cluster", cluster), *(("gpu", each) for each in gpus)]
    check_texts(named, _PATTERNS)
    slots = {
        "IMAGE": image,
        "URL": url,
        "TRACE": trace,
        "CLUSTER": cluster,
        "GPUS": ", ".join(f"'{each}'" for each in gpus),
        "EXTENDERGPUS": "".join(f", --gpu={each}" for each in gpus),
        "INDEXES": " ".join(map(str, range(WEBHOOKS))),
    }
    return write_templates(out, TEMPLATES, WRITTEN, slots, kept=KEPT)
