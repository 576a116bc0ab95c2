"""The published schema of ``mpctl report -o json``: made from the values themselves, held against real reports.

``PYTHONPATH=.:tests/unit/support python tests/unit/report/test_report_schema.py`` renews ``docs/schema/report.json``.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from referencing import Registry
from report_samples import empty, hostile, report, several
from run_samples import make_run

from mpctl.app.bench.recorded import FinishedRun
from mpctl.app.inspect.measured import report_on
from mpctl.cli.inspect.report import render
from mpctl.cli.printer import API_VERSION
from mpctl.experiment.cell import Cell
from mpctl.experiment.run import ArmConditions, Calibration, PromptSet
from mpctl.gate.assess import judge_run
from mpctl.gate.decomposition import Decomposition
from mpctl.gate.rule import RuleResult
from mpctl.gate.verdict import Crossover
from mpctl.report import record, values
from mpctl.report.build import build_report
from mpctl.report.record import _camel_name
from mpctl.stats.confidence import Interval

FILE = Path(__file__).parents[3] / "docs" / "schema" / "report.json"
_VERDICTS = ["promote", "reject", "undecided"]
_NUMBER, _TEXT, _COUNT = {"type": ["number", "null"]}, {"type": "string"}, {"type": "integer"}


def _closed(description: str = "", **properties: Any) -> dict[str, Any]:
    made = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"description": description, **made} if description else made


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _or_null(of: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [of, {"type": "null"}]}


def made() -> dict[str, Any]:
    """The schema of the values as they are now."""
    definitions: dict[str, Any] = {}

    def of(kind: Any) -> dict[str, Any]:
        return _schema(kind, definitions)

    times = _closed(
        "``mean`` by the engine's clock where it has one, quantiles by the load client's.",
        **dict.fromkeys(("mean", "p50", "p90", "p99"), _NUMBER),
    )
    definitions["Times"] = times
    arm = inspect.getdoc(record.arm_record) or ""
    numbers = dict.fromkeys(
        (
            *(
                "tokensPerSecond",
                "requestsPerSecond",
                "queueWaitMs",
                "tokensPerStep",
                "acceptanceRate",
            ),
            *(
                "acceptanceLength",
                "coverage",
                "drafts",
                "draftTokens",
                "acceptedTokens",
                "preemptions",
            ),
        ),
        _NUMBER,
    )
    spreads = {key: {"$ref": "#/$defs/Times"} for key in ("ttftMs", "tpotMs", "e2eMs")}
    counts = dict.fromkeys(("requests", "failed", "outputTokens"), _COUNT)
    steps = _or_null({"type": "object", "additionalProperties": {"type": "number"}})
    positions = {"acceptanceByPosition": _list({"type": "number"})}
    definitions["Arm"] = _closed(arm, **counts, **numbers, **spreads, stepMs=steps, **positions)
    rules = of(RuleResult)
    definitions["RuleResult"]["properties"]["outcome"] = {
        "enum": ["pass", "fail", "undecided", "missing", "skip"]
    }
    cell = _closed(
        inspect.getdoc(record.cell_record) or "",
        **definitions_of(Cell),
        label=_TEXT,
        share=_NUMBER,
        outcome=_or_null({"enum": _VERDICTS}),
        reasons=_list(_TEXT),
        rules=_list(rules),
        throughputRatio=_or_null(of(Interval)),
        throughputRatioByRound=_list({"type": "number"}),
        timePerTokenRatio=_or_null(of(Interval)),
        **dict.fromkeys(("promptsMuchSlower", "promptsMuchFaster"), _COUNT),
        **dict.fromkeys(("outputsCompared", "outputsDifferent", "newlyFailed"), _COUNT),
        baseline={"$ref": "#/$defs/Arm"},
        candidate={"$ref": "#/$defs/Arm"},
    )
    cell["properties"]["quantilesMs"] = {
        "type": "object"
    }  # of reports only: arm -> metric -> 101 values
    cell["properties"]["p99"] = {
        "type": "object"
    }  # of reports only: arm -> metric -> value, source, error, why
    definitions["Cell"] = cell
    definitions["Gate"] = _closed(
        inspect.getdoc(record.verdict_record) or "",
        outcome={"enum": _VERDICTS},
        summary=_TEXT,
        reasons=_list(_TEXT),
        crossovers=_list(of(Crossover)),
        deciding=_or_null(of(values.Deciding)),
    )
    of(Decomposition)
    definitions["Decomposition"]["properties"] |= {"cell": _TEXT}
    metadata = _closed(
        "", **dict.fromkeys(("name", "created", "who", "mpctlVersion", "service"), _TEXT)
    )
    body = _closed(
        " ".join((inspect.getdoc(values.Report) or "").split()),
        apiVersion={"const": API_VERSION},
        kind={"const": "Report"},
        metadata=metadata,
        sentence=_TEXT,
        gate={"$ref": "#/$defs/Gate"},
        cells=_list({"$ref": "#/$defs/Cell"}),
        conditions=_closed("", baseline=of(ArmConditions), candidate=of(ArmConditions)),
        prompts=_list(of(PromptSet)),
        client=_or_null(of(Calibration)),
        policy={"type": "object", "additionalProperties": {"type": "number"}},
        decomposition=_list({"$ref": "#/$defs/Decomposition"}),
        notes=_list(_TEXT),
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{API_VERSION.partition('/')[0]}/schema/{API_VERSION.partition('/')[2]}/report.json",
        "title": f"Report, {API_VERSION}",
        **body,
        "$defs": dict(sorted(definitions.items())),
    }


def definitions_of(kind: type) -> dict[str, Any]:
    properties: dict[str, Any] = _object(kind, {})["properties"]
    return properties


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a dataclass; a report has an arm's speculation in words alone."""
    hints = typing.get_type_hints(kind)
    properties = {
        _camel_name(f.name): _schema(hints[f.name], definitions)
        for f in fields(kind)
        if f.name != "speculation"
    }
    return _closed(" ".join((inspect.getdoc(kind) or "").split()), **properties)


