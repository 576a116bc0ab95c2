"""Base of every stack: its name, state, tags and the outputs of the stack before it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from constructs import Construct

from infra import builder, core
from infra.charts import Reference
from stacks import backends
from stacks.fleet import InferenceCluster
from stacks.settings import Settings
from stacks.settings.existing import Existing
from stacks.versions import Table

# Outputs of the cluster layer that the next layers read, the same on both clouds.
OUTPUTS = ("cluster_name", "cluster_endpoint", "cluster_ca", "model_volume")


@dataclass(frozen=True)
class Plan:
    """One cluster in one environment."""

    settings: Settings
    cluster: InferenceCluster
    versions: Table
    minor: str
    project: str | None = None

    @property
    def name(self) -> str:
        """The cluster's name in the cloud. With the environment: roles, keys and clusters of two environments in one
        account would have the same names otherwise. One that exists has its own."""
        if self.existing and self.existing.cluster:
            return self.existing.cluster
        return f"{self.cluster.name}-{self.settings.name}"

    @property
    def tags(self) -> dict[str, str]:
        """On everything that takes tags; a fleet's bill can be split by cluster and by environment."""
        return {
            **self.settings.tags,
            "environment": self.settings.name,
            "cluster": self.name,
            "managed-by": "mpctl",
        }

    @property
    def existing(self) -> Existing | None:
        """What of this cluster exists already."""
        return self.settings.existing.get(self.cluster.name)

    @property
    def cidr(self) -> str:
        """Addresses of the cluster's network."""
        return self.existing.cidr if self.existing else self.settings.network.cidr

    @property
    def location(self) -> str:
        """The region; on Google Cloud behind the project, since a project has clusters in many regions and a region
        clusters of many projects."""
        whole = f"{self.project}-{self.cluster.region}" if self.project else self.cluster.region
        return re.sub(r"[^a-z0-9-]", "-", whole)

    @property
    def address(self) -> str:
        """The cluster as `mpctl connect` and `mpctl credential` name it."""
        cloud = "eks" if self.project is None else f"gke/{self.project}"
        return f"{cloud}/{self.cluster.region}/{self.name}"

    def stack(self, layer: str) -> str:
        """The stack's id."""
        return f"{self.cluster.name}-{self.settings.name}-{self.location}-{layer}"

    def key(self, layer: str) -> str:
        """The name of the stack's state in the backend: two environments, or two places, never share one."""
        return f"{self.settings.name}/{self.location}/{self.cluster.name}-{layer}"

    def former_key(self, layer: str) -> str:
        """The same before environment and place were part of it; `scripts/deploy --move-state` reads it."""
        return f"{self.cluster.name}-{layer}"

    @property
    def first_layer(self) -> str:
        """The first layer that is built; an existing cluster has none of its own."""
        return "platform" if self.existing and self.existing.cluster else "cluster"

    def provider_version(self, name: str) -> str:
        return self.settings.providers.get(name) or self.versions.provider(name)


