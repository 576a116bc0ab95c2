"""Combinations of method, model, feature and release that are known to fail: a dated file of rows, and its findings.

A new fault upstream is one row of ``known_bad.yaml``. A row refuses only where its confidence is high, the engine lies
between the first and the last release in which the fault was seen, and nothing depends on what requests ask for.
Everything else inside the range warns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Literal

from mpctl.methods.keys import is_int
from mpctl.methods.preflight.engine_rules import flag_value
from mpctl.methods.preflight.preflight_rule import Finding, ServiceFacts, Severity, ordered
from mpctl.methods.spec import Spec
from mpctl.methods.table import METHODS
from mpctl.methods.versions import Version, parse_version, show
from mpctl.yaml_lines import Node, document

# How sure a feature is in use: "default" where the engine chooses, and the choice depends on model and release.
FeatureUse = Literal["on", "default", "off"]
Feature = Callable[[Spec, ServiceFacts], FeatureUse]
_OWN_ENGINE = "vllm"
_TODO = "use another method, or an engine release outside the range"


def _flag(name: str, pattern: str = "") -> Feature:
    """A flag of the engine whose value holds a pattern."""
    return lambda _spec, facts: _use(re.search(pattern, flag_value(facts, name) or "") and _has(facts, name))


def _use(condition: object) -> FeatureUse:
    return "on" if condition else "off"


def _has(facts: ServiceFacts, name: str) -> bool:
    return flag_value(facts, name) is not None


def _prefix_caching(_spec: Spec, facts: ServiceFacts) -> FeatureUse:
    """Hybrid models cache prefixes by default in some releases only."""
    if facts.prefix_caching is False:
        return "off"
    return "on" if _has(facts, "--enable-prefix-caching") else "default"


def _pipeline_parallel(_spec: Spec, facts: ServiceFacts) -> FeatureUse:
    return _use((flag_value(facts, "--pipeline-parallel-size") or flag_value(facts, "-pp") or "1") != "1")


def _kv_dtype(pattern: str) -> Feature:
    return lambda _spec, facts: _use(re.search(pattern, facts.kv_cache_dtype or ""))


def _kv_transfer(pattern: str) -> Feature:
    return _flag("--kv-transfer-config", pattern)


def _kv_offload(spec: Spec, facts: ServiceFacts) -> FeatureUse:
    return _use("on" in (_kv_transfer("Offloading")(spec, facts), _flag("--kv-offloading-size")(spec, facts)))


def _long_drafts(spec: Spec, _facts: ServiceFacts) -> FeatureUse:
    return _use((spec.k or 0) >= 3)


def _short_lookup(spec: Spec, _facts: ServiceFacts) -> FeatureUse:
    least = spec.settings.get("prompt_lookup_min")
    return _use(not is_int(least) or least < 8)


def _short_draft(_spec: Spec, facts: ServiceFacts) -> FeatureUse:
    served, context = facts.served_context, facts.draft_context
    return _use(served is not None and context is not None and context < served)


FEATURES: Mapping[str, Feature] = MappingProxyType({
    "backend-guidance": _flag("--structured-outputs-config", "guidance"),
    "draft-context-shorter": _short_draft,
    "k-from-3": _long_drafts,
    "kv-connector": _kv_transfer(""),
    "kv-fp8": _kv_dtype("^fp8"),
    "kv-fp8-e5m2": _kv_dtype("^fp8_e5m2$"),
    "kv-offload": _kv_offload,
    "kv-turboquant": _kv_dtype("^turboquant"),
    "lmcache": _kv_transfer("(?i)lmcache"),
    "lookup-min-below-8": _short_lookup,
    "nixl": _kv_transfer("(?i)nixl"),
    "no-async-scheduling": _flag("--no-async-scheduling"),
    "parser-deepseek-r1": _flag("--reasoning-parser", "deepseek_r1"),
    "parser-hermes": _flag("--tool-call-parser", "hermes"),
    "parser-qwen3-coder": _flag("--tool-call-parser", "qwen3_(coder|xml)"),
    "pipeline-parallel": _pipeline_parallel,
    "prefix-caching": _prefix_caching,
    "probabilistic": lambda spec, _: _use(spec.settings.get("draft_sample_method") == "probabilistic"),
    "reasoning": _flag("--reasoning-parser"),
    "sleep": _flag("--enable-sleep-mode"),
    "tools": _flag("--tool-call-parser"),
})  # fmt: skip


@dataclass(frozen=True)
class KnownBadRow:
    """One combination that fails. Empty ``methods`` or ``models``: every one."""

    id: str
    engine: str
    methods: tuple[str, ...]
    models: tuple[str, ...]  # keys of the file's patterns
    features: tuple[str, ...]  # keys of FEATURES; all of them are in use
    requests: str  # what requests ask for when it fails, empty for any request
    first: Version | None  # first release that was seen to fail
    seen: Version | None  # last release that was seen to fail
    fixed: Version | None
    effect: str
    history: str  # both ends of the range as the thread says it
    thread: str
    confidence: str
    todo: str

    @property
    def releases(self) -> str:
        """The range in words, such as ``0.18.1 to 0.28.0, fixed by 0.32.0``."""
        first = show(self.first) if self.first else "unknown"
        newest = f" to {show(self.seen)}" if self.seen and self.seen != self.first else ""
        return f"{first}{newest}, {f'fixed by {show(self.fixed)}' if self.fixed else 'no release known with a fix'}"


@dataclass(frozen=True)
class KnownBad:
    """The rows of one file, with its date and where it comes from."""

    date: str
    source: str
    models: Mapping[str, str]
    rows: tuple[KnownBadRow, ...]
    file: str

    def findings(self, spec: Spec, facts: ServiceFacts) -> tuple[Finding, ...]:
        """The rows that a spec on this service falls into; none where the engine's release is unknown."""
        version = parse_version(facts.engine_version)
        if spec.is_none or version is None:
            return ()
        rated = ((row, self._severity(row, spec, facts, version)) for row in self.rows)
        return ordered(self._finding(row, severity, version) for row, severity in rated if severity is not None)

    def unchecked(self, spec: Spec, facts: ServiceFacts) -> tuple[str, ...]:
        """A line when rows could not be judged, with the facts they lack."""
        if spec.is_none:
            return ()
        names = ("target_family", "target_name")
        missing = ["engine_version"] if parse_version(facts.engine_version) is None else []
        missing += ["target_family"] if all(getattr(facts, name) is None for name in names) else []
        return (f"known-bad: checked in part, unknown: {', '.join(missing)}",) if missing else ()

    def _severity(self, row: KnownBadRow, spec: Spec, facts: ServiceFacts, version: Version) -> Severity | None:
        """Return how much a row says against the spec; None outside of it."""
        if row.engine != _OWN_ENGINE or (row.methods and spec.method not in row.methods):
            return None
        if (row.first and version < row.first) or (row.fixed and version >= row.fixed):
            return None
        if row.models and not any(self._is_model(name, facts) for name in row.models):
            return None
        uses = [FEATURES[name](spec, facts) for name in row.features]
        unspecific = not (row.models or row.features)
        if "off" in uses or (row.requests and unspecific):
            return None
        reported = row.first is not None and row.seen is not None and version <= row.seen
        sure = row.confidence == "high" and reported and "default" not in uses and not row.requests
        return "refuse" if sure else "warn"

    def _is_model(self, name: str, facts: ServiceFacts) -> bool:
        words = (facts.target_family, facts.target_name)
        return any(re.search(self.models[name], word, re.IGNORECASE) for word in words if word)

    def _finding(self, row: KnownBadRow, severity: Severity, version: Version) -> Finding:
        when = f" when requests bring {row.requests}" if row.requests else ""
        reason = f"known to fail{when} ({row.releases}; the engine is {show(version)}): {row.effect}"
        return Finding(f"known-bad-{row.id}", severity, reason, f"{row.thread}; {self.file} of {self.date}", row.todo)


