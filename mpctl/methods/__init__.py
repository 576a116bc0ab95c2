"""The methods of speculative decoding and their rules: configuration, needs, engine versions, static preflight.

Pure values and functions: a method name and settings go in, a :class:`Spec` and findings come out.
"""

from __future__ import annotations

from mpctl.methods.build_spec import build, parse_config
from mpctl.methods.preflight.preflight_rule import CheckpointFacts, Finding, ServiceFacts
from mpctl.methods.spec import Spec, from_config, spec_text
from mpctl.methods.table import METHODS
from mpctl.methods.versions import parse_version

__all__ = [
    "METHODS",
    "CheckpointFacts",
    "Finding",
    "ServiceFacts",
    "Spec",
    "build",
    "from_config",
    "parse_config",
    "parse_version",
    "spec_text",
]
