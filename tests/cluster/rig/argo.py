"""Argo Rollouts' own analysis controller against the rig's API server, with the definitions of the release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .binaries import Program, Recipe, find
from .kserve import documents

if TYPE_CHECKING:
    from .cluster import Cluster

_ARGO = "github.com/argoproj/argo-rollouts"
_NAME = "rollouts-controller"
RECIPE = Recipe(
    ("argo",),
    (Program(_NAME, "argo", f"{_ARGO}/cmd/{_NAME}", build_s=240),),
    {"argo-crds": (_ARGO, "manifests/crds")},
    "argo",
)


def start(cluster: Cluster) -> None:
    """Start the controller of AnalysisRuns; it ends with the cluster."""
    assets = find(RECIPE)
    cluster.kserve.define(documents(assets, "argo-crds"))
    ports = [f"--metricsPort={cluster.slot.port(3)}", f"--healthzPort={cluster.slot.port(4)}"]
    analysis = ["--controllers=analysis", "--leader-elect=false", *ports]
    cluster.processes.start(_NAME, [assets[_NAME], f"--kubeconfig={cluster.kubeconfig}", *analysis])
