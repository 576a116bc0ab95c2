"""Kubernetes documents for the serving layer: from values, and from the YAML a person edits under manifests/.

Files in manifests/autoscaling and manifests/monitoring are plain Kubernetes YAML in which ``${service}``
and ``${namespace}`` stand for the service's, ``${runbooks}`` for the address its runbooks are read at, ``${slots}`` for
the requests that one pod runs at once, ``${min}``, ``${max}``, ``${wait_ms}``, ``${busy}`` and ``${hold}`` for its
autoscaling; any other ``$`` belongs to Prometheus or Grafana and stays. Absent folders are
empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

import yaml
from constructs import Construct

from infra import builder, charts
from mpctl.errors import InputError
from stacks.services import Service
from stacks.services.autoscaling import Autoscaling
from stacks.settings import RUNBOOKS

Document = dict[str, Any]
FOLDER = Path(__file__).resolve().parent.parent / "manifests"
AUTOSCALING = FOLDER / "autoscaling"
MONITORING = FOLDER / "monitoring"
CREATOR = "mpctl-stacks"


def manifest(
    scope: Construct,
    name: str,
    document: Document,
    after: Iterable[builder.Element] = (),
    computed: Sequence[str] = (),
    *,
    once: bool = False,
) -> builder.Element:
    """One document as a Terraform resource; labels and annotations may be added by controllers.

    ``once``: what is written into it after its creation stays. That needs both settings: the provider plans the live
    object from the manifest, whose changes ``ignore_changes`` hides, unless the field is a computed one
    (terraform-provider-kubernetes, manifest/provider/plan.go and #2665). The manager's name is not Terraform's, under
    which `mpctl rollout` would refuse to change it.
    """
    fields = ["metadata.labels", "metadata.annotations", *computed, *(["spec"] if once else [])]
    return builder.resource(
        scope,
        "kubernetes_manifest",
        name,
        manifest=charts.literal(document),
        computed_fields=fields,
        depends_on=after,
        field_manager={"name": CREATOR} if once else None,
        lifecycle={"ignore_changes": ["manifest"]} if once else None,
    )


def render(
    text: str, service: Service, namespace: str, file: str, runbooks: str = RUNBOOKS
) -> list[Document]:
    """The documents in *text* for one service."""
    filled = Template(text).safe_substitute(
        service=service.name,
        namespace=namespace,
        runbooks=runbooks,
        slots=service.slots,
        min=service.autoscaling.minimum,
        max=service.autoscaling.maximum or service.autoscaling.minimum,
        wait_ms=service.autoscaling.wait_ms,
        **shares(service.autoscaling),
    )
    try:
        loaded = [document for document in yaml.safe_load_all(filled) if document]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise InputError(
            f"not YAML: {error}", file=file, line=mark.line + 1 if mark else None
        ) from error
    for document in loaded:
        if not isinstance(document, dict) or not {"apiVersion", "kind", "metadata"} <= set(
            document
        ):
            raise InputError(
                "not a Kubernetes object: apiVersion, kind and metadata are needed", file=file
            )
    return loaded


def shares(autoscaling: Autoscaling) -> dict[str, object]:
    """Targets as numbers, and in thousandths for quantities, which the API server would rewrite."""
    busy, hold = autoscaling.busy, autoscaling.hold
    return {
        "busy": busy,
        "hold": hold,
        "busy_milli": round(1000 * busy),
        "hold_milli": round(1000 * hold),
    }


def from_folders(
    folders: Iterable[Path], services: Sequence[Service], namespace: str, runbooks: str = RUNBOOKS
) -> list[Document]:
    """Every document of every service, each object once: what names no service is the same for all."""
    by_address: dict[str, Document] = {}
    for folder in folders:
        for path in sorted(folder.glob("*.yaml")):
            text, file = path.read_text("utf-8"), str(path.relative_to(FOLDER.parent))
            for service in services:
                for document in render(text, service, namespace, file, runbooks):
                    by_address.setdefault(address(document), document)
    return list(by_address.values())


def address(document: Document) -> str:
    """A name for the state: kind and object name, so that editing an object changes it in place."""
    meta = document["metadata"]
    parts = (document["kind"], meta.get("namespace", ""), meta["name"])
    return re.sub(r"[^a-z0-9]+", "_", "_".join(part for part in parts if part).lower())
