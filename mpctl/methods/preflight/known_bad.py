"""Combinations of method, model, feature and release that are known to fail: a dated file of rows, and its findings.

A new fault upstream is one row of ``known_bad.yaml``. A row refuses only where its confidence is high, the engine lies
between the first and the last release that are known to fail, by their source or by the thread, and nothing depends on
what requests ask for or on a default of the engine. Everything else inside the range warns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Literal, cast, get_args

from mpctl.methods.keys import is_int
from mpctl.methods.preflight.engine_rules import PIPELINE, config_text, flag_value, runs_on_v2
from mpctl.methods.preflight.preflight_rule import Finding, ServiceFacts, Severity, ordered
from mpctl.methods.spec import Spec
from mpctl.methods.table import METHODS
from mpctl.methods.versions import ASCEND, Version, parse_version, show
from mpctl.yaml_lines import Node, document

# How sure a feature is in use: "default" where the engine chooses, and the choice depends on model and release.
FeatureUse = Literal["on", "default", "off"]
Feature = Callable[[Spec, ServiceFacts], FeatureUse]
PREFIX = "known-bad-"  # of a finding, before the id of its row
# The releases' source was read, the thread names the release, only the date of a merge is known, or nothing.
Evidence = Literal["source", "thread", "merge-date", "unknown"]
_OWN_ENGINE = "vllm"
_TODO = "use another method, or an engine release outside the range"


def _use(condition: object) -> FeatureUse:
    return "on" if condition else "off"


def _flag(text: str) -> Feature:
    """A flag that is set, or has a value: ``--flag``, or ``--flag VALUE``."""
    name, _, wanted = text.partition(" ")

    def use(_spec: Spec, facts: ServiceFacts) -> FeatureUse:
        value = flag_value(facts, name)
        return _use(value is not None and wanted in ("", value))

    return use


def _text(*flags: str) -> Callable[[str], Feature]:
    """A flag whose value, or one of whose keys, matches the argument; an empty one: any value."""

    def feature(pattern: str) -> Feature:
        return lambda _spec, facts: _use(
            any(
                re.search(pattern, text, re.IGNORECASE)
                for flag in flags
                if (text := config_text(facts, flag))
            )
        )

    return feature


def _prefix_caching(_: str) -> Feature:
    """Ask for the layers: whether models with recurrent ones cache prefixes depends on the release, so their layers
    must be known."""

    def feature(_spec: Spec, facts: ServiceFacts) -> FeatureUse:
        if facts.prefix_caching is False:
            return "off"
        is_set = flag_value(facts, "--enable-prefix-caching") is not None
        return "on" if is_set or facts.target.recurrent is not None else "default"

    return feature


def _runner(name: str) -> Feature:
    """Model Runner ``v1`` or ``v2``, as :func:`runs_on_v2` tells it."""

    def feature(spec: Spec, facts: ServiceFacts) -> FeatureUse:
        v2 = runs_on_v2(spec, facts)
        return "default" if v2 is None else _use(v2 is (name == "v2"))

    return feature


def _kv_offload(_: str) -> Feature:
    connector, size = _text("--kv-transfer-config")("Offloading"), _flag("--kv-offloading-size")
    return lambda spec, facts: _use("on" in (connector(spec, facts), size(spec, facts)))


def _kv_dtype(pattern: str) -> Feature:
    return lambda _spec, facts: _use(re.search(pattern, facts.kv_cache_dtype or ""))


def _parallel(*flags: str) -> Callable[[str], Feature]:
    """The size of the argument; without one any above 1."""

    def feature(wanted: str) -> Feature:
        def use(_spec: Spec, facts: ServiceFacts) -> FeatureUse:
            size = flag_value(facts, *flags) or "1"
            return _use(size == wanted if wanted else size != "1")

        return use

    return feature


def _short_lookup(below: str) -> Feature:
    def feature(spec: Spec, _facts: ServiceFacts) -> FeatureUse:
        least = spec.settings.get("prompt_lookup_min")
        return _use(not is_int(least) or least < int(below))

    return feature


def _short_draft(_: str) -> Feature:
    return lambda _spec, facts: _use(
        None not in (facts.served_context, facts.draft.context)
        and (facts.draft.context or 0) < (facts.served_context or 0)
    )


def _setting(text: str) -> Feature:
    key, _, value = text.partition(":")
    return lambda spec, _facts: _use(str(spec.settings.get(key)) == value)


def _gpu(pattern: str) -> Feature:
    return lambda _spec, facts: _use(re.match(pattern, facts.gpu or "", re.IGNORECASE))


# A feature of a row is one of these names, or NAME=ARGUMENT.
FEATURES: Mapping[str, Callable[[str], Feature]] = MappingProxyType({
    "data-parallel": _parallel("--data-parallel-size", "-dp"),
    "draft-context-shorter": _short_draft,
    "flag": _flag,
    "gpu": _gpu,
    "k-from": lambda least: lambda spec, _facts: _use((spec.k or 0) >= int(least)),
    "kv-connector": _text("--kv-transfer-config"),
    "kv-dtype": _kv_dtype,
    "kv-offload": _kv_offload,
    "lookup-min-below": _short_lookup,
    "moe": lambda _: lambda _spec, facts: (
        "default" if facts.target.moe is None else _use(facts.target.moe)
    ),
    "pipeline-parallel": _parallel(*PIPELINE),
    # The pods that fill prompts get the same draft.
    "prefill-edited": lambda _: lambda _spec, facts: _use(bool(facts.prefill_ends)),
    "prefix-caching": _prefix_caching,
    "reasoning": _text("--reasoning-parser"),
    "runner": _runner,
    "setting": _setting,
    "structured-outputs-backend": _text("--structured-outputs-config", "--guided-decoding-backend"),
    "tensor-parallel": _parallel("--tensor-parallel-size", "-tp"),
    "tools": _text("--tool-call-parser"),
})  # fmt: skip


_BY = {
    "thread": "by its thread",
    "merge-date": "by the date of the merge",
    "unknown": "release unknown",
}


@dataclass(frozen=True)
class KnownBadRow:
    """A combination that fails. Empty ``methods`` or ``models``: every one."""

    id: str
    engine: str
    methods: tuple[str, ...]
    models: tuple[str, ...]  # keys of the file's patterns
    features: tuple[str, ...]  # of FEATURES; all of them are in use
    unless: tuple[str, ...]  # features of which any one keeps the fault away
    requests: str  # what requests ask for when it fails, empty for any request
    first: Version | None  # first release that was seen to fail
    seen: Version | None  # last release that was seen to fail
    fixed: Version | None
    established: Evidence  # how the end of the range was found
    effect: str
    history: str  # both ends of the range as the thread says it
    thread: str
    confidence: str
    todo: str

    @property
    def releases(self) -> str:
        """The range in words, such as ``0.18.1 to 0.28.0, fixed by 0.32.0``."""
        first = show(self.first) if self.first else "an unknown release"
        newest = f" to {show(self.seen)}" if self.seen and self.seen != self.first else ""
        if self.fixed is None:
            return f"{first}{newest}, no release known with a fix"
        how = "" if self.established == "source" else f" ({_BY[self.established]})"
        return f"{first}{newest}, fixed in {show(self.fixed)}{how}"


@dataclass(frozen=True)
class KnownBad:
    """The rows of one file, with its date and where it comes from."""

    date: str
    source: str
    models: Mapping[str, str]
    rows: tuple[KnownBadRow, ...]
    file: str

    def findings(self, spec: Spec, facts: ServiceFacts) -> tuple[Finding, ...]:
        """The rows that a spec on this service falls into; those of every release where the engine's is unknown."""
        version = parse_version(facts.engine_version)
        if spec.is_none:
            return ()
        rated = ((row, self._severity(row, spec, facts, version)) for row in self.rows)
        return ordered(
            self._finding(row, severity, version) for row, severity in rated if severity is not None
        )

    def unchecked(self, spec: Spec, facts: ServiceFacts) -> tuple[str, ...]:
        """A line when rows could not be judged, with the facts they lack."""
        if spec.is_none:
            return ()
        names = ("target.family", "target.name")
        missing = ["engine_version"] if parse_version(facts.engine_version) is None else []
        missing += ["target.family"] if all(facts.value(name) is None for name in names) else []
        rows = (row for row in self.rows if not row.methods or spec.method in row.methods)
        if facts.gpu is None and any(
            feature.startswith("gpu=") for row in rows for feature in row.features
        ):
            missing.append("gpu")
        return (f"known-bad: checked in part, unknown: {', '.join(missing)}",) if missing else ()

    def _severity(
        self, row: KnownBadRow, spec: Spec, facts: ServiceFacts, version: Version | None
    ) -> Severity | None:
        """Return how much a row says against the spec; None outside of it."""
        engine = ASCEND if ASCEND in (facts.engine_version or "") else _OWN_ENGINE
        if row.engine != engine or (row.methods and spec.method not in row.methods):
            return None
        older = version is not None and row.first and version < row.first
        if older or (version is not None and row.fixed and version >= row.fixed):
            return None
        if row.models and not any(self._is_model(name, facts) for name in row.models):
            return None
        uses = [_feature(text)(spec, facts) for text in row.features]
        unspecific = not (row.models or row.features)
        if "off" in uses or (row.requests and unspecific):
            return None
        if any(_feature(text)(spec, facts) == "on" for text in row.unless):
            return None
        reported = (
            row.first is not None
            and row.seen is not None
            and version is not None
            and version <= row.seen
        )
        reported = reported and row.established in ("source", "thread")
        sure = row.confidence == "high" and reported and "default" not in uses and not row.requests
        return "refuse" if sure else "warn"

    def _is_model(self, name: str, facts: ServiceFacts) -> bool:
        """Return whether the target is of a class: by its layers, else by its type, else by its name."""
        recurrent = _RECURRENT.get(name)
        if recurrent and facts.target.recurrent not in (None, recurrent):
            return False
        if recurrent == name == facts.target.recurrent:
            return True
        described = facts.target.family or facts.target.name
        return (
            described is not None
            and re.search(self.models[name], described, re.IGNORECASE) is not None
        )

    def _finding(self, row: KnownBadRow, severity: Severity, version: Version | None) -> Finding:
        when = f" when requests bring {row.requests}" if row.requests else ""
        reason = f"the engine's release is unknown; fails in {row.releases}{when}: {row.effect}"
        if version is not None:
            reason = (
                f"known to fail{when} ({row.releases}; the engine is {show(version)}): {row.effect}"
            )
        return Finding(
            f"{PREFIX}{row.id}",
            severity,
            reason,
            f"{row.thread}; {self.file} of {self.date}",
            row.todo,
        )


