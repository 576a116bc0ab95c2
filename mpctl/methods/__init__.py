"""The methods of speculative decoding and their rules: configuration, needs, engine versions, static preflight.

Pure values and functions: a method name and settings go in, a :class:`Spec` and findings come out. The one exception
is :func:`engine_opinion`, which asks an installed vLLM and is imported by nobody on the way of a plain command.
"""

from __future__ import annotations

from mpctl.methods.build import build, parse_config
from mpctl.methods.keys import KEYS
from mpctl.methods.method import Floor, Method
from mpctl.methods.preflight.facts import DraftKind, Facts
from mpctl.methods.preflight.findings import SEVERITIES, Finding, Severity
from mpctl.methods.preflight.rule import Rule
from mpctl.methods.preflight.run import RULES, asks_for, preflight_findings, unknowns
from mpctl.methods.spec import Json, Spec, from_config
from mpctl.methods.table import METHODS, UNMANAGED
from mpctl.methods.validate import Opinion, engine_opinion
from mpctl.methods.version_limits import REMOVED, Removed, removed_flags
from mpctl.methods.versions import Version, parse_version

__all__ = [
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
    "asks_for",
    "build",
    "engine_opinion",
    "from_config",
    "parse_config",
    "parse_version",
    "preflight_findings",
    "removed_flags",
    "unknowns",
]
