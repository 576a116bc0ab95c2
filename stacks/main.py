"""The CDKTF app: `cdktf synth|list|diff|deploy` run this file (see cdktf.json).

Environment variables, all optional:

    MPCTL_ENV          which file of environments/ to use, without .yaml                      dev
    MPCTL_FLEET        a fleet manifest or a folder of them                                   manifests/fleet
    MPCTL_CLUSTER      only the clusters with these names, separated by commas                all
    MPCTL_LAYERS       cluster, platform, serving or all; overrides the environment's layers
    MPCTL_PUBLIC_CIDRS who reaches the Kubernetes API from outside; the dev environment asks for it
    MPCTL_GCP_PROJECT  the Google project, before the environment's and the manifest's
    MPCTL_CDK_CORE     cdktf or cdktn

One layer of one cluster is one stack, so plain `cdktf deploy` needs no stack name when one fleet manifest
is chosen.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra import core
from mpctl.errors import InputError, MpctlError
from stacks.base import Plan, Stack
from stacks.cluster import EksCluster, GkeCluster
from stacks.fleet import Fleet, InferenceCluster, read_fleet
from stacks.machines import limited_services, require_capacity, require_machines
from stacks.platform import Platform
from stacks.serving import Serving, require_one_node
from stacks.settings import LAYERS, Budget, Settings, read_settings
from stacks.versions import require_minor, table

ROOT = Path(__file__).resolve().parent.parent
CHANNELS = 5  # of one budget (Cloud Billing, "Budget notification channels")
LONGEST_NAME = 40
UNDER_CDKTF = "CDKTF_CONTEXT_JSON"  # set by cdktf-cli, which shows what the app prints
PLACEHOLDER = "my-gcp-project"  # what the published manifests carry


def load_settings(environ: Mapping[str, str], root: Path = ROOT) -> Settings:
    """The environment's settings file."""
    name = environ.get("MPCTL_ENV", "dev")
    path = Path(name) if name.endswith(".yaml") else root / "environments" / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in (root / "environments").glob("*.yaml")))
        raise InputError(
            f"no environment {name}",
            file=shown(path, root),
            hint=f"MPCTL_ENV is one of {known}, or a path to a .yaml file",
        )
    return read_settings(path.read_text("utf-8"), shown(path, root), environ)


def load_fleet(environ: Mapping[str, str], root: Path = ROOT) -> Fleet:
    """The fleet manifests."""
    given = environ.get("MPCTL_FLEET", "manifests/fleet")
    path = root / given
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise InputError(
            "no fleet manifests", file=given, hint="MPCTL_FLEET is a manifest or a folder of them"
        )
    return read_fleet([(shown(file, root), file.read_text("utf-8")) for file in files])


def shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def wanted_layers(environ: Mapping[str, str], settings: Settings) -> tuple[str, ...]:
    """The layers to build, in the order they depend on one another."""
    given = environ.get("MPCTL_LAYERS", "")
    names = given.split(",") if given else list(settings.layers)
    if names == ["all"]:
        return LAYERS
    for name in names:
        if name not in LAYERS:
            raise InputError(
                f"{name!r} is not one of {', '.join(LAYERS)} or all", field="MPCTL_LAYERS"
            )
    return tuple(layer for layer in LAYERS if layer in names)


def wanted_clusters(environ: Mapping[str, str], fleet: Fleet) -> list[InferenceCluster]:
    given = [name for name in environ.get("MPCTL_CLUSTER", "").split(",") if name]
    known = {cluster.name: cluster for cluster in fleet.clusters}
    for name in given:
        if name not in known:
            raise InputError(
                f"no InferenceCluster named {name}",
                field="MPCTL_CLUSTER",
                hint=f"there are {', '.join(known)}",
            )
    return [known[name] for name in given] if given else list(fleet.clusters)