@cache
def shipped_known_bad() -> KnownBad:
    """The rows that come with mpctl."""
    text = (resources.files("mpctl.methods") / "known_bad.yaml").read_text(encoding="utf-8")
    return read_known_bad(text, "known_bad.yaml")


def read_known_bad(text: str, file: str) -> KnownBad:
    """The rows of a YAML file.

    Raises:
        InputError: with file, line and field of the first value that cannot be used.
    """
    node = document(text, file)
    date = node.text("date", pattern=r"\d{4}-\d\d-\d\d", what="a date such as 2026-11-23")
    source = node.text("source")
    models = node.mapping("models", _pattern)
    rows = tuple(_row(row, models) for row in node.nodes("rows"))
    node.done()
    repeated = next((row.id for row in rows if [other.id for other in rows].count(row.id) > 1), None)
    if repeated:
        raise node.error("rows", f"{repeated} is named twice")
    return KnownBad(date, source, models, rows, file)


def _pattern(node: Node, name: str) -> str:
    text = node.text(name)
    try:
        re.compile(text)
    except re.error as error:
        raise node.error(name, f"{text!r} is no regular expression: {error}") from error
    return text


def _row(node: Node, models: Mapping[str, str]) -> KnownBadRow:
    row = KnownBadRow(
        id=node.text("id", pattern=r"[a-z0-9][a-z0-9-]*", what="an id of lower-case letters and digits"),
        engine=node.text("engine", _OWN_ENGINE),
        methods=_names(node, "methods", tuple(METHODS)),
        models=_names(node, "models", tuple(models)),
        features=_names(node, "features", tuple(FEATURES)),
        requests=node.text("requests", ""),
        first=_release(node, "from"),
        seen=_release(node, "seen"),
        fixed=_release(node, "fixed"),
        effect=node.text("effect"),
        history=node.text("history", ""),
        thread=node.text("thread"),
        confidence=node.choice("confidence", ("high", "medium")),
        todo=node.text("todo", _TODO),
    )
    node.done()
    return row


def _names(node: Node, field: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    names = node.texts(field)
    for index, name in enumerate(names):
        if name not in allowed:
            raise node.item_error(field, index, f"{name!r} is not one of {', '.join(allowed)}")
    return names


def _release(node: Node, field: str) -> Version | None:
    text = node.maybe(field)
    version = parse_version(text)
    if text is not None and version is None:
        raise node.error(field, f"{text!r} is no release such as 0.28.0")
    return version