class Stack(core.TerraformStack):
    """A stack with its state and providers."""

    def __init__(self, scope: Construct, plan: Plan, layer: str) -> None:
        super().__init__(scope, plan.stack(layer))
        self.plan = plan
        backends.use(self, plan.settings.backend, plan.key(layer))
        self.owner()

    def owner(self) -> None:
        """Keep the cluster's name in the state, and refuse every plan in which the state has another one.

        ``ignore_changes`` leaves the name of the first apply in place, whatever the configuration says, so the
        condition compares the state with the configuration before anything is changed. A destroy evaluates none.
        """
        builder.resource(
            self,
            "terraform_data",
            "owner",
            input=self.plan.name,
            lifecycle={
                "ignore_changes": ["input"],
                "postcondition": [self.belongs("self.input")],
            },
        )

    def belongs(self, found: str) -> dict[str, str]:
        """The condition that the expression *found* is this cluster's name."""
        name = self.plan.name
        return {
            "condition": f'${{{found} == "{name}"}}',
            "error_message": f"The state belongs to the cluster ${{{found}}}, and this stack is of {name}. "
            "Nothing was changed. Set backend.prefix (or backend.path), or the environment's name, to one of its own.",
        }

    def cloud_provider(self) -> None:
        """The cloud of this cluster, tagging everything it makes."""
        plan = self.plan
        if self.node.try_find_child("aws") or self.node.try_find_child("google"):
            return
        if plan.cluster.provider == "EKS":
            builder.provider(
                self,
                "aws",
                version=plan.provider_version("aws"),
                region=plan.cluster.region,
                default_tags=[{"tags": plan.tags}],
            )
        else:
            builder.provider(
                self,
                "google",
                version=plan.provider_version("google"),
                project=plan.project,
                region=plan.cluster.region,
                default_labels=labels(plan.tags),
                # The budget API counts calls on the caller's own project, and a person's login has none
                # (terraform-provider-google #7948).
                **(
                    {"user_project_override": True, "billing_project": plan.project}
                    if plan.settings.budget
                    else {}
                ),
            )

    def outputs_of(self, layer: str) -> dict[str, str]:
        """References to the outputs of an earlier layer of the same cluster, or to what an existing cluster has."""
        existing = self.plan.existing
        if existing and existing.cluster:
            return self.outputs_of_existing(existing.cluster, existing.model_volume or "")
        state = backends.remote(self, self.plan.settings.backend, self.plan.key(layer))
        state.override_logical_id(layer)
        state.add_override(
            "lifecycle", {"postcondition": [self.belongs("self.outputs.cluster_name")]}
        )
        return {
            name: Reference(f"${{data.terraform_remote_state.{layer}.outputs.{name}}}")
            for name in OUTPUTS
        }

    def outputs_of_existing(self, name: str, model_volume: str) -> dict[str, str]:
        """The same for a cluster that these stacks did not make, read from the cloud."""
        self.cloud_provider()
        if self.plan.cluster.provider == "EKS":
            found = builder.data(self, "aws_eks_cluster", "existing", name=name)
            endpoint, ca = found["endpoint"], found["certificate_authority[0].data"]
        else:
            place = {"project": self.plan.project, "location": self.plan.cluster.region}
            found = builder.data(self, "google_container_cluster", "existing", name=name, **place)
            endpoint = self.gke_server(found)
            ca = found["master_auth[0].cluster_ca_certificate"]
        values = {
            "cluster_name": name,
            "cluster_endpoint": endpoint,
            "cluster_ca": ca,
            "model_volume": model_volume,
        }
        return {key: Reference(value) for key, value in values.items()}

    def gke_server(self, cluster: builder.Element) -> str:
        """Where a GKE cluster's API is reached: by its name under Google's certificate, or by its address."""
        by_name = self.plan.settings.access.dns_endpoint
        path = "control_plane_endpoints_config[0].dns_endpoint_config[0].endpoint"
        return f"https://{cluster[path if by_name else 'endpoint']}"

    def kubernetes_providers(self, outputs: Mapping[str, str], *, helm: bool) -> None:
        """Helm and Kubernetes providers for a cluster that exists already: never one made in the same
        apply.
        """
        access: dict[str, object] = {
            "host": outputs["cluster_endpoint"],
            **self.credentials(outputs["cluster_name"]),
        }
        if self.plan.cluster.provider == "EKS" or not self.plan.settings.access.dns_endpoint:
            ca = outputs["cluster_ca"][2:-1]
            access["cluster_ca_certificate"] = f"${{base64decode({ca})}}"
        if helm:
            builder.provider(
                self, "helm", version=self.plan.provider_version("helm"), kubernetes=access
            )
        if "exec" in access:
            access = {**access, "exec": [access["exec"]]}
        builder.provider(
            self, "kubernetes", version=self.plan.provider_version("kubernetes"), **access
        )

    def credentials(self, cluster: str) -> dict[str, object]:
        """The cloud's token (15 minutes on EKS, an hour on GKE), or `mpctl credential`, which renews it on demand."""
        plan = self.plan
        if plan.settings.credentials == "mpctl":
            return {
                "exec": {
                    "api_version": "client.authentication.k8s.io/v1",
                    "command": "mpctl",
                    "args": ["credential", plan.address],
                }
            }
        self.cloud_provider()
        if plan.cluster.provider == "EKS":
            return {
                "token": builder.data(self, "aws_eks_cluster_auth", "main", name=cluster)["token"]
            }
        return {"token": builder.data(self, "google_client_config", "main")["access_token"]}


def labels(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags as Google labels: lower case, no blanks, at most 63 characters."""
    return {
        key.lower(): "".join(c if c.isalnum() or c in "-_" else "-" for c in value.lower())[:63]
        for key, value in tags.items()
    }
