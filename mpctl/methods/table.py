"""The methods by their names: the rows of methods.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mpctl.methods.method import Method
from mpctl.packaged import packaged_rows

METHODS: Mapping[str, Method] = MappingProxyType(
    {row.name: row for row in packaged_rows(__package__, "methods.yaml", Method)}
)

# vLLM methods we read but do not roll out: user code, and a tool that writes hidden states to disk.
UNMANAGED = frozenset({"custom_class", "extract_hidden_states"})