_PLAIN = {bool: "boolean", str: "string", float: "number", int: "integer", type(None): "null"}


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [one.value for one in hint]}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if is_dataclass(hint):
        name = hint.__name__  # type: ignore[union-attr]
        if name not in definitions:
            definitions[name] = {}
            definitions[name] = _object(hint, definitions)  # type: ignore[arg-type]
        return {"$ref": f"#/$defs/{name}"}
    if origin is types.UnionType:
        parts = [_schema(a, definitions) for a in arguments]
        if all(set(p) == {"type"} for p in parts):
            return {"type": [p["type"] for p in parts]}
        return {"anyOf": parts}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    assert origin is Mapping, hint
    return {
        "type": "object",
        "additionalProperties": {} if arguments[1] is Any else _schema(arguments[1], definitions),
    }


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_schema_is_that_of_the_code():
    assert json.loads(FILE.read_text()) == made()


@pytest.mark.parametrize("make", [report, several, empty, hostile])
def test_every_report_fits_the_schema(validator, make):
    found = {"apiVersion": API_VERSION, "kind": "Report", **record.report_record(make())}
    validator.validate(json.loads(json.dumps(found, allow_nan=False)))


@pytest.mark.parametrize("kind", ["Operation", "Measurement", "GateVerdict"])
def test_every_command_prints_the_cells_of_a_report(kind):
    """``rollout``, ``bench`` and ``gate explain`` print the cells and the verdict that ``report`` prints."""
    run = make_run()
    analysis, verdict = judge_run(run)
    status = record.measurement_record(analysis.cells, verdict)
    of_report = record.report_record(build_report(run, analysis, verdict))
    assert status["gate"] == of_report["gate"]
    assert [{**c, "quantilesMs": {}, "p99": {}} for c in status["cells"]] == [
        {**c, "share": status["cells"][0]["share"], "quantilesMs": {}, "p99": {}}
        for c in of_report["cells"]
    ]
    schemas = {path.name: json.loads(path.read_text()) for path in FILE.parent.glob("*.json")}
    registry = Registry().with_contents((schema["$id"], schema) for schema in schemas.values())
    printed = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {},
        "spec": {},
        "status": status,
    }
    validator = jsonschema.Draft202012Validator(schemas["records.json"], registry=registry)
    validator.validate(printed)
    broken = {**printed, "status": {**status, "cells": [{"speedup": 2.0}]}}
    assert not validator.is_valid(broken)
    early = {**printed, "status": record.measurement_record(analysis.cells, None)}
    validator.validate(early)


def test_a_report_of_samples_fits_the_schema_in_json_and_in_yaml(validator):
    import yaml

    source = FinishedRun(make_run())
    actual_record = json.loads(render(report_on(source), "json"))
    validator.validate(actual_record)
    assert yaml.safe_load(render(report_on(source), "yaml")) == actual_record
    assert actual_record["metadata"] == {
        "name": "bench-1",
        "created": "2026-11-21T05:00:12+00:00",
        "who": "ada@host",
        "mpctlVersion": "0.3.0",
        "service": "Qwen/Qwen3-8B",
    }


def test_a_report_that_lacks_something_does_not_fit(validator):
    found = {"apiVersion": API_VERSION, "kind": "Report", **record.report_record(report())}
    assert validator.is_valid(found)
    for change in ({"kind": "Run"}, {"gate": {"outcome": "pass"}}, {"cells": [{}]}, {"more": 1}):
        assert not validator.is_valid({**found, **change})


if __name__ == "__main__":
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(made(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