def project_of(
    cluster: InferenceCluster, settings: Settings, environ: Mapping[str, str]
) -> str | None:
    """The Google project: environment variable, settings, manifest; the published placeholder does not
    count.
    """
    if cluster.provider != "GKE":
        return None
    project = environ.get("MPCTL_GCP_PROJECT") or settings.gcp_project or cluster.project
    if not project or project == PLACEHOLDER:
        raise cluster.place.error(
            "no Google project given",
            "spec.cluster.gke.project",
            "set gcp.project in the environment, or MPCTL_GCP_PROJECT",
        )
    return project


def plans(
    environ: Mapping[str, str], settings: Settings, fleet: Fleet, today: dt.date
) -> list[Plan]:
    """Everything checked, nothing constructed."""
    layers = wanted_layers(environ, settings)
    require_one_node(settings)
    made = []
    for cluster in wanted_clusters(environ, fleet):
        minor = table().minor(
            cluster.provider, cluster.version or settings.versions.get(cluster.provider)
        )
        verdict = require_minor(cluster.provider, minor, today, extended=settings.extended_support)
        if "plan the upgrade" in verdict.reason:
            sys.stderr.write(f"warning: {cluster.name}: {verdict.reason}\n")
        for pool in cluster.pools:
            if cluster.provider == "EKS" and pool.minimum < 1:
                raise pool.place.error(
                    "a pool on EKS cannot start from zero nodes: no node, no ResourceSlice, no scale-up",
                    "minNodeCount",
                    "set minNodeCount: 1",
                )
        require_partition(cluster)
        require_machines(cluster)
        require_capacity(settings, cluster)
        limited_services(settings, cluster)
        require_way_out(cluster, settings, layers)
        if (
            settings.eks_image
            and cluster.provider == "EKS"
            and not settings.eks_image.startswith(f"{minor}.")
        ):
            raise cluster.place.error(
                f"{cluster.name} runs Kubernetes {minor}, and gpu.eks_image is {settings.eks_image}",
                "gpu.eks_image",
                f"set a release of {minor}, or remove it for the newest at every plan",
            )
        if settings.budget and cluster.provider == "GKE":
            require_billing(cluster, settings.budget)
        plan = Plan(settings, cluster, table(), minor, project_of(cluster, settings, environ))
        require_short_name(plan)
        require_existing(plan)
        made.append(plan)
    return made


def require_short_name(plan: Plan) -> None:
    """GKE takes 40 characters (Google's reference of ``projects.locations.clusters``)."""
    if len(plan.name) > LONGEST_NAME:
        raise plan.cluster.place.error(
            f"the cluster would be called {plan.name}, longer than {LONGEST_NAME} characters",
            "metadata.name",
            "shorten it, or the name of the environment",
        )


def own_layers(plan: Plan, layers: Sequence[str]) -> list[str]:
    """The layers without the cluster's where the cluster exists.

    Raises:
        InputError: nothing would be left to deploy.
    """
    if not (plan.existing and plan.existing.cluster):
        return list(layers)
    own = [layer for layer in layers if layer != "cluster"]
    if not own:
        raise plan.existing.place.error(
            f"{plan.existing.cluster} exists already, so {plan.cluster.name} has no cluster layer",
            f"existing.{plan.cluster.name}.cluster",
            "deploy MPCTL_LAYERS=platform, then MPCTL_LAYERS=serving",
        )
    return own


def require_existing(plan: Plan) -> None:
    """Refuse what exists on the other cloud, and an existing cluster without a volume for shared models."""
    existing, eks = plan.existing, plan.cluster.provider == "EKS"
    if existing is None:
        return
    field = f"existing.{plan.cluster.name}"
    if (existing.google and eks) or (existing.aws and not eks):
        raise existing.place.error(
            f"{plan.cluster.name} is on {plan.cluster.provider}",
            field,
            "set vpc on EKS, network on GKE",
        )
    if existing.cluster and plan.settings.shared_models and not existing.model_volume:
        wanted = "an EFS file system (fs-...)" if eks else "the name of the network"
        raise existing.place.error(
            "shared models need a volume",
            f"{field}.model_volume",
            f"set {wanted}, or serving.shared_models: false",
        )


