"""The methods of speculative decoding and their rules: configuration, needs, engine versions, static preflight.

Pure values and functions: a method name and settings go in, a :class:`Spec` and findings come out. The one exception
is :func:`engine_opinion`, which asks an installed vLLM and is imported by nobody on the way of a plain command.
"""

from __future__ import annotations

from mpctl.speculation.build import build, parse_config
from mpctl.speculation.facts import DraftKind, Facts
from mpctl.speculation.findings import SEVERITIES, Finding, Severity
from mpctl.speculation.keys import KEYS
from mpctl.speculation.methods import METHODS, UNMANAGED, Method
from mpctl.speculation.preflight import RULES, preflight, unknowns
from mpctl.speculation.removed import FLOORS, REMOVED, Floor, Removed, removed_flags
from mpctl.speculation.rule import Rule
from mpctl.speculation.spec import Json, Spec, from_config
from mpctl.speculation.validate import Opinion, engine_opinion
from mpctl.speculation.versions import Version, parse_version

__all__ = [
    "FLOORS",
    "KEYS",
    "METHODS",
    "REMOVED",
    "RULES",
    "SEVERITIES",
    "UNMANAGED",
    "DraftKind",
    "Facts",
    "Finding",
    "Floor",
    "Json",
    "Method",
    "Opinion",
    "Removed",
    "Rule",
    "Severity",
    "Spec",
    "Version",
    "build",
    "engine_opinion",
    "from_config",
    "parse_config",
    "parse_version",
    "preflight",
    "removed_flags",
    "unknowns",
]
