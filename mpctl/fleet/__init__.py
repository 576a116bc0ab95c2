"""The fleet as values: which clusters exist and which GPU nodes they are made of, read from Modelplane
manifests.
"""

from mpctl.fleet.reader import read_fleet
from mpctl.fleet.values import Device, Fleet, InferenceClass, InferenceCluster, NodePool, Taint

__all__ = [
    "Device",
    "Fleet",
    "InferenceClass",
    "InferenceCluster",
    "NodePool",
    "Taint",
    "read_fleet",
]
