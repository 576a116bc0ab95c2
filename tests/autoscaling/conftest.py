"""Renders the manifests as the serving stack does and finds Prometheus' own programs."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Any

import pytest
import yaml

from tests.cluster.rig import binaries

MANIFESTS = Path(__file__).parents[2] / "manifests"
NAMES = {"service": "llm", "namespace": "inference", "runbooks": "docs/runbooks", "slots": "16"}
NAMES |= {"min": "1", "max": "4", "wait_ms": "1400"}
NAMES |= {"busy": "0.85", "busy_milli": "850", "hold": "0.6", "hold_milli": "600"}


def render(path: Path) -> dict[str, Any]:
    document = yaml.safe_load(Template(path.read_text()).substitute(NAMES))
    assert isinstance(document, dict)
    return document


def rule_groups() -> list[dict[str, Any]]:
    """Every group of every PrometheusRule, in the order of the files."""
    rendered = [render(path) for path in sorted(MANIFESTS.glob("*/prometheusrule-*.yaml"))]
    return [group for document in rendered for group in document["spec"]["groups"]]


def binary(recipe: binaries.Recipe) -> str:
    """A program of Prometheus, built from its pinned module where it is not yet."""
    try:
        return binaries.find(recipe)[recipe.programs[0].name]
    except binaries.Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def promtool() -> str:
    return binary(binaries.PROMTOOL)


@pytest.fixture(scope="session")
def prometheus() -> str:
    return binary(binaries.PROMETHEUS)


@pytest.fixture(scope="session")
def rules_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": rule_groups()}, sort_keys=False))
    return path
