"""The records that commands print with ``-o json``: each kind stands in ``docs/schema/records.json`` with the fields it
always has; what a field holds is written where the command is described."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from mpctl.cli.printer import API_VERSION

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def schema():
    record = json.loads((ROOT / "docs" / "schema" / "records.json").read_text())
    jsonschema.Draft202012Validator.check_schema(record)
    return record


def test_every_kind_that_a_command_prints_is_in_the_schema(schema):
    code = "\n".join(path.read_text() for path in (ROOT / "mpctl").rglob("*.py"))
    printed = set(re.findall(r"(?:\.record|\.emit|\bResult|\bdocument)\(\s*\"([A-Z]\w+)\"", code))
    assert printed - {"Report"} <= set(schema["$defs"])
    if all((ROOT / "mpctl" / annex).is_dir() for annex in ("lab", "evidence")):
        assert printed - {"Report"} == set(schema["$defs"])


@pytest.mark.needs("local")
@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("Version", ["version"]),
        ("MethodList", ["methods"]),
        ("StatusList", ["status"]),
        ("DraftList", ["drafts"]),
    ],
)
def test_a_record_fits_its_schema(cli, schema, kind, command):
    done = cli(*command, "-o", "json")
    record = json.loads(done.out)
    assert (record["apiVersion"], record["kind"]) == (API_VERSION, kind)
    jsonschema.Draft202012Validator(schema).validate(record)


def test_a_record_without_its_fields_or_of_another_version_does_not_fit(schema):
    validator = jsonschema.Draft202012Validator(schema)
    good = {"apiVersion": API_VERSION, "kind": "MethodList", "items": []}
    assert validator.is_valid(good)
    for change in ({"kind": "Unheard"}, {"apiVersion": "mpctl.dev/v2"}, {"items": {}}):
        assert not validator.is_valid({**good, **change})
    assert not validator.is_valid({"apiVersion": API_VERSION, "kind": "MethodList"})
