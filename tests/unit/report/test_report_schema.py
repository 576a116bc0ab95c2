"""The published schema of ``mpctl report -o json``: made from the values themselves, held against real reports.

``python tests/unit/report/test_report_schema.py`` renews ``docs/schema/report.json``.
"""

from __future__ import annotations

import inspect
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from report_samples import empty, hostile, report, several
from run_samples import make_run

from mpctl.app.inspect.report import report_on
from mpctl.app.inspect.run_source import Source
from mpctl.cli.inspect.report import render
from mpctl.cli.printer import API_VERSION
from mpctl.report import values
from mpctl.report.values import _camel

FILE = Path(__file__).parents[3] / "docs" / "schema" / "report.json"
_OUTCOMES = {
    "Rule": ["pass", "fail", "undecided", "missing", "skip"],
    "CellReport": ["promote", "reject", "undecided"],
    "Report": ["promote", "reject", "undecided"],
}
_METADATA = ("run", "created", "who", "mpctl_version", "service")


def made() -> dict[str, Any]:
    """The schema of the values as they are now."""
    definitions: dict[str, Any] = {}
    body = _object(values.Report, definitions)
    metadata = {"name" if n == "run" else _camel(n): body["properties"].pop(_camel(n)) for n in _METADATA}
    body["required"] = [n for n in body["required"] if n in body["properties"]]
    first = {
        "apiVersion": {"const": API_VERSION},
        "kind": {"const": "Report"},
        "metadata": {
            "type": "object",
            "properties": metadata,
            "required": list(metadata),
            "additionalProperties": False,
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://{API_VERSION.partition('/')[0]}/schema/{API_VERSION.partition('/')[2]}/report.json",
        "title": f"Report, {API_VERSION}",
        **body,
        "properties": {**first, **body["properties"]},
        "required": [*first, *body["required"]],
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties = {_camel(f.name): _schema(hints[f.name], definitions) for f in fields(kind)}
    if kind.__name__ in _OUTCOMES:
        properties["outcome"] = {"enum": _OUTCOMES[kind.__name__]}
    return {
        "description": " ".join((inspect.getdoc(kind) or "").split()),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_PLAIN = {str: "string", float: "number", int: "integer", type(None): "null"}


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
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
    return {"type": "object", "additionalProperties": {} if arguments[1] is Any else _schema(arguments[1], definitions)}


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(FILE.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_schema_is_that_of_the_code():
    assert json.loads(FILE.read_text()) == made()


@pytest.mark.parametrize("make", [report, several, empty, hostile])
def test_every_report_fits_the_schema(validator, make):
    record = {"apiVersion": API_VERSION, "kind": "Report", **make().to_record()}
    validator.validate(json.loads(json.dumps(record, allow_nan=False)))


def test_a_report_of_samples_fits_the_schema_in_json_and_in_yaml(validator):
    import yaml

    source = Source(make_run())
    record = json.loads(render(report_on(source), "json"))
    validator.validate(record)
    assert yaml.safe_load(render(report_on(source), "yaml")) == record
    assert record["metadata"] == {
        "name": "bench-1",
        "created": "2026-11-21T05:00:12+00:00",
        "who": "ada@host",
        "mpctlVersion": "0.3.0",
        "service": "Qwen/Qwen3-8B",
    }


def test_a_report_that_lacks_something_does_not_fit(validator):
    record = {"apiVersion": API_VERSION, "kind": "Report", **report().to_record()}
    for change in ({"kind": "Run"}, {"outcome": "pass"}, {"cells": [{}]}, {"more": 1}):
        assert not validator.is_valid({**record, **change})


def test_no_value_of_a_report_is_left_out_of_its_record():
    required = {_camel(f.name) for f in fields(values.Report) if f.default is MISSING}
    record = report().to_record()
    assert required - {"run", "created", "who", "mpctlVersion", "service"} <= set(record)


if __name__ == "__main__":
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(made(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