# Classes that are recognised by the layers of config.json; a model of the same name by these alone.
_RECURRENT = {"gdn": "gdn", "mamba2": "mamba2", "zamba": "mamba2"}


def _feature(text: str) -> Feature:
    name, _, argument = text.partition("=")
    return FEATURES[name](argument)


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
    repeated = next(
        (row.id for row in rows if [other.id for other in rows].count(row.id) > 1), None
    )
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
        id=node.text(
            "id", pattern=r"[a-z0-9][a-z0-9-]*", what="an id of lower-case letters and digits"
        ),
        engine=node.text("engine", _OWN_ENGINE),
        methods=_names(node, "methods", tuple(METHODS)),
        models=_names(node, "models", tuple(models)),
        features=_features(node, "features"),
        unless=_features(node, "unless"),
        requests=node.text("requests", ""),
        first=_release(node, "from"),
        seen=_release(node, "seen"),
        fixed=_release(node, "fixed"),
        established=cast(Evidence, node.choice("established", get_args(Evidence), "unknown")),
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


def _features(node: Node, field: str) -> tuple[str, ...]:
    names = node.texts(field)
    for index, text in enumerate(names):
        name, _, argument = text.partition("=")
        if name not in FEATURES:
            raise node.item_error(field, index, f"{name!r} is not one of {', '.join(FEATURES)}")
        try:
            re.compile(argument)
            FEATURES[name](argument)(Spec("none"), ServiceFacts())
        except (re.error, ValueError) as error:
            raise node.item_error(field, index, f"{argument!r} cannot be used: {error}") from error
    return names


def _release(node: Node, field: str) -> Version | None:
    text = node.maybe(field)
    version = parse_version(text)
    if text is not None and version is None:
        raise node.error(field, f"{text!r} is no release such as 0.28.0")
    return version
