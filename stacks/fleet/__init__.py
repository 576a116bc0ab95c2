"""The fleet as values: which clusters exist and which GPU nodes they are made of, read from Modelplane
manifests.
"""

from stacks.fleet.reader import read_fleet
from stacks.fleet.values import Device, Fleet, InferenceClass, InferenceCluster, NodePool, Taint

__all__ = [
    "Device",
    "Fleet",
    "InferenceClass",
    "InferenceCluster",
    "NodePool",
    "Taint",
    "read_fleet",
]
