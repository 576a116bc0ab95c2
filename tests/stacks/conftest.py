"""One synthesis of both clouds for the whole session; starting the jsii process costs more than all
asserts together.
"""

from __future__ import annotations

import datetime as dt
import json
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


def missing() -> str | None:
    """What these tests cannot do without, and how to get it."""
    if shutil.which("node") is None:
        return "node is missing, which jsii runs on: install Node 20 or later (Debian: apt-get install nodejs)"
    if find_spec("constructs") is None or (
        find_spec("cdktf") is None and find_spec("cdktn") is None
    ):
        return "no CDK core is installed: pip install 'mpctl[stacks]'"
    return None


# Without a core nothing here can be imported: test_tools.py alone is collected, and says so.
if missing():
    collect_ignore = [
        path.name
        for path in Path(__file__).parent.glob("test_*.py")
        if path.name != "test_tools.py"
    ]

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"
# Every calendar question in these tests is asked on this day.
TODAY = dt.date(2026, 11, 21)


def clean(document: Any) -> Any:
    """Without the core's comments: construct paths, the version stamp, the list of overrides."""
    if isinstance(document, dict):
        return {key: clean(value) for key, value in document.items() if key != "//"}
    return [clean(item) for item in document] if isinstance(document, list) else document


def production(folder: Path) -> dict[str, str]:
    """The shipped production environment with its example names replaced, as its user has to."""
    text = (ROOT / "environments/production.yaml").read_text("utf-8")
    for example, own in (
        ("example-terraform-state", "state-of-inference"),
        ("111122223333", "210987654321"),
        ("platform-team@example.com", "platform@inference.test"),
        ("  # billing_account:", "  billing_account: 0A0B0C-1D1E1F-2A2B2C  #"),
        ("example-inference-prod", "inference-prod"),
    ):
        assert example in text
        text = text.replace(example, own)
    path = folder / "production.yaml"
    path.write_text(text, "utf-8")
    return {"MPCTL_ENV": str(path)}


def synthesise(environ: dict[str, str], today: dt.date = TODAY) -> dict[str, Any]:
    """Every stack of both example clusters, by cluster and layer."""
    from infra import core
    from stacks.main import build, load_fleet, load_settings, plans
    from stacks.settings import LAYERS

    settings = load_settings(environ, ROOT)
    app = core.Testing.app()
    entries = {}
    for plan in plans(environ, settings, load_fleet(environ, ROOT), today):
        for layer, stack in zip(LAYERS, build(app, plan, LAYERS), strict=True):
            entries[f"{plan.cluster.name}-{layer}"] = clean(json.loads(core.Testing.synth(stack)))
    return entries


@pytest.fixture(scope="session")
def synthesised() -> dict[str, Any]:
    """The example fleet in the environment that the tests keep for themselves."""
    return synthesise(
        {"MPCTL_ENV": str(DATA / "golden.yaml"), "MPCTL_GCP_PROJECT": "example-project"}
    )


@pytest.fixture(scope="session")
def rich() -> dict[str, Any]:
    """The same fleet with everything switched on: endpoints, budget, shared models, staged artifacts, S3
    state.
    """
    return synthesise({"MPCTL_ENV": str(DATA / "rich.yaml")})


@pytest.fixture
def stack() -> Iterator[Any]:
    """An empty stack to build in."""
    from infra import core

    yield core.TerraformStack(core.Testing.app(), "empty")
