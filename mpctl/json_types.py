"""Types of what is read from JSON and YAML: objects of Kubernetes, manifests, records. Their fields are not checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
JsonView = Mapping[str, Any]  # read and never changed
