"""The serving layer: the first form of each KServe service, and what must exist next to it.

Claims, models, isolation, metrics and autoscaling; and the gateway, whose definitions the platform layer
installed. The InferenceService is created once: `mpctl rollout` changes it many times a day, and two owners of
one object would fight.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from constructs import Construct

from infra import builder
from mpctl.methods.preflight.drain import ANSWER_S
from stacks import chart_values
from stacks.base import Plan, Stack
from stacks.clouds import CLOUDS
from stacks.machines import limited_services
from stacks.manifests import AUTOSCALING, MONITORING, Document, address, from_folders, manifest
from stacks.services import Service, inference_service, service_documents
from stacks.services.documents import named
from stacks.services.gateway import gateway_documents
from stacks.services.isolation import fetch_policy, namespace_policies, service_policies
from stacks.services.objects import FETCH, models_claim, require_kserve, service_account
from stacks.services.spare import spare_nodes
from stacks.settings import Settings
from stacks.storage import DISK, SHARED

SCRIPTS = Path(__file__).parent / "jobs"
# Written by controllers after creation; without this every plan would want to take it back.
JOB_COMPUTED = ("spec.selector", "spec.template.metadata.labels")


class Serving(Stack):
    """Everything in the serving namespace of one cluster."""

    def __init__(self, scope: Construct, plan: Plan) -> None:
        super().__init__(scope, plan, "serving")
        outputs = self.outputs_of("cluster")
        self.kubernetes_providers(outputs, helm=False)
        namespace = builder.resource(
            self,
            "kubernetes_namespace_v1",
            "serving",
            metadata=[{"name": plan.settings.namespace, "labels": pod_security(plan)}],
        )
        before = []
        for document in documents(plan):
            computed = JOB_COMPUTED if document["kind"] == "Job" else ()
            after = [namespace] if "namespace" in document["metadata"] else []
            before.append(manifest(self, address(document), document, after, computed))
        for service, document in zip(plan.settings.services, first_services(plan), strict=True):
            if service.create:
                manifest(self, address(document), document, before, once=True)
        builder.output(self, "namespace", plan.settings.namespace)
        builder.output(
            self,
            "next_step",
            next_command(plan),
            description="Connect, and measure speculation before users get it",
        )
        builder.output(
            self,
            "url",
            {service.name: url(plan, service) for service in plan.settings.services},
            description="OpenAI API of each service, once its InferenceService is Ready",
        )
        builder.output(
            self,
            "autoscaling",
            {
                s.name: f"orders at {s.autoscaling.wait_ms} ms, {s.autoscaling.reason}"
                for s in plan.settings.services
            },
            description="Queue wait at which each service orders a pod, and what it keeps",
        )


def pod_security(plan: Plan) -> dict[str, str]:
    """The namespace enforces the chosen standard and warns about the restricted one."""
    level = plan.settings.pod_security
    prefix = "pod-security.kubernetes.io"
    return {
        f"{prefix}/enforce": level,
        f"{prefix}/warn": "restricted",
        f"{prefix}/audit": "restricted",
    }


def documents(plan: Plan) -> list[Document]:
    """All documents of the layer, in the order a person would apply them."""
    settings = plan.settings
    services = limited_services(settings, plan.cluster)
    version = plan.versions.chart("kserve-resources").version
    for service in services:
        require_kserve(service, version)
    namespace = settings.namespace
    shared = settings.shared_models
    staged = tuple(service for service in services if service.staging == "pvc")
    made = [*gateway(plan), *namespace_policies(namespace)]
    for name in sorted({service.service_account for service in services}):
        owner = next(service for service in services if service.service_account == name)
        made.append(service_account(owner, namespace))
    if staged:
        scripts = {path.name: path.read_text("utf-8") for path in sorted(SCRIPTS.glob("*.py"))}
        made.append(named("ConfigMap", "v1", FETCH, namespace, data=scripts))
        made.append(models_claim(staged, namespace, SHARED if shared else DISK, shared=shared))
        made.append(fetch_policy(namespace))
    image = settings.mirror.image(plan.versions.image("fetch-model"))
    pause = settings.mirror.image(plan.versions.image("gke-pause"))
    made += spare_nodes(settings.spare_nodes, namespace, pause)
    for service in services:
        made += service_documents(service, namespace, image, shared=shared)
        made += service_policies(service, namespace)
    return made + from_folders((AUTOSCALING, MONITORING), services, namespace, settings.runbooks)


def require_one_node(settings: Settings) -> None:
    """A volume of one node serves the pods of that node: a replica that is scaled onto another would wait for ever."""
    for service in settings.services if not settings.shared_models else ():
        if service.staging == "pvc" and service.autoscaling.maximum != 1:
            raise service.place.error(
                f"{service.name} may grow beyond one replica, and with shared_models: false its models are on the "
                "disk of one node",
                "staging",
                "set serving.shared_models: true, or staging: storageUris, or autoscaling: {max: 1}",
            )


def gateway(plan: Plan) -> list[Document]:
    """The gateway of KServe's routes; reached from inside the network unless the settings say otherwise."""
    namespace, name = chart_values.GATEWAY.split("/")
    cloud = CLOUDS[plan.cluster.provider]
    answer_s = max((service.timeout_s for service in plan.settings.services), default=ANSWER_S)
    annotations = {} if plan.settings.gateway.public else dict(cloud.internal_gateway)
    if cloud.idle_timeout:
        name_of, highest = cloud.idle_timeout
        annotations[name_of] = str(min(answer_s, highest))
    mirror = plan.settings.mirror
    envoy = mirror.image(plan.versions.image("envoy")) if mirror.registries else None
    serving = plan.settings.namespace
    return gateway_documents(
        plan.settings.gateway, name, namespace, serving, annotations, answer_s, envoy
    )


def next_command(plan: Plan) -> str:
    """What to type after the deploy."""
    command = f"mpctl connect {plan.address} > {plan.name}.kubeconfig"
    if not plan.settings.services:
        return command
    name = plan.settings.services[0].name
    rollout = f"mpctl rollout {name} -n {plan.settings.namespace} --spec ngram"
    return f"{command} && KUBECONFIG={plan.name}.kubeconfig {rollout}"


def url(plan: Plan, service: Service) -> str:
    """The gateway's address of a service where it has a domain, else the one inside the namespace."""
    gateway, namespace = plan.settings.gateway, plan.settings.namespace
    if not gateway.domain:
        return f"http://{service.name}-predictor.{namespace}.svc.cluster.local/v1"
    scheme = "https" if gateway.tls else "http"
    return f"{scheme}://{service.name}-{namespace}.{gateway.domain}/v1"


def first_services(plan: Plan) -> list[Document]:
    """The KServe objects as they are before any rollout."""
    mirror, namespace = plan.settings.mirror, plan.settings.namespace
    services = limited_services(plan.settings, plan.cluster)
    mirrored = [replace(service, image=mirror.image(service.image)) for service in services]
    return [inference_service(service, namespace) for service in mirrored]
