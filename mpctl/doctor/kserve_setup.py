"""KServe: installed, running, its version, its configuration, and whether its webhooks answer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

from mpctl import commands
from mpctl.doctor.state import (
    SERVICE_LABEL,
    ClusterFacts,
    KubeObject,
    Symptom,
    full_name,
    label,
    title,
)
from mpctl.doctor.workloads import workloads
from mpctl.formatting import plural
from mpctl.json_fields import container_of, list_at, mapping_at, value_at
from mpctl.json_types import Json

GROUP = "serving.kserve.io"
CONFIG = "inferenceservice-config"
GATEWAY = "gateway.networking.k8s.io"
_SUBJECT = "KServe"
_NOTES = "KServe release notes"


def check_installed(facts: ClusterFacts) -> Iterator[Symptom]:
    if "discovery" in facts.unread:
        return
    if "v1beta1" not in facts.groups.get(GROUP, ()):
        yield from _missing(facts)
        return
    controllers = facts.read("kserve-deployments")
    if controllers is None:
        return
    for controller in controllers:
        if not value_at(controller, "status", "availableReplicas"):
            yield Symptom(
                "kserve-controller",
                "fail",
                title("Deployment", controller),
                "has no available replica: changes to InferenceServices reach no Deployment",
                commands.kubectl(
                    "describe",
                    "deployment",
                    full_name(controller)[1],
                    namespace=facts.kserve_namespace,
                ),
                "KServe administrator guide",
            )


def _missing(facts: ClusterFacts) -> Iterator[Symptom]:
    """No KServe: a failure only where a service of KServe, or what it made of one, is in scope."""
    made = [item for item in facts.listed("deployments") if label(item, SERVICE_LABEL)]
    orphans = [*facts.listed("inferenceservices"), *made]
    if orphans:
        yield Symptom(
            "kserve-missing",
            "fail",
            _SUBJECT,
            f"the API server serves no {GROUP}/v1beta1, and {len(orphans)} objects of InferenceServices exist",
            "install KServe 0.20 or later with the Standard deployment mode",
            "KServe administrator guide",
        )
        return
    counts = Counter(workload.kind for workload in workloads(facts))
    listed = ", ".join(plural(number, kind) for kind, number in sorted(counts.items()))
    yield Symptom(
        "kserve-missing",
        "note",
        _SUBJECT,
        f"not installed: no InferenceServices here; engines in scope: {listed or 'none'}",
    )


def kserve_version(facts: ClusterFacts) -> tuple[tuple[int, int] | None, str]:
    """KServe's major and minor version, and the evidence; None without evidence."""
    for controller in facts.listed("kserve-deployments"):
        pod = mapping_at(controller, "spec", "template", "spec")
        image = str(container_of(pod, "manager").get("image"))
        for text, how in (
            (image.partition("@")[0].rpartition(":")[2], f"image {image}"),
            (label(controller, "app.kubernetes.io/version") or "", "label of the controller"),
        ):
            match = re.match(r"v?(\d+)\.(\d+)", text)
            if match:
                return (int(match[1]), int(match[2])), how
    return None, ""


def check_version(facts: ClusterFacts) -> Iterator[Symptom]:
    if "v1beta1" not in facts.groups.get(GROUP, ()):
        return
    version, how = kserve_version(facts)
    if version is None:
        yield Symptom(
            "kserve-version", "note", _SUBJECT, "its version is unknown; version checks are skipped"
        )
    elif version < (0, 16):
        yield Symptom(
            "kserve-version",
            "warn",
            _SUBJECT,
            f"is older than 0.16 ({how}): no storageUris, so target and draft cannot both be staged",
            "upgrade to 0.20; until then use methods without a draft (ngram, suffix), or put both models on one volume",
            _NOTES + " 0.16",
        )
    else:
        yield Symptom("kserve-version", "ok", _SUBJECT, f"{version[0]}.{version[1]} ({how})")


def config_of(facts: ClusterFacts) -> Json | None:
    """The sections of KServe's ConfigMap, each parsed; None when it was not read. A broken section is its text."""
    configmaps = facts.listed("kserve-configmaps")
    if not configmaps:
        return None
    sections: Json = {}
    for key, text in mapping_at(configmaps[0], "data").items():
        try:
            sections[key] = json.loads(text)
        except (TypeError, ValueError):
            sections[key] = text
    return sections


def check_config(facts: ClusterFacts) -> Iterator[Symptom]:
    config = config_of(facts)
    subject = f"ConfigMap {facts.kserve_namespace}/{CONFIG}"
    if config is None:
        return
    for section in ("deploy", "ingress", "storageInitializer"):
        if isinstance(config.get(section), str):
            yield Symptom(
                "kserve-config", "fail", subject, f"section {section} is not JSON: the controller cannot read it",
                commands.kubectl("edit", "configmap", CONFIG, namespace=facts.kserve_namespace),
                "KServe administrator guide",
            )  # fmt: skip
    gateway = str(value_at(config.get("ingress"), "enableGatewayApi")).lower() == "true"
    if gateway and "v1" not in facts.groups.get(GATEWAY, ()) and "discovery" not in facts.unread:
        yield Symptom(
            "kserve-gateway",
            "fail",
            subject,
            f"enableGatewayApi is true but the API server serves no {GATEWAY}: services never get Ready",
            "install the Gateway API definitions, or set ingress.enableGatewayApi to false",
            "KServe 0.20 controller, measured",
        )


def check_webhooks(facts: ClusterFacts) -> Iterator[Symptom]:
    for resource, kind in (
        ("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
    ):
        for configuration in facts.listed(resource):
            if "serving.kserve.io" in str(value_at(configuration, "metadata", "name")):
                yield from _webhooks(facts, configuration, title(kind, configuration))


def _webhooks(facts: ClusterFacts, configuration: KubeObject, subject: str) -> Iterator[Symptom]:
    silent: set[str] = set()
    called: set[str] = set()
    for hook in list_at(configuration, "webhooks"):
        client = mapping_at(hook, "clientConfig")
        if not client.get("caBundle"):
            yield Symptom(
                "kserve-webhook",
                "fail",
                subject,
                f"webhook {hook.get('name')} has no caBundle: the API server cannot trust it and refuses every write",
                "check that cert-manager's cainjector runs: "
                + commands.kubectl("get", "pods", namespace="cert-manager"),
                "cert-manager documentation, CA injector",
            )
        elif client.get("url"):
            yield Symptom(
                "kserve-webhook",
                "ok",
                subject,
                f"webhook {hook.get('name')} is called at {client['url']}",
            )
        service = value_at(client, "service", "name")
        if service:
            called.add(service)
    slices = facts.read("kserve-endpointslices")
    if slices is None:
        return
    for service in called:
        mine = [s for s in slices if label(s, "kubernetes.io/service-name") == service]
        ready = [
            e
            for s in mine
            for e in list_at(s, "endpoints")
            if value_at(e, "conditions", "ready") is not False
        ]
        if not ready:
            silent.add(service)
    for service in sorted(silent):
        yield Symptom(
            "kserve-webhook",
            "fail",
            subject,
            f"service {service} has no ready endpoint: every write to an InferenceService is refused",
            f"{commands.kubectl('get', 'pods', namespace=facts.kserve_namespace)}; the controller serves the webhook",
            "KServe administrator guide",
        )
    if called and not silent:
        yield Symptom("kserve-webhook", "ok", subject, f"answered by {', '.join(sorted(called))}")


CHECKS = (check_installed, check_version, check_config, check_webhooks)