def require_partition(cluster: InferenceCluster) -> None:
    """Policies here name resources of the commercial partition; in another one they would match nothing."""
    if cluster.provider == "EKS" and cluster.region.startswith(("us-gov-", "cn-", "us-iso")):
        raise cluster.place.error(
            f"{cluster.region} is of another AWS partition (GovCloud, China), which is not set up",
            "spec.cluster.eks.region",
            "choose a commercial region",
        )


def require_way_out(cluster: InferenceCluster, settings: Settings, layers: Sequence[str]) -> None:
    """Charts and their images come from public registries, which a network without a way out never reaches."""
    if settings.network.egress != "endpoints" or not {"platform", "serving"} & set(layers):
        return
    if cluster.provider == "GKE":
        raise settings.network.place.error(
            f"endpoints exist on EKS only; {cluster.name} is on GKE and could pull no image of the charts",
            "network.egress",
            "set egress: nat",
        )
    if missing := settings.mirror.missing():
        raise settings.network.place.error(
            f"{cluster.name} has no way to the public registries of charts and images: {', '.join(missing)}",
            "network.egress",
            "set mirror.registries for each of them and mirror.charts, or egress: nat",
        )
    for service in settings.services:
        for artifact in service.artifacts:
            if artifact.scheme in ("hf", "gs"):
                raise service.place.error(
                    f"{cluster.name} has no way to {artifact.uri}",
                    "uri",
                    "copy the model to s3:// or into an image (oci+native://), or set egress: nat",
                )


def require_billing(cluster: InferenceCluster, budget: Budget) -> None:
    """Require the settings without which a budget on Google Cloud cannot be created."""
    if not budget.billing_account:
        raise budget.place.error(
            f"a budget on Google Cloud belongs to a billing account, and {cluster.name} is on GKE",
            "budget.billing_account",
            "gcloud billing accounts list",
        )
    if len(budget.emails) > CHANNELS:
        raise budget.place.error(
            f"{len(budget.emails)} addresses: a budget on Google Cloud notifies at most {CHANNELS}",
            "budget.emails",
        )


def build(app: core.App, plan: Plan, layers: Sequence[str]) -> list[Stack]:
    """The stacks of one cluster, each depending on the one before."""
    kinds: dict[str, type[EksCluster] | type[GkeCluster] | type[Platform] | type[Serving]] = {
        "cluster": EksCluster if plan.cluster.provider == "EKS" else GkeCluster,
        "platform": Platform,
        "serving": Serving,
    }
    made: list[Stack] = []
    for layer in layers:
        stack = kinds[layer](app, plan)
        if made:
            stack.add_dependency(made[-1])
        made.append(stack)
    return made


def told(error: MpctlError) -> int:
    """The exit code of *error*, which is written with its hint."""
    hint = f"\nhint: {error.hint}" if error.hint else ""
    sys.stderr.write(f"error: {error.message}{hint}\n")
    return error.exit_code


def choice(stacks: Sequence[str], clusters: Sequence[str]) -> str:
    """What to name where `cdktf deploy` finds several stacks, of which it deploys none by itself."""
    commands = "".join(f"  cdktf deploy {stack}\n" for stack in stacks)
    settings = ", ".join(f"MPCTL_CLUSTER={name}" for name in clusters)
    return (
        f"{len(stacks)} stacks. Name one, each layer after the one it needs:\n{commands}"
        f"or set MPCTL_LAYERS to one layer, and one of {settings}\n"
    )


def main(environ: Mapping[str, str] = os.environ) -> int:
    try:
        settings = load_settings(environ)
        layers = wanted_layers(environ, settings)
        todo = plans(environ, settings, load_fleet(environ), dt.date.today())
        app = core.App()
        stacks = [stack for plan in todo for stack in build(app, plan, own_layers(plan, layers))]
        app.synth()
    except MpctlError as error:
        return told(error)
    if len(stacks) > 1 and UNDER_CDKTF in environ:
        names = [stack.node.id for stack in stacks]
        sys.stdout.write(choice(names, [plan.cluster.name for plan in todo]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
